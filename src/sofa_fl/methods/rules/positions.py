"""The positions of clients, computed from what they learned, and the map of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import torch

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.clusters import Updates
from sofa_fl.methods.rules.config import PositionKind, SofaConfig
from sofa_fl.models.flat import Model, Vector, as_vector, inner_products, products_with
from sofa_fl.models.sketch import Sketch
from sofa_fl.topology.clustering.dmac import one_thread
from sofa_fl.topology.geometry.space import DistanceMetric, Floats, Space, unit_rows
from sofa_fl.topology.tree import NodeId

PROBE_SIZE = 200  # samples on which latent features are taken
NUM_EXACT = 256  # of no more clients all pairs are measured exactly
NUM_LANDMARKS = 64  # models that a position is measured against exactly, if there are more
MIN_SKETCH = 256  # numbers
NUM_SAMPLED = 1 << 14  # numbers of a model that a map for the eye is made of
EXTRA = 6  # directions that are followed besides the two: they speed up convergence
STEPS = 10  # of subspace iteration: it is a picture, and good to a pixel by then
DIGITS = 4


def embed(updates: Updates, config: SofaConfig, fed: Federation) -> Space:
    """The positions of the clients, computed from what they learned."""
    models, starts = zip(*((update.model, update.start) for update in updates.values()))
    positions = positions_of(models, starts, config.position, config.metric, fed, config.sketch)
    weights = np.array([fed.size(client) for client in updates], dtype=np.float64)
    return Space(tuple(updates), positions, weights, config.metric, config.linkage)


def positions_of(
    models: Sequence[Vector],
    starts: Sequence[Model],
    kind: PositionKind,
    metric: DistanceMetric,
    fed: Federation,
    sketch: int = 0,
) -> Floats:
    """One row per client: its model, its update, its features on a fixed batch, or its direction.

    The direction is that in which its model differs from the mean of all: the length is mostly
    noise, and depends on how much the client trained and on what.

    Only trainable parameters count. Rows are brought to as few coordinates as there are clients,
    with the same distances, or, for many clients, `sketched`. The manhattan metric has no such
    coordinates and takes the parameters as they are.
    """
    if kind == "latent":
        features = fed.engine.embed(models, fed.probe(PROBE_SIZE))
        return np.asarray(features, dtype=np.float64)
    n = fed.engine.num_trainable
    vectors = [model[:n] for model in models]
    if kind == "updates":
        vectors = [vector - as_vector(start)[:n] for vector, start in zip(vectors, starts)]
    if metric == "manhattan":
        return torch.stack(vectors).double().cpu().numpy()
    if not sketch or len(vectors) <= NUM_EXACT:
        positions = coordinates(inner_products(vectors))
    else:
        positions = sketched(vectors, Sketch(sketch_size(sketch, len(vectors)), n, fed.seed))
    return directions(positions) if kind == "directions" else positions


def coordinates(products: Floats) -> Floats:
    """Points with these inner products, in as many dimensions as there are points.

    A thousand models of a million weights span a thousand dimensions; in these, euclidean and
    cosine distances, means and k-means are the same.
    """
    with one_thread() if len(products) <= NUM_EXACT else nullcontext():
        values, axes = np.linalg.eigh(products)
    noise = 16 * np.finfo(np.float64).eps * values.max()  # its root would separate equal rows
    return np.asarray(axes * np.sqrt(np.where(values > noise, values, 0)), dtype=np.float64)


def directions(positions: Floats) -> Floats:
    """The directions of the rows from their mean; zero for a row at the mean."""
    centred = positions - positions.mean(axis=0)
    centred[np.linalg.norm(centred, axis=1) <= 1e-9 * np.linalg.norm(positions, axis=1)] = 0.0
    return unit_rows(centred)


def sketch_size(room: int, num_clients: int) -> int:
    """The size of each client's sketch, if all together may have `room` numbers.

    With many clients it is smaller, because all pairs are measured.
    """
    return max(MIN_SKETCH, min(room // num_clients, (room << 10) // num_clients**2))


def sketched(
    vectors: Sequence[Vector], sketch: Sketch, num_landmarks: int = NUM_LANDMARKS
) -> Floats:
    """Positions whose distances are nearly those of `vectors`, in time linear in their number.

    Evenly chosen landmarks span the first coordinates, exactly. What they leave of a vector is
    sketched, and brought to its own length. So a distance to a landmark is exact, and that of two
    others is off only by what the sketch makes of the angle between their rests: of noise, not of
    what groups have in common.
    """
    n = len(vectors)
    chosen = np.linspace(0, n - 1, min(n, num_landmarks)).round().astype(int).tolist()
    landmarks = [vectors[row] for row in chosen]
    values, axes = np.linalg.eigh(inner_products(landmarks))
    several = values > 16 * np.finfo(np.float64).eps * values.max()
    basis = axes[:, several] / np.sqrt(values[several])
    spanned = products_with(vectors, landmarks) @ basis
    sketches = np.stack([sketch(vector).cpu().numpy() for vector in vectors])
    rest = sketches - spanned @ (basis.T @ sketches[chosen])
    norms = [torch.linalg.vector_norm(vector, dtype=torch.float64) for vector in vectors]
    squares = torch.stack(norms).square().cpu().numpy()
    rest_squares = squares - np.einsum("ij,ij->i", spanned, spanned)
    rest_squares[chosen] = 0.0
    # The root of rounding would set equal models apart.
    rest_squares[rest_squares < 1e-6 * squares] = 0.0
    length = np.linalg.norm(rest, axis=1)
    rest *= (np.sqrt(rest_squares) / np.where(length > 0, length, 1))[:, None]
    positions = np.hstack([spanned, rest])
    if positions.shape[1] > 2 * n:
        return coordinates(positions @ positions.T)
    return positions


def sampled_map(
    models: Mapping[NodeId, Vector], fed: Federation
) -> dict[NodeId, tuple[float, float]]:
    """A map of the clients' models, for methods that have no positions.

    No decision depends on it, so it must cost next to nothing: it uses a regular sample of each
    model's weights, and there is none if there are too many clients.
    """
    if not 2 <= len(models) <= NUM_EXACT:
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
    With the manhattan metric, distances are treated as euclidean.
    """
    with one_thread() if len(space.clients) <= NUM_EXACT else nullcontext():
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
