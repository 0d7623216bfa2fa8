"""Into which parts a cluster falls: by k-means, and only where it could be of use."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from sofa_fl.topology.bodies import Bodies, Floats
from sofa_fl.topology.order import Rows
from sofa_fl.topology.tree import NodeId

BLOCK = 1 << 22  # numbers looked at together
FEW = 9  # children whose subsets are all looked at


def partitions(
    children: Sequence[NodeId], places: Floats, weights: Floats, numbers: Iterable[int]
) -> Iterator[tuple[tuple[NodeId, ...], ...]]:
    """K-means partitions of `children` into so many parts, fewer than there are children."""
    places = places - places.mean(axis=0)
    # To nine digits, and in an order that depends on the places alone: neither the last bit of
    # a mean nor a client's number must steer k-means.
    places = (places / (np.abs(places).max() or 1.0)).round(9)
    order = np.lexsort(places.T[::-1])
    distinct = len(np.unique(places, axis=0))
    for k in numbers:
        if k > min(len(children) - 1, distinct):
            return
        with warnings.catch_warnings():  # of places so near that they are one to k-means
            warnings.simplefilter("ignore", ConvergenceWarning)
            means = KMeans(k, n_init=4, random_state=0).fit(
                places[order], sample_weight=weights[order]
            )
        groups: dict[int, list[NodeId]] = {}
        for row, label in zip(order, means.labels_):
            groups.setdefault(int(label), []).append(children[row])
        if len(groups) < k:
            return
        yield tuple(tuple(sorted(group)) for group in groups.values())


def possible_numbers(
    bodies: Bodies, clusters: Rows, max_parts: int, widest: float, bounded: bool
) -> list[list[int]]:
    """Into how many parts each cluster may fall, none of which spreads wider than `widest`.

    At most one part is a child alone, so there are no more than half as many as children, and one.
    If `bounded`, spread is not below the euclidean. Then, whatever the k parts, their squared
    distances to their means sum up to no less than what is left of the children's scatter without
    its k - 1 main axes; and to no more than `widest`², times all weight but a child's in each part.
    """
    sizes = bodies.order.num_children[clusters]
    numbers = [list(range(2, min(max_parts, (m + 1) // 2) + 1)) for m in sizes.tolist()]
    if not bounded:
        return numbers
    most_square = widest**2 * (1 + 1e-9) + bodies.rounding
    for m in np.unique(sizes[sizes > 2]).tolist():
        alike = np.flatnonzero(sizes == m)
        step = max(1, BLOCK // (m * max(m, bodies.places.shape[1])))
        for start in range(0, len(alike), step):
            some = alike[start : start + step]
            least, most = _scatter_left(bodies, clusters[some], max_parts)
            for at, low, high in zip(some.tolist(), least, most):
                fits = low <= most_square * high
                numbers[at] = [k for k in numbers[at] if fits[k]]
                if numbers[at] and m <= FEW:
                    children = bodies.order.children(int(clusters[at]))
                    places, weights = bodies.places[children], bodies.weights[children]
                    numbers[at] = _coherent_numbers(places, weights, numbers[at], most_square)
    return numbers


def _coherent_numbers(
    places: Floats, weights: Floats, numbers: Sequence[int], most_square: float
) -> list[int]:
    """Those of `numbers` for which there are parts, found by trying all: children are few."""
    chosen = _subsets(len(places))
    places = places - places.mean(axis=0)
    heavy = chosen * weights
    total, sizes = heavy.sum(axis=1), chosen.sum(axis=1)
    squares = np.einsum("ij,ij->i", places, places)
    lengths = np.einsum("ij,jk,ik->i", heavy, places @ places.T, heavy)
    scatter = (heavy @ squares - lengths / total) / total
    narrow = scatter * sizes <= (most_square + 1e-12 * squares.max()) * (sizes - 1)
    parts = 1 + np.flatnonzero(narrow & (sizes > 1))  # as bits: the first child is the lowest
    everyone = (1 << len(places)) - 1
    but_one = everyone ^ (1 << np.arange(len(places)))
    covered, fit = np.zeros(1, dtype=np.intp), []
    for k in range(1, max(numbers) + 1):
        if np.isin(but_one, covered).any():
            fit.append(k)
        apart = (covered[:, None] & parts) == 0
        covered = np.unique((covered[:, None] | parts)[apart])
        if everyone in covered:
            fit.append(k)
    return [k for k in numbers if k in fit]


@cache
def _subsets(n: int) -> Floats:
    """All subsets of `n` but the empty one: row i is that of the bits of i + 1."""
    return (np.arange(1, 1 << n)[:, None] >> np.arange(n) & 1).astype(np.float64)


def _scatter_left(bodies: Bodies, clusters: Rows, max_parts: int) -> tuple[Floats, Floats]:
    """By cluster and number of parts k: the scatter without k - 1 axes, and the weight that counts.

    All clusters must have as many children.
    """
    children = np.stack([bodies.order.children(int(row)) for row in clusters])
    weights = bodies.weights[children]
    rows = bodies.places[children] - bodies.places[clusters][:, None]
    rows *= np.sqrt(weights)[:, :, None]
    turned = rows.transpose(0, 2, 1)
    square = rows @ turned if rows.shape[1] <= rows.shape[2] else turned @ rows
    axes = np.linalg.eigvalsh(square)[:, ::-1]
    several = np.zeros((len(clusters), max_parts + 1))
    last = 1 + min(max_parts - 1, axes.shape[1])
    several[:, 2 : last + 1] = np.cumsum(axes[:, : last - 1], axis=1)
    several[:, last + 1 :] = several[:, last : last + 1]
    total = np.einsum("ijk,ijk->i", rows, rows)
    smallest = np.sort(weights, axis=1)[:, :max_parts]
    counted = np.repeat(weights.sum(axis=1)[:, None], max_parts + 1, axis=1)
    counted[:, 1 : smallest.shape[1] + 1] -= np.cumsum(smallest, axis=1)
    # Rounding must not rule out what is exactly possible.
    return total[:, None] * (1 - 1e-9) - several, counted
