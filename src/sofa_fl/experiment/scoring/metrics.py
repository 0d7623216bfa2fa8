"""How well the clients are served, and how evenly: the paper's fairness table, and per level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import Exam, Prior, Score
from sofa_fl.errors import DataError
from sofa_fl.experiment.scoring.outputs import ClientOutputs
from sofa_fl.experiment.storage.events import R2
from sofa_fl.federation import Federation
from sofa_fl.methods.method import View
from sofa_fl.models.flat import Model, identity
from sofa_fl.seeding import rng_for
from sofa_fl.topology.tree import NodeId, Tree

MANY = 500_000  # predictions of all models together for one number of a summary
FEWEST = 200  # test samples that a model is scored on in any case

Ask = tuple[Model, Samples, Prior | None]


def fairness(accuracies: Sequence[float]) -> dict[str, float]:
    """Mean, spread and worst of the clients' accuracies.

    `std` is the population's, `gap` is max − min, `jain` is Jain's index, and `bottom10` is the
    mean of the worst tenth, at least one client. Clients without a score (NaN) do not count.
    """
    values = np.sort([x for x in accuracies if not np.isnan(x)])
    if not len(values):
        raise DataError(
            "no client can be scored: at least one must have a test sample, and in regression two "
            "with different targets; set more samples aside for scoring"
        )
    squares = len(values) * float((values**2).sum())
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values[0]),
        "gap": float(values[-1] - values[0]),
        "jain": float(values.sum() ** 2 / squares) if squares else 1.0,
        "bottom10": float(values[: max(1, len(values) // 10)].mean()),
    }


class Examiner:
    """Scores models on test samples and remembers the scores of a round."""

    def __init__(self, fed: Federation, outputs: ClientOutputs | None = None) -> None:
        self.fed, self.outputs = fed, outputs
        self._tests: dict[int, Samples] = {}  # by their number
        # By the ids of what was asked, which is held: Python gives ids of the dead to others.
        self._known: dict[object, tuple[Score, Ask]] = {}

    def test_set(self, num_models: int) -> Samples:
        """The whole test set; for very many models a fixed random part of it."""
        size = len(self.fed.data.test)
        num = min(size, max(FEWEST, MANY // max(1, num_models)))
        if num not in self._tests:
            rng = rng_for(self.fed.seed, "test set")
            rows = rng.choice(size, num, replace=False) if num < size else np.arange(size)
            self._tests[num] = np.sort(rows).astype(np.int64)
        return self._tests[num]

    @property
    def needs_outputs(self) -> bool:
        """Whether errors in the targets' units cannot be told by losses.

        The loss is a mean over the values of a target, each of which is scaled for itself.
        """
        scaling = self.fed.data.target_scaling
        return self.outputs is not None and scaling is not None and len(scaling.std) > 1

    def squared_error(self, ask: Ask, score: Score) -> float:
        """The mean squared error of a model in the targets' units; `score` is on the same ask."""
        scaling = self.fed.data.target_scaling
        if self.outputs is not None and self.needs_outputs:
            outputs, targets = self.outputs(*ask, self.fed)
            return float(np.mean((outputs.astype(np.float64) - targets) ** 2))
        return score.loss if scaling is None else score.loss * scaling.std[0] ** 2

    def accuracies(self, asks: Sequence[Ask]) -> list[float]:
        return [score.accuracy for score in self.scores(asks)]

    def scores(self, asks: Sequence[Ask]) -> list[Score]:
        keys = [(identity(model), id(samples), id(prior)) for model, samples, prior in asks]
        new = {key: ask for key, ask in zip(keys, asks) if key not in self._known}
        exams = [Exam(model, samples, "test", prior) for model, samples, prior in new.values()]
        self._known |= zip(new, zip(self.fed.engine.evaluate(exams), new.values()))
        return [self._known[key][0] for key in keys]

    def turn_to(self, fed: Federation) -> None:
        """Score on the samples of another round from now on, and drop all models."""
        self.fed = fed
        self._known.clear()


def client_scores(used: Mapping[NodeId, Model], examiner: Examiner) -> list[Score]:
    """The model of every client that is measured, on the client's own test samples."""
    return examiner.scores(client_asks(used, examiner.fed))


def client_asks(used: Mapping[NodeId, Model], fed: Federation) -> list[Ask]:
    """What to score every client that is measured by: its model, test samples and class mix."""
    rows = fed.stage.clients
    return [(used[c], rows[c].test, fed.priors[c]) for c in fed.measured]


def client_accuracies(used: Mapping[NodeId, Model], examiner: Examiner) -> list[float]:
    """Of every client; NaN for those that are not measured."""
    by_client = dict(zip(examiner.fed.measured, measured_accuracies(used, examiner)))
    return [by_client.get(client, float("nan")) for client in examiner.fed.clients]


def measured_accuracies(used: Mapping[NodeId, Model], examiner: Examiner) -> list[float]:
    """Of the clients that are measured."""
    return [score.accuracy for score in client_scores(used, examiner)]


def regression(used: Mapping[NodeId, Model], examiner: Examiner) -> dict[str, Any]:
    """The metric's name and the error of a regression, in which accuracy is R²; else nothing.

    The error is in the units of the targets. `unscored` are the clients whose test targets are all
    equal: R² is not defined for them.
    """
    fed = examiner.fed
    if fed.data.train.y.dtype.kind != "f":
        return {}
    asks = client_asks(used, fed)
    scores = examiner.scores(asks)
    errors = [examiner.squared_error(a, s) for a, s in zip(asks, scores) if s.num_samples]
    equal = [c for c, s in zip(fed.measured, scores) if s.num_samples and np.isnan(s.accuracy)]
    unscored = {"unscored": equal} if equal else {}
    return {"metric": R2, "rmse": float(np.mean(np.sqrt(errors))), **unscored}


def model_at(tree: Tree, models: Mapping[NodeId, Model], client: NodeId, level: int) -> NodeId:
    """The highest node up to `level` on a client's path that has a model; else the next above."""
    path = [node for node in tree.path(client) if node in models]
    return next((node for node in path if tree.level[node] <= level), path[-1])


def scored_levels(view: View) -> range:
    """The levels that have models; not that of the clients in methods that keep none of them."""
    has_clients = all(client in view.models for client in view.tree.clients)
    return range(0 if has_clients else 1, view.tree.depth + 1)


def by_level(
    view: View, examiner: Examiner, on_level: Callable[[int], None] = lambda _level: None
) -> list[dict[str, Any]]:
    """Accuracy of each level's models, on the clients' own test samples and on all of them.

    A client that has no node on a level is scored by its nearest one below, or else above.
    `on_level` is called before each level.
    """
    tree, models = view.tree, view.models
    rows = []
    for level in scored_levels(view):
        on_level(level)
        at = {client: model_at(tree, models, client, level) for client in tree.clients}
        nodes = list(dict.fromkeys(at.values()))
        used = {c: models[at.get(c, tree.root)] for c in examiner.fed.clients}
        own = client_accuracies(used, examiner)
        on_all = dict(zip(nodes, full_accuracies([models[node] for node in nodes], examiner)))
        rows.append(
            {
                "level": level,
                "num_nodes": len(nodes),
                "client": fairness(own)["mean"],
                "full": float(np.mean([on_all[node] for node in at.values()])),
            }
        )
    return rows


def full_accuracies(
    models: Sequence[Model], examiner: Examiner, priors: Sequence[Prior | None] | None = None
) -> list[float]:
    """The accuracy of every model on the test set, or for very many models on a part of it."""
    rows = examiner.test_set(len(models))
    priors = priors if priors is not None else [None] * len(models)
    return examiner.accuracies([(model, rows, prior) for model, prior in zip(models, priors)])


def mean_curve(curves: Sequence[NDArray[np.float32]]) -> list[float]:
    """The mean of the clients' losses, batch by batch, over the clients that had the batch."""
    longest = max(map(len, curves), default=0)
    steps = [[curve[i] for curve in curves if i < len(curve)] for i in range(longest)]
    return [round(float(np.mean(step)), 6) for step in steps]
