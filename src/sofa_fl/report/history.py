"""What a run folder says about a round: as plain values, and as the page draws it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sofa_fl.errors import RunError, TopologyError
from sofa_fl.experiment.storage.events import ACCURACY, Event, edit_from_json, metric_of, remembered
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.report.words import Names, data_title, method_title, tell
from sofa_fl.topology.edits import Edit
from sofa_fl.topology.tree import NodeId, Tree

Plain = dict[str, Any]
Positions = Mapping[int, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A run after one of its rounds; round 0 is the warm-up.

    Attributes:
        run: The run folder.
        method: The name of the method.
        title: The method's name in tables and reports.
        data: The name of the dataset.
        seed: The seed of every random draw.
        round: The number of this round.
        rounds: The total number of rounds of the run, including those to come.
        tree: The tree after the round.
        accuracy: Every client's score on its own test samples; None if it has none.
        mean: The mean score of the clients.
        worst: The lowest score of a client.
        loss: Held-out loss of the nodes that have one: the mean over the clients below the node.
        pool: The number of samples in every cluster's pool.
        edits: The edits of the tree in this round.
        told: The edits in words, one sentence each.
        metric: The name of the score: `accuracy`, or `r2` in regression.
        names: The names of the clients that have one.
    """

    run: Path
    method: str
    title: str
    data: str
    seed: int
    round: int
    rounds: int
    tree: Tree
    accuracy: Mapping[NodeId, float | None]
    mean: float
    worst: float
    loss: Mapping[NodeId, float]
    pool: Mapping[NodeId, int]
    edits: tuple[Edit, ...]
    told: tuple[str, ...]
    metric: str = ACCURACY
    names: Names = field(default_factory=dict)

    def accuracies_below(self, node: NodeId) -> list[float]:
        """The accuracies of a cluster's clients that have one."""
        found = (self.accuracy[client] for client in self.tree.clients_of(node))
        return [accuracy for accuracy in found if accuracy is not None]


def read_round(path: Path, round: int | None = None) -> Round:
    """A round of a run folder, by default the last one recorded; the run may be going on."""
    folder = RunFolder.open(path)
    try:
        config = folder.config()
        before, event, last = _find(folder, round)
        if event is not None:
            return make_round(path, config, before, event)
    except OSError as error:
        raise RunError(f"cannot read the run folder {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError, TopologyError):
        raise RunError(
            f"{path} is damaged: its config.yaml or events.jsonl cannot be read"
        ) from None
    if last is None:
        raise RunError(f"{path} has no recorded round yet: its warm-up is still running")
    raise RunError(f"{path} has rounds 0 to {last}, not {round}")


def read_rounds(path: Path) -> list[Round]:
    """All rounds that a run folder has on record, the warm-up first."""
    folder = RunFolder.open(path)
    config = folder.config()
    rounds: list[Round] = []
    before: Event | None = None
    for event in folder.events():
        if event["event"] == "round":
            rounds.append(make_round(path, config, before, event))
            before = event
    return rounds


def _find(folder: RunFolder, round: int | None) -> tuple[Event | None, Event | None, int | None]:
    """The event of a round, the one before it, and the number of the last round there is."""
    before = found = None
    last: int | None = None
    previous: Event | None = None
    for event in folder.events():
        if event["event"] != "round":
            continue
        if round is None or event["round"] == round:
            before, found = previous, event
        previous, last = event, event["round"]
    return before, found, last


def make_round(path: Path, config: Any, before: Event | None, event: Event) -> Round:
    """A round out of a run's configuration, the event of the round, and the one before it."""
    tree = tree_in(event)
    edits = tuple(edit_from_json(record) for record in event["edits"])
    return Round(
        run=path,
        method=str(config["method"]),
        title=method_title(config),
        data=data_title(config),
        seed=int(config["seed"]),
        round=event["round"],
        rounds=event["rounds"],
        tree=tree,
        accuracy=dict(zip(clients_in(event), event["accuracies"], strict=True)),
        mean=event["client"]["mean"],
        worst=event["client"]["min"],
        loss=mean_losses(event["path_loss"]),
        pool={NodeId(int(node)): int(size) for node, size in event["pools"].items()},
        edits=edits,
        told=tell_edits(edits, before, event),
        metric=metric_of(event),
        names=names_in(event),
    )


def tell_edits(edits: Sequence[Edit], before: Event | None, event: Event) -> tuple[str, ...]:
    """A sentence for each edit of a round, if the round before is known."""
    if before is None or not edits:
        return ()
    return tuple(tell(tuple(edits), tree_in(before), names_in(before) | names_in(event)))


def tree_in(event: Event) -> Tree:
    """The tree after the round of an event."""
    return _tree_of(event["tree"], event.get("clients", range(len(event["accuracies"]))))


@remembered
def _tree_of(parents: Mapping[str, NodeId | None], clients: Iterable[int]) -> Tree:
    parent = {NodeId(int(node)): up for node, up in parents.items()}
    members = tuple(NodeId(client) for client in clients if client in parent)
    return Tree(parent, members, 1 + max(parent))


def clients_in(event: Event) -> list[NodeId]:
    """Those whose accuracies there are; the tree may not know all of them yet."""
    numbers = event.get("clients", range(len(event["accuracies"])))
    return [NodeId(client) for client in numbers]


def names_in(event: Event) -> dict[NodeId, str]:
    """What the clients of a round are called; empty if they have no names."""
    return dict(zip(clients_in(event), map(str, event.get("names", ()))))


def mean_losses(path_loss: Mapping[str, Mapping[str, float | None]]) -> dict[NodeId, float]:
    """The loss of every node's model, the mean over the clients below that measured it."""
    found: dict[NodeId, list[float]] = {}
    for row in path_loss.values():
        for node, loss in row.items():
            if loss is not None and isfinite(loss):
                found.setdefault(NodeId(int(node)), []).append(loss)
    return {node: sum(losses) / len(losses) for node, losses in found.items()}


def frame_of(event: Event, tree: Tree, positions: Positions) -> Plain:
    """What is drawn of a round: lists by client, and by cluster, in the order of the ids given.

    What a run did not record is left out; what is not known of one client is None.
    """
    clients, clusters = list(tree.clients), list(tree.clusters)
    frame: Plain = {
        "clients": clients,
        "up": [tree.parent[client] for client in clients],
        "clusters": clusters,
        "above": [tree.parent[cluster] for cluster in clusters],
    }
    for key, name, digits in (
        ("accuracies", "accuracy", 4),
        ("samples", "samples", 0),
        ("disclosed", "disclosed", 4),
    ):
        if event.get(key):
            values = dict(zip(clients_in(event), event[key]))
            frame[name] = [short(values.get(client), digits) for client in clients]
    if losses := event.get("path_loss"):
        frame["losses"] = [_along(tree, client, losses.get(str(client), {})) for client in clients]
        means = mean_losses(losses)
        frame["loss"] = [short(means.get(cluster), 4) for cluster in clusters]
    if any((pools := event.get("pools", {})).values()):
        frame["pool"] = [pools.get(str(cluster), 0) for cluster in clusters]
    if shared := event.get("shared"):
        frame["shared"] = [shared.get(str(client), []) for client in clients]
    if positions:
        frame["positions"] = [positions.get(client) for client in clients]
    return frame


def level_losses(tree: Tree, path_loss: Mapping[str, Mapping[str, float | None]]) -> list[Plain]:
    """What each level is good for: its held-out loss, and for how many clients it is the best."""
    losses: dict[int, list[float]] = {}
    best: dict[int, int] = {}
    for row in path_loss.values():
        at = ((tree.level.get(NodeId(int(node))), loss) for node, loss in row.items())
        known = {
            level: loss
            for level, loss in at
            if level is not None and loss is not None and isfinite(loss)
        }
        for level, loss in known.items():
            losses.setdefault(level, []).append(loss)
        if known:
            first = min(known, key=lambda level: (known[level], -level))
            best[first] = best.get(first, 0) + 1
    return [
        {
            "level": level,
            "loss": short(sum(losses[level]) / len(losses[level]), 4),
            "best": best.get(level, 0),
            "of": len(losses[level]),
        }
        for level in sorted(losses)
    ]


def short(value: float | None, digits: int) -> float | int | None:
    """A number with few digits, in as few characters; JSON knows no NaN."""
    if value is None or not isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded


def _along(tree: Tree, client: NodeId, row: Mapping[str, float | None]) -> Sequence[float | None]:
    """The losses of the models that know a client, from the root down."""
    return [short(row.get(str(node)), 4) for node in tree.path(client)]


def align(positions: Positions, before: Positions) -> dict[int, tuple[float, float]]:
    """`positions`, turned or mirrored so that clients are as near as can be to where they were.

    By the clients that are on both (orthogonal Procrustes); distances stay what they are.
    """
    common = [client for client in positions if client in before]
    if len(common) < 2:
        return dict(positions)
    now = np.array([positions[client] for client in common])
    then = np.array([before[client] for client in common])
    left, _, right = np.linalg.svd((now - now.mean(0)).T @ (then - then.mean(0)))
    turned = np.array(list(positions.values())) @ (left @ right)
    digits = [float(f"{value:.4g}") for value in turned.ravel()]
    return dict(zip(positions, zip(digits[::2], digits[1::2])))
