"""Where the clients are, and how far apart: one place per client, a metric, one scale.

A cluster's place is the weighted mean of its clients' places: derived, never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from sofa_fl.errors import TopologyError
from sofa_fl.topology.tree import NodeId, Tree

Metric = Literal["euclidean", "manhattan", "cosine"]
_SCIPY_NAME: dict[Metric, Literal["euclidean", "cityblock", "cosine"]] = {
    "euclidean": "euclidean",
    "manhattan": "cityblock",
    "cosine": "cosine",
}
Floats = NDArray[np.float64]
_ROUNDING = 1e-12  # what two ways to compute the same place may differ by, of its length


@dataclass(frozen=True)
class Space:
    """The places of the clients: row `i` of `places` and of `weights` belongs to `clients[i]`."""

    clients: tuple[NodeId, ...]
    places: Floats
    weights: Floats
    metric: Metric = "euclidean"

    def __post_init__(self) -> None:
        if self.places.ndim != 2 or len(self.places) != len(self.clients):
            raise TopologyError(
                f"places must be one row per client: {len(self.clients)} clients, "
                f"places of shape {self.places.shape}"
            )
        if len(self.weights) != len(self.clients) or not np.all(self.weights > 0):
            raise TopologyError("every client needs a weight above zero")
        bad = [c for c, row in zip(self.clients, self.places) if not np.isfinite(row).all()]
        if bad:
            raise TopologyError(f"places of clients {bad} are not finite")

    @cached_property
    def row(self) -> dict[NodeId, int]:
        return {client: row for row, client in enumerate(self.clients)}

    def distances(self, a: Floats, b: Floats) -> Floats:
        """Distance of every row of `a` to every row of `b`.

        What rounding alone can make is no distance: equal clients, whose means differ in
        the last digit, must not be told apart.
        """
        if self.metric == "cosine":
            # A zero vector points nowhere: it is at distance 1 from every direction.
            a, b = _unit_rows(a), _unit_rows(b)
            apart = np.clip(1 - a @ b.T, 0, 2)
        else:
            apart = np.asarray(cdist(a, b, _SCIPY_NAME[self.metric]), dtype=np.float64)
        order = 1 if self.metric == "manhattan" else 2
        lengths = np.add.outer(*(np.linalg.norm(x, order, axis=1) for x in (a, b)))
        return np.where(apart > _ROUNDING * lengths, apart, 0.0)

    @cached_property
    def scale(self) -> float:
        """RMS distance of the clients to the place of all: what thresholds are fractions of."""
        return self.spread(self.places, self.weights)

    def spread(self, places: Floats, weights: Floats) -> float:
        """RMS distance of `places` to their mean, corrected for their number (n / (n - 1)).

        Without the correction a small cluster would look tighter than a large one drawn
        from the same clients.
        """
        n = len(places)
        if n < 2:
            return 0.0
        centre = np.average(places, axis=0, weights=weights)[None]
        squares = self.distances(places, centre)[:, 0] ** 2
        return float(np.sqrt(np.average(squares, weights=weights) * n / (n - 1)))

    def locate(self, tree: Tree) -> Located:
        """Place and weight of every node of `tree`."""
        sums: dict[NodeId, Floats] = {}
        weight: dict[NodeId, float] = {}
        for node in reversed(list(tree.walk())):
            if node in tree.members:
                weight[node] = float(self.weights[self.row[node]])
                sums[node] = self.places[self.row[node]] * weight[node]
            else:
                children = tree.children[node]
                weight[node] = sum((weight[child] for child in children), 0.0)
                sums[node] = sum((sums[child] for child in children), self.places[0] * 0)
        return Located(self, sums, weight)


@dataclass(frozen=True)
class Located:
    """The nodes of one tree in a space.

    A cluster without clients, as one that all children have left, weighs nothing and has no
    place: `settled` leaves it out.
    """

    space: Space
    sums: dict[NodeId, Floats]
    weight: dict[NodeId, float]

    def settled(self, nodes: Sequence[NodeId]) -> tuple[NodeId, ...]:
        """Those of `nodes` that have a place."""
        return tuple(node for node in nodes if self.weight[node] > 0)

    def places(self, nodes: Sequence[NodeId]) -> Floats:
        return np.stack([self.sums[node] / self.weight[node] for node in nodes])

    def weights(self, nodes: Sequence[NodeId]) -> Floats:
        return np.array([self.weight[node] for node in nodes])

    def without(self, cluster: NodeId, node: NodeId) -> Floats:
        """Place of `cluster` if `node`, somewhere below it, were not there."""
        rest = self.weight[cluster] - self.weight[node]
        return np.asarray((self.sums[cluster] - self.sums[node]) / rest)

    def incoherence(self, nodes: Sequence[NodeId]) -> float:
        """Spread of `nodes` around their common place, as a fraction of the space's scale."""
        nodes = self.settled(nodes)
        if len(nodes) < 2:
            return 0.0
        spread = self.space.spread(self.places(nodes), self.weights(nodes))
        return spread / self.space.scale if self.space.scale > 0 else 0.0


def rotate(vectors: ArrayLike) -> Floats:
    """Few coordinates with the same inner products as the rows of `vectors`.

    A thousand models of a million weights lie in a thousand dimensions; euclidean and cosine
    distances, means and k-means are the same there. Rows are returned as they are when that
    would not make them shorter.
    """
    full = np.asarray(vectors, dtype=np.float64)
    n, d = full.shape
    if d <= n:
        return full
    return coordinates(full @ full.T)


def coordinates(products: Floats) -> Floats:
    """Points with these inner products, in as many dimensions as there are points.

    A thousand models of a million weights lie in a thousand dimensions; euclidean and cosine
    distances, means and k-means are the same there.
    """
    values, axes = np.linalg.eigh(products)
    noise = 16 * np.finfo(np.float64).eps * values.max()  # its root would set equal rows apart
    return np.asarray(axes * np.sqrt(np.where(values > noise, values, 0)), dtype=np.float64)


def _unit_rows(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1))
