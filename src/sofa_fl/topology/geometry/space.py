"""Where the clients are, and how far apart: one place per client, a metric, one scale.

A cluster's place is the weighted mean of its clients' positions: derived, never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from sofa_fl.errors import TopologyError
from sofa_fl.topology.geometry.node_positions import ROUNDING, Body, Floats, NodePositions
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.tree_arrays import slices

Metric = Literal["euclidean", "manhattan", "cosine"]
Linkage = Literal["centroid", "average"]


@dataclass(frozen=True)
class Space:
    """The positions of the clients: row `i` of `positions` and `weights` is that of `clients[i]`.

    Attributes:
        linkage: How far apart two nodes are: as their positions are (`centroid`, as in the paper),
            or as their clients are (`average`: the root mean square over all pairs of one's
            clients and the other's). The place of many clients is less noisy than that of few, so
            by centroid large clusters look near to everything; by average size does not matter.
    """

    clients: tuple[NodeId, ...]
    positions: Floats
    weights: Floats
    metric: Metric = "euclidean"
    linkage: Linkage = "centroid"

    def __post_init__(self) -> None:
        if self.positions.ndim != 2 or len(self.positions) != len(self.clients):
            raise TopologyError(
                f"positions must be one row per client: {len(self.clients)} clients, "
                f"positions of shape {self.positions.shape}"
            )
        if len(self.weights) != len(self.clients) or not np.all(self.weights > 0):
            raise TopologyError("every client needs a weight above zero")
        if not np.isfinite(self.positions).all():
            rows = np.flatnonzero(~np.isfinite(self.positions).all(axis=1))
            bad = [self.clients[row] for row in rows]
            raise TopologyError(f"positions of clients {bad} are not finite")
        if self.metric == "manhattan" and self.linkage == "average":
            raise TopologyError("average linkage needs the euclidean or the cosine metric")
        if self.metric == "cosine":  # only directions count
            object.__setattr__(self, "positions", unit_rows(self.positions))

    @cached_property
    def bodies(self) -> dict[NodeId, Body]:
        """Every client on its own."""
        rows = zip(self.clients, self.positions, self.weights)
        return {client: Body(place, float(weight)) for client, place, weight in rows}

    def between(self, a: Sequence[Body], b: Sequence[Body]) -> Floats:
        """Distance of every body in `a` to every one in `b`."""
        here, there = (np.stack([body.position for body in bodies]) for bodies in (a, b))
        inner, outer = (np.array([body.inertia for body in bodies]) for bodies in (a, b))
        return self.apart(here, there, inner, outer)

    def apart(
        self, here: Floats, there: Floats, inertia_here: Floats, inertia_there: Floats
    ) -> Floats:
        """Distance of every place `here` to every one `there`, given the bodies' inertias.

        What rounding alone can make is no distance: equal clients, whose means differ in the last
        digit, must not be told apart.
        """
        if self.metric == "manhattan":
            apart = np.asarray(cdist(here, there, "cityblock"), dtype=np.float64)
        elif self.metric == "euclidean":
            apart = np.asarray(cdist(here, there, "euclidean"), dtype=np.float64)
        elif self.linkage == "centroid":
            # A place at zero points nowhere: it is at distance 1 from every direction.
            apart = np.clip(1 - unit_rows(here) @ unit_rows(there).T, 0, 2)
        else:  # the mean over pairs of unit vectors
            apart = np.clip(1 - here @ there.T, 0, 2)
        if self.linkage == "average" and self.metric == "euclidean":
            np.multiply(apart, apart, out=apart)
            apart += np.add.outer(inertia_here, inertia_there)
            np.sqrt(apart, out=apart)
        lengths = [self._lengths(x) for x in (here, there)]
        rows, columns = np.nonzero(apart <= ROUNDING * sum(length.max() for length in lengths))
        nothing = apart[rows, columns] <= ROUNDING * (lengths[0][rows] + lengths[1][columns])
        apart[rows[nothing], columns[nothing]] = 0.0
        return apart

    def gaps(
        self,
        here: Floats,
        there: Floats,
        inertia_here: Floats | float = 0.0,
        inertia_there: Floats | float = 0.0,
    ) -> Floats:
        """As `apart`, of each place `here` to that in the same row `there`."""
        inner, outer = (
            np.broadcast_to(inertia, len(here)) for inertia in (inertia_here, inertia_there)
        )
        gaps = np.empty(len(here))
        for some in slices(*here.shape):
            gaps[some] = self._gaps(here[some], there[some], inner[some], outer[some])
        return gaps

    def _gaps(
        self, here: Floats, there: Floats, inertia_here: Floats, inertia_there: Floats
    ) -> Floats:
        if self.metric == "manhattan":
            gaps = np.abs(here - there).sum(axis=1)
        elif self.metric == "euclidean":
            difference = here - there
            gaps = np.einsum("ij,ij->i", difference, difference)
            gaps = np.sqrt(gaps + (inertia_here + inertia_there) * (self.linkage == "average"))
        else:
            if self.linkage == "centroid":
                here, there = unit_rows(here), unit_rows(there)
            gaps = np.clip(1 - np.einsum("ij,ij->i", here, there), 0, 2)
        rows = np.arange(len(gaps))
        if self.metric != "manhattan":  # lengths but for rounding, in one go: few gaps are trifles
            same = there[:1] if there.strides[0] == 0 else there  # one place for all
            lengths = np.sqrt(np.einsum("ij,ij->i", here, here))
            lengths += np.sqrt(np.einsum("ij,ij->i", same, same))
            rows = np.flatnonzero(gaps <= 2 * ROUNDING * lengths)
        nothing = gaps[rows] <= ROUNDING * (self._lengths(here[rows]) + self._lengths(there[rows]))
        gaps[rows[nothing]] = 0.0
        return np.asarray(gaps, dtype=np.float64)

    def _lengths(self, positions: Floats) -> Floats:
        order = 1 if self.metric == "manhattan" else 2
        return np.asarray(np.linalg.norm(positions, order, axis=1))

    def spread(self, bodies: Sequence[Body]) -> float:
        """RMS distance of the bodies' positions to their mean, corrected for their number.

        Without the correction, n / (n - 1), a small cluster would look tighter than a large one
        drawn from the same clients.
        """
        if len(bodies) < 2:
            return 0.0
        positions = np.stack([body.position for body in bodies])
        return self.spread_of(positions, np.array([body.weight for body in bodies]))

    def spread_of(self, positions: Floats, weights: Floats) -> float:
        """As `spread`."""
        n = len(positions)
        if n < 2:
            return 0.0
        centre = np.average(positions, axis=0, weights=weights)
        squares = self.gaps(positions, np.broadcast_to(centre, positions.shape)) ** 2
        return float(np.sqrt(np.average(squares, weights=weights) * n / (n - 1)))

    @cached_property
    def scale(self) -> float:
        """Spread of all clients: what thresholds are fractions of."""
        return self.spread_of(self.positions, self.weights)

    def incoherence(self, bodies: Sequence[Body]) -> float:
        """Spread of `bodies`, as a fraction of the scale."""
        return self.spread(bodies) / self.scale if self.scale > 0 else 0.0

    def incoherences(self, bodies: NodePositions) -> Floats:
        """That of the children of every node of a tree, by row; zero for those without."""
        order, n = bodies.order, bodies.num_children
        if self.scale <= 0:
            return np.zeros(len(n))
        gaps = self.gaps(bodies.positions[1:], bodies.positions[order.up[1:]])
        sums = np.bincount(order.up[1:], bodies.weights[1:] * gaps**2, minlength=len(n))
        several = (n > 1) & ~order.is_client
        spreads = np.zeros(len(n))
        spreads[several] = sums[several] / bodies.weights[several] * n[several]
        spreads[several] = np.sqrt(spreads[several] / (n[several] - 1))
        return spreads / self.scale

    @cached_property
    def centre(self) -> Floats:
        """The mean of all positions: what is measured from there is measured with a small error."""
        return np.asarray(self.positions.mean(axis=0))

    @cached_property
    def extent(self) -> float:
        """The largest squared distance of a place to the centre."""
        most = 0.0
        for some in slices(*self.positions.shape):
            away = self.positions[some] - self.centre
            most = max(most, float(np.einsum("ij,ij->i", away, away).max()))
        return most

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """The clients in order of their ids, and their rows."""
        clients = np.array(self.clients, dtype=np.int64)
        order = np.argsort(clients, kind="stable")
        return clients[order], order

    @cached_property
    def whole(self) -> set[object]:
        """Clusters that were found not to fall into parts: nobody needs to look again."""
        return set()

    @cached_property
    def _located(self) -> list[tuple[Tree, NodePositions]]:
        """The last tree located: one after the other asks for the same."""
        return []

    def locate(self, tree: Tree) -> NodePositions:
        """Every node of `tree` in this space, but for clusters without clients."""
        if not self._located or self._located[0][0] is not tree:
            nodes, (known, rows) = tree.arrays.nodes[tree.arrays.is_client], self._sorted
            at = rows[np.minimum(np.searchsorted(known, nodes), len(known) - 1)]
            there = np.array(self.clients)[at] == nodes
            weights = np.where(there, self.weights[at], 0.0)
            self._located[:] = [(tree, NodePositions(tree.arrays, self.positions[at], weights))]
        return self._located[0][1]


def coordinates(products: Floats) -> Floats:
    """Points with these inner products, in as many dimensions as there are points.

    A thousand models of a million weights lie in a thousand dimensions; euclidean and cosine
    distances, means and k-means are the same there.
    """
    values, axes = np.linalg.eigh(products)
    noise = 16 * np.finfo(np.float64).eps * values.max()  # its root would set equal rows apart
    return np.asarray(axes * np.sqrt(np.where(values > noise, values, 0)), dtype=np.float64)


def unit_rows(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1))
