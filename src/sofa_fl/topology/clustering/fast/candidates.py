"""Fewer candidates for DMAC, in the same trees."""

from __future__ import annotations

from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.fast.nearest_neighbors import FastNeighbors
from sofa_fl.topology.geometry.space import Space


class FastCandidates(Candidates):
    """Only the nodes that may be joined next, as far as bounds tell."""

    def neighbors(self, space: Space) -> FastNeighbors:
        return FastNeighbors(space)
