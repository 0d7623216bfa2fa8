"""A client that no run has seen: where in the tree it belongs, and the model to serve it.

Without labels, the newcomer goes to the node whose mean input is nearest to its own. With some
labels, it goes to the largest cluster whose model loses no more on them than the best one does, as
far as they can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sofa_fl.errors import DataError, RunError
from sofa_fl.experiment.scoring.outputs import Whole, outputs_of
from sofa_fl.experiment.serving.model_files import OpenRun, format_of, open_run
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.disk import DamagedError
from sofa_fl.experiment.storage.saving import MeanInputs
from sofa_fl.models.flat import Model, as_vector
from sofa_fl.models.networks import NetworkFactory
from sofa_fl.present import mean_input
from sofa_fl.topology.tree import NodeId

if TYPE_CHECKING:
    from sofa_fl.methods.method import Method

Numbers = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Assigned:
    """The node that a new client is assigned to, and its model.

    Attributes:
        node: The number of a cluster, or `client:3` if the new client gets the model of client 3.
        path: The nodes from the root to this node.
        clients: The clients below the node; the model assumes their class mix.
        model: A network that takes inputs in the form that the run had them.
    """

    node: str
    path: tuple[int, ...]
    clients: tuple[int, ...]
    model: Whole


def assign(
    run: Path | str,
    x: ArrayLike,
    y: ArrayLike | None = None,
    *,
    file: Path | str | None = None,
    network: NetworkFactory | None = None,
    method: Method[Any] | None = None,
) -> Assigned:
    """Assign a client that was not in a run to a node, by its inputs, and return its model.

    Inputs alone cannot distinguish clients that see the same things but label them differently;
    pass labels if labels may differ.

    Args:
        run: The run folder.
        x: The client's inputs, in the form that the run had them; a hundred are usually enough.
        y: Their labels or targets, if they are known.
        file: Where to write the model, in a format of `export`.
        network: The function that creates the network, if one was passed to the run.
        method: The method, if an instance was passed to the run.
    """
    kind = None if file is None else format_of(Path(file))
    opened = open_run(Path(run), network, method)
    inputs, stored = opened.check_inputs(x), _stored(opened)
    if not len(inputs):
        raise DataError("a client is assigned by its inputs, so at least one is needed, got 0")
    below, models = candidates(opened, stored.clients)
    sizes = dict(zip(stored.clients, stored.sizes))
    priors = {node: mean_prior(opened, clients, sizes) for node, clients in below.items()}
    if y is None:
        node = by_inputs(_as_seen(opened, inputs), below, stored)
    else:
        losses = {
            node: sample_losses(outputs_of(opened.whole(as_vector(model), priors[node]), inputs), y)
            for node, model in models.items()
        }
        node = by_losses(losses, {node: len(clients) for node, clients in below.items()})
    vector, prior = as_vector(models[node]), priors[node]
    name = f"client:{node}" if node in stored.clients else str(int(node))
    if kind is not None and file is not None:
        opened.write(Path(file), kind, name, vector, prior)
    path = tuple(map(int, opened.view.tree.path(node)))
    return Assigned(name, path, below[node], opened.whole(vector, prior))


def candidates(
    opened: OpenRun, clients: tuple[int, ...]
) -> tuple[dict[NodeId, tuple[int, ...]], dict[NodeId, Model]]:
    """The nodes that a newcomer can be assigned to: the clients below each, and its model."""
    view, known = opened.view, set(clients)
    below: dict[NodeId, tuple[int, ...]] = {}
    models: dict[NodeId, Model] = {}
    for cluster in view.tree.clusters:
        members = tuple(int(c) for c in view.tree.clients_of(cluster) if int(c) in known)
        if cluster in view.models and members:
            below[cluster], models[cluster] = members, view.models[cluster]
    for client in view.tree.clients:
        if client in view.served and int(client) in known:
            below[client], models[client] = (int(client),), view.served[client]
    return below, models


def mean_prior(
    opened: OpenRun, clients: tuple[int, ...], sizes: Mapping[int, int]
) -> tuple[float, ...]:
    """What is added to outputs: the log of how common classes are among clients, by samples."""
    serving = opened.serving
    if not serving.priors.shape[1]:
        return ()
    rows = serving.priors[[serving.clients.index(client) for client in clients]]
    if len(rows) == 1:
        return tuple(rows[0].tolist())
    shares = np.average(np.exp(rows), axis=0, weights=[sizes[client] for client in clients])
    return tuple(np.log(shares).tolist())


def by_inputs(x: Numbers, below: Mapping[NodeId, tuple[int, ...]], stored: MeanInputs) -> NodeId:
    """The node with the nearest mean input, few samples held against it.

    A mean of n samples is off by their variance over n on average; that once more on top (as in
    Akaike's criterion) decides for the node with more samples where inputs do not tell them apart.
    """
    if not stored.means.shape[1]:
        raise RunError(
            "the run stored no mean inputs of its clients, because it is a deployment or was made "
            "by an older version; pass labels with y to assign a client by losses"
        )
    own = mean_input(x, stored.step)
    spread = float(x.reshape(len(x), -1)[:, :: stored.step].var(axis=0).sum())
    rows = {client: row for row, client in enumerate(stored.clients)}
    distances = {}
    for node, clients in below.items():
        at = [rows[client] for client in clients]
        weights = np.array(stored.sizes)[at]
        gap = own - np.average(stored.means[at], axis=0, weights=weights)
        distances[node] = float(gap @ gap) + spread / float(weights.sum())
    return min(distances, key=distances.__getitem__)


def by_losses(losses: Mapping[NodeId, Numbers], num_clients: Mapping[NodeId, int]) -> NodeId:
    """The largest node that loses no more than the best, within one standard error.

    The error is that of the difference, sample by sample; a single sample has none.
    """
    means = {node: float(each.mean()) for node, each in losses.items()}
    best = min(means, key=means.__getitem__)

    def is_as_good(node: NodeId) -> bool:
        gap = losses[node] - losses[best]
        error = float(gap.std(ddof=1)) / len(gap) ** 0.5 if len(gap) > 1 else 0.0
        return float(gap.mean()) <= error

    good = [node for node in losses if is_as_good(node)]
    return max(good, key=lambda node: (num_clients[node], -means[node]))


def sample_losses(outputs: NDArray[np.float32], y: ArrayLike) -> Numbers:
    """The loss of every sample: cross-entropy for labels, squared error for other targets."""
    targets = np.asarray(y)
    if len(targets) != len(outputs):
        raise DataError(
            f"there must be one label for each of the {len(outputs)} inputs, got {len(targets)}"
        )
    if targets.dtype.kind == "f":
        gap = outputs - targets.reshape(outputs.shape)
        return np.asarray((gap**2).mean(axis=1))
    if targets.min() < 0 or targets.max() >= outputs.shape[1]:
        raise DataError(
            f"labels must be from 0 to {outputs.shape[1] - 1}, got {targets.min()} to "
            f"{targets.max()}"
        )
    out, labels = torch.from_numpy(outputs), torch.from_numpy(targets.astype(np.int64))
    return np.asarray(torch.nn.functional.cross_entropy(out, labels, reduction="none"))


def _as_seen(opened: OpenRun, inputs: NDArray[Any]) -> Numbers:
    scale, shift = opened.serving.scale, opened.serving.shift
    return inputs.astype(np.float64) * scale + shift


def _stored(opened: OpenRun) -> MeanInputs:
    try:
        return checkpoint.load(opened.checkpoint, "inputs", MeanInputs)
    except DamagedError:  # of an older version: the checkpoint itself was checked before
        clients = opened.serving.clients
        nothing = np.zeros((len(clients), 0), dtype=np.float32)
        return MeanInputs(clients, (1,) * len(clients), 1, nothing)
