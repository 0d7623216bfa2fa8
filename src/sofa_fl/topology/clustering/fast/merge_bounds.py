"""Pairs of sibling clusters that may be merged, found for all parents together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sofa_fl.topology.clustering.fast.distance_matrix import TRIFLE, Ruler
from sofa_fl.topology.clustering.fast.mean_distances import SURE, blur, sums_within
from sofa_fl.topology.clustering.separation import CLEARLY
from sofa_fl.topology.geometry.node_positions import Floats, NodePositions
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree.tree_arrays import Rows

BLOCK = 1 << 20  # pairs looked at together
FEW = 64  # siblings whose pairs are all measured; of more, each cluster has so many partners


def near_pairs(
    space: Space, bodies: NodePositions, reach: float, widest: float
) -> tuple[Rows, Rows]:
    """Sibling clusters within `reach`, but for those that together surely spread above `widest`.

    By rows, parent by parent, the nearest first. Of many siblings each is given its nearest
    partners only: there is enough to merge, and memory stays linear. Where the metric does not tell
    what is loose, all are given that are within reach.
    """
    order = bodies.order
    rows = order.by_parent
    rows = rows[bodies.settled[rows] & ~order.is_client[rows]]
    _, first, counts = np.unique(order.up[rows], return_index=True, return_counts=True)
    ruler = Ruler(space, bodies.positions, bodies.inertia)
    found = [_all_pairs(rows, np.repeat(first + counts, counts), np.repeat(counts, counts) <= FEW)]
    for start, count in zip(first[counts > FEW], counts[counts > FEW]):
        found += _pairs_of_many(space, bodies, ruler, rows[start : start + count], reach, widest)
    a, b = (np.concatenate(ends) for ends in zip(*found))
    apart = ruler.gaps(a, b)
    kept = (apart <= reach) & ~_loose(space, bodies, a, b, apart**2, widest)
    a, b, apart = a[kept], b[kept], apart[kept]
    nearest = np.lexsort((b, a, apart, order.up[a]))
    return a[nearest], b[nearest]


def _all_pairs(rows: Rows, ends: Rows, chosen: NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """Every chosen row with every later one up to, and without, that at its end."""
    at = np.flatnonzero(chosen)
    later = ends[at] - at - 1
    first = np.repeat(at, later)
    nth = np.arange(len(first)) - np.repeat(np.cumsum(later) - later, later)
    return rows[first], rows[first + 1 + nth]


def _pairs_of_many(
    space: Space, bodies: NodePositions, ruler: Ruler, rows: Rows, reach: float, widest: float
) -> Iterator[tuple[Rows, Rows]]:
    """The nearest later partners of each of many siblings, a few at a time."""
    sheet, step = ruler.sheet(rows), max(1, BLOCK // len(rows))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        rough, error = ruler.rough(some, sheet)
        limit = reach**ruler.power * (1 + TRIFLE) + error[:, None]
        out = _loose(space, bodies, some[:, None], rows[None, :], rough, widest)
        out |= (rough > limit) | (rows[None, :] <= some[:, None])
        rough[out] = np.inf
        if space.metric == "euclidean":
            farther = np.argpartition(rough, FEW, axis=1)[:, FEW:]
            np.put_along_axis(rough, farther, np.inf, axis=1)
        at, to = np.nonzero(np.isfinite(rough))
        yield some[at], rows[to]


def _loose(
    space: Space, bodies: NodePositions, a: Rows, b: Rows, squares: Floats, widest: float
) -> NDArray[np.bool_]:
    """Whether the children of `a` and `b` together surely spread above `widest`.

    Only told of the euclidean metric: their scatter is that of each, and of the two as points.
    """
    if space.metric != "euclidean":
        return np.zeros(squares.shape, dtype=bool)
    weights = bodies.weights[a] + bodies.weights[b]
    apart = squares
    if space.linkage == "average":
        apart = squares - bodies.inertia[a] - bodies.inertia[b]
    scatter = bodies.scatter[a] + bodies.scatter[b]
    scatter = scatter + bodies.weights[a] * bodies.weights[b] / weights * apart
    n = bodies.num_children[a] + bodies.num_children[b]
    slack = (1 + TRIFLE) * widest**2 + 1e-12 * squares + bodies.rounding
    return np.asarray(scatter / weights * (n / (n - 1)) > slack)


def surely_apart(space: Space, bodies: NodePositions, a: Rows, b: Rows) -> NDArray[np.bool_]:
    """Which of these pairs of clusters are set apart (`Parts.set_apart`), as far as means tell."""
    if space.metric == "manhattan":
        return np.zeros(len(a), dtype=bool)
    even, up, num = bodies.even, bodies.order.up[1:], bodies.num.astype(np.float64)
    own = sums_within(space, even, bodies.num)
    pairs = num**2 - np.bincount(up, num[1:] ** 2, minlength=len(num))
    some = np.where(bodies.num_children > 1, pairs, 1)
    inner = 2 * (own - np.bincount(up, own[1:], minlength=len(num))) / some
    inner = np.where(bodies.num_children > 1, inner, np.inf)
    euclidean = space.metric == "euclidean"
    if euclidean:
        away = even.positions[a] - even.positions[b]
        outer = np.einsum("ij,ij->i", away, away) + even.inertia[a] + even.inertia[b]
    else:
        outer = 1 - np.einsum("ij,ij->i", even.positions[a], even.positions[b])
    slack = blur(space, bodies) + 1e-10 * (own / some)[np.stack([a, b])].max(axis=0)
    least = outer / (CLEARLY**2 if euclidean else CLEARLY)
    return np.asarray(np.minimum(inner[a], inner[b]) < least * (1 - SURE) - slack)
