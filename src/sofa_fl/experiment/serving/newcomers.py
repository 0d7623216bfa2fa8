"""A client that no run has seen: where in the tree it belongs, and the model to serve it.

Without labels, the newcomer goes to the node whose mean input is nearest to its own. With some
labels, it goes to the largest cluster whose model loses no more on them than the best one does, as
far as they can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sofa_fl.data.columns import (
    Table,
    are_blank,
    column_names,
    column_of,
    is_table,
    read_targets,
    table_name,
    target_column,
)
from sofa_fl.data.preprocess import Preprocessing
from sofa_fl.errors import DataError, RunError
from sofa_fl.experiment.scoring.outputs import Whole, outputs_of
from sofa_fl.experiment.serving.model_files import OpenRun, format_of, open_run
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.disk import DamagedError
from sofa_fl.experiment.storage.saving import MeanInputs, Serving
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
        model: A network that takes raw inputs, as `predict` does.
        by: What decided: `labels` or `inputs`.
    """

    node: str
    path: tuple[int, ...]
    clients: tuple[int, ...]
    model: Whole
    by: Literal["inputs", "labels"] = "inputs"


def assign(
    run: Path | str,
    x: ArrayLike | Table,
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
        x: The client's raw inputs, as `predict` takes them; a hundred are usually enough. If the
            run's data were tables, this may be a table with the same columns, in any order. If it
            has the target's column too, the rows in which that is not blank are labelled.
        y: Their labels or targets, if they are known.
        file: Where to write the model, in a format of `export`.
        network: The function that creates the network, if one was passed to the run.
        method: The method, if an instance was passed to the run.
    """
    kind = None if file is None else format_of(Path(file))
    opened = open_run(Path(run), network, method)
    first = opened.serving.preprocessing
    labelled = slice(None)
    if first is not None and first.columns and is_table(x):
        target = check_columns(x, first)
        if y is None and target:
            labelled, y = labels_in(x, target, first)
    inputs, stored = opened.check_inputs(x), _stored(opened)
    if not len(inputs):
        raise DataError("a client is assigned by its inputs, so at least one is needed, got 0")
    seen = _as_seen(opened, inputs)
    below, models = candidates(opened, stored.clients)
    sizes = dict(zip(stored.clients, stored.sizes))
    priors = {node: mean_prior(opened, clients, sizes) for node, clients in below.items()}
    if y is None:
        node = by_inputs(seen, below, stored)
    else:
        targets, scaling = check_targets(y, opened.serving), opened.serving.target_scaling
        known = inputs[labelled]
        losses = {
            node: sample_losses(
                outputs_of(opened.whole(as_vector(model), priors[node]), known),
                targets,
                (1.0,) if scaling is None else scaling.std,
            )
            for node, model in models.items()
        }
        node = by_losses(losses, {node: len(clients) for node, clients in below.items()})
    vector, prior = as_vector(models[node]), priors[node]
    name = f"client:{node}" if node in stored.clients else str(int(node))
    if kind is not None and file is not None:
        opened.write(Path(file), kind, name, vector, prior)
    path = tuple(map(int, opened.view.tree.path(node)))
    by: Literal["inputs", "labels"] = "inputs" if y is None else "labels"
    return Assigned(name, path, below[node], opened.whole(vector, prior), by)


def check_columns(table: Table, first: Preprocessing) -> str:
    """The name of the target's column, empty if the table has none.

    Raises if a column is missing, or is none that the run's tables had: it may be a misspelt one.
    """
    names = column_names(table)
    target = target_column(names, first.target or "y")
    wanted = [column.name for column in first.columns]
    for name in wanted:
        column_of(table, name)
    if strange := [name for name in names if name not in {*wanted, target, *first.unused}]:
        goal = f" and the target {first.target!r}" if first.target else ""
        raise DataError(
            f"{table_name(table)} has a column {strange[0]!r} that the run does not know; it knows "
            f"{', '.join(wanted)}{goal}; rename or remove it"
        )
    return target


def labels_in(table: Table, target: str, first: Preprocessing) -> tuple[Any, NDArray[Any] | None]:
    """Which rows of a table have a label, and their labels; None if all are blank."""
    cells = np.asarray(column_of(table, target))
    labelled = ~are_blank(cells)
    if not labelled.any():
        return slice(None), None
    targets = read_targets({target: cells[labelled]}, first.target or target)
    return labelled, targets.astype(str) if first.classes else targets


def check_targets(y: ArrayLike, serving: Serving) -> NDArray[Any]:
    """Targets as models are compared on them: floats in a regression, otherwise class numbers."""
    targets = np.asarray(y)
    first = serving.preprocessing
    if targets.dtype.kind in "OUS" and first is not None and first.classes:
        words = targets.astype(str).tolist()
        if strange := sorted(set(words) - set(first.classes)):
            known = ", ".join(first.classes)
            raise DataError(f"the label {strange[0]!r} is none of the run's classes: {known}")
        return np.array([first.classes.index(word) for word in words], dtype=np.int64)
    if targets.dtype.kind not in "biuf":
        raise DataError(f"labels must be numbers, got {targets.dtype}")
    is_regression = serving.target_scaling is not None or (
        targets.dtype.kind == "f" and not serving.priors.shape[1]
    )
    if is_regression:
        return targets.astype(np.float64)
    if not (targets == np.floor(targets)).all():
        raise DataError("labels must be whole numbers, because the run is a classification")
    return targets.astype(np.int64)


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


def sample_losses(
    outputs: NDArray[np.float32], y: ArrayLike, std: Sequence[float] = (1.0,)
) -> Numbers:
    """The loss of every sample: cross-entropy for labels, squared error for other targets.

    `std` has the standard deviations of the targets, in which errors are measured.
    """
    targets = np.asarray(y)
    if len(targets) != len(outputs):
        raise DataError(
            f"there must be one label for each of the {len(outputs)} inputs, got {len(targets)}"
        )
    if targets.dtype.kind == "f":
        gap = (outputs - targets.reshape(outputs.shape)) / np.array(std)
        return np.asarray((gap**2).mean(axis=1))
    if targets.min() < 0 or targets.max() >= outputs.shape[1]:
        raise DataError(
            f"labels must be from 0 to {outputs.shape[1] - 1}, got {targets.min()} to "
            f"{targets.max()}"
        )
    out, labels = torch.from_numpy(outputs), torch.from_numpy(targets.astype(np.int64))
    return np.asarray(torch.nn.functional.cross_entropy(out, labels, reduction="none"))


def _as_seen(opened: OpenRun, inputs: NDArray[Any]) -> Numbers:
    """Inputs as the network sees them, and as the run's mean inputs were computed."""
    serving = opened.serving
    ready = inputs if serving.preprocessing is None else serving.preprocessing.apply(inputs)
    seen: Numbers = ready.astype(np.float64) * serving.scale + serving.shift
    if not np.isfinite(seen).all():
        raise DataError("inputs must be finite; a blank (NaN) needs a run whose data were tables")
    return seen


def _stored(opened: OpenRun) -> MeanInputs:
    try:
        return checkpoint.load(opened.checkpoint, "inputs", MeanInputs)
    except DamagedError:  # of an older version: the checkpoint itself was checked before
        clients = opened.serving.clients
        nothing = np.zeros((len(clients), 0), dtype=np.float32)
        return MeanInputs(clients, (1,) * len(clients), 1, nothing)
