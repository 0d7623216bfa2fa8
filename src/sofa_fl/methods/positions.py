"""Coordinates of clients, from the inner products of what they learned, and a map of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.models.flat import Vector, inner_products
from sofa_fl.topology.dmac import one_thread
from sofa_fl.topology.space import Floats, Space, unit_rows
from sofa_fl.topology.tree import NodeId

FEW = 256  # clients: of more there is no sampled map, and threads may help
NUM_SAMPLED = 1 << 14  # numbers of a model that a map for the eye is made of
EXTRA = 6  # directions that are followed besides the two: they speed up convergence
STEPS = 10  # of subspace iteration: it is a picture, and good to a pixel by then
DIGITS = 4


def coordinates(products: Floats) -> Floats:
    """Points with these inner products, in as many dimensions as there are points.

    A thousand models of a million weights span a thousand dimensions; in these, euclidean and
    cosine distances, means and k-means are the same.
    """
    with one_thread() if len(products) <= FEW else nullcontext():
        values, axes = np.linalg.eigh(products)
    noise = 16 * np.finfo(np.float64).eps * values.max()  # its root would separate equal rows
    return np.asarray(axes * np.sqrt(np.where(values > noise, values, 0)), dtype=np.float64)


def directions(positions: Floats) -> Floats:
    """The directions of the rows from their mean; zero for a row at the mean."""
    centred = positions - positions.mean(axis=0)
    centred[np.linalg.norm(centred, axis=1) <= 1e-9 * np.linalg.norm(positions, axis=1)] = 0.0
    return unit_rows(centred)


def sampled_map(
    models: Mapping[NodeId, Vector], fed: Federation
) -> dict[NodeId, tuple[float, float]]:
    """A map of the clients' models, for methods that have no positions.

    No decision depends on it, so it must cost next to nothing: it uses a regular sample of each
    model's weights, and there is none if there are too many clients.
    """
    if not 2 <= len(models) <= FEW:
        return {}
    n = fed.engine.num_trainable
    step = -(-n // NUM_SAMPLED) | 1  # odd, so that in a layer of even width it is in all columns
    vectors = [model[:n:step] for model in models.values()]
    weights = np.array([fed.size(client) for client in models], dtype=np.float64)
    return map_of(Space(tuple(models), coordinates(inner_products(vectors)), weights))


def map_of(space: Space) -> dict[NodeId, tuple[float, float]]:
    """The clients on a plane that preserves as much of their distances as possible.

    It is for people to look at; no decision depends on it. Each map has an arbitrary rotation and
    reflection; the report aligns maps of successive rounds.
    """
    with one_thread() if len(space.clients) <= FEW else nullcontext():
        flat = _round(plane(space.positions, space.weights))
    return {client: (x, y) for client, (x, y) in zip(space.clients, flat.tolist())}


def plane(positions: Floats, weights: Floats) -> Floats:
    """The first two principal components of `positions`, in time linear in number and size."""
    centred = positions - np.average(positions, axis=0, weights=weights)
    n, size = centred.shape
    k = min(n, size, 2 + EXTRA)
    start = np.random.default_rng(0).standard_normal((n, k))
    basis, _ = np.linalg.qr(start)
    for _ in range(STEPS):
        basis, _ = np.linalg.qr(centred @ (centred.T @ basis))
    axes, lengths, _ = np.linalg.svd(basis.T @ centred, full_matrices=False)
    flat = basis @ (axes * lengths)
    shown = np.zeros((n, 2))
    shown[:, : min(2, k)] = flat[:, :2]
    return shown


def _round(values: Floats) -> Floats:
    """Round to a few digits of the largest: enough for a drawing."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return np.zeros_like(values)
    return np.round(values, DIGITS - 1 - int(np.floor(np.log10(largest))))
