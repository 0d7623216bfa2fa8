"""A round as the page shows it: the tree and all that is known of each client and cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from sofa_fl.experiment.storage.events import Event
from sofa_fl.report.history import clients_in
from sofa_fl.topology.tree import NodeId, Tree

Plain = dict[str, Any]
Positions = Mapping[int, tuple[float, float]]


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


def levels_of(tree: Tree, path_loss: Mapping[str, Mapping[str, float | None]]) -> list[Plain]:
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


def mean_losses(path_loss: Mapping[str, Mapping[str, float | None]]) -> dict[int, float]:
    """The loss of every node's model, the mean over the clients below that measured it."""
    found: dict[int, list[float]] = {}
    for row in path_loss.values():
        for node, loss in row.items():
            if loss is not None and isfinite(loss):
                found.setdefault(int(node), []).append(loss)
    return {node: sum(losses) / len(losses) for node, losses in found.items()}


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
