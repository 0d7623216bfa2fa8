"""Fewer candidates for the rules, in the same trees and edits. Each method is one fast part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.fast.mean_distances import mean_distances
from sofa_fl.topology.clustering.fast.merge_bounds import surely_apart
from sofa_fl.topology.clustering.fast.nearest_neighbors import FastNeighbors
from sofa_fl.topology.clustering.fast.split_bounds import possible_numbers
from sofa_fl.topology.geometry.node_positions import NodePositions
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree.tree_arrays import Rows


class FastCandidates(Candidates):
    """Only what the default rules may accept, as far as bounds tell."""

    def neighbors(self, space: Space) -> FastNeighbors:
        return FastNeighbors(space)

    def merges(self, space: Space, nodes: NodePositions, a: Rows, b: Rows) -> tuple[Rows, Rows]:
        if space.metric == "manhattan" or not len(a):
            return a, b
        doubtful = ~surely_apart(space, nodes, a, b)
        return a[doubtful], b[doubtful]

    def splits(
        self, space: Space, nodes: NodePositions, numbers: Mapping[int, Sequence[int]]
    ) -> Mapping[int, Sequence[int]]:
        if space.metric == "manhattan":
            return numbers
        means = mean_distances(space, nodes, {row: nodes.arrays.children(row) for row in numbers})
        possible = {row: possible_numbers(means[row], numbers[row]) for row in numbers}
        return {row: some for row, some in possible.items() if some}
