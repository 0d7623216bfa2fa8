"""What of a round is one number each: what trackers are given."""

from __future__ import annotations

from collections import Counter

import numpy as np

from sofa_fl.experiment.scoring.metric_names import metric_of
from sofa_fl.experiment.storage.run_folder import Event


def scalars(event: Event, before: Event | None = None) -> dict[str, float]:
    """The numbers of a round by name; `before` is the round before, if there was one.

    `bytes` and `seconds` are the round's own, all others what holds after it.
    """
    client, metric = event["client"], metric_of(event)
    values = {f"{metric}/{name}": client[key] for name, key in _SCORES.items()}
    if "rmse" in event:
        values["rmse/mean"] = event["rmse"]
    for name, own in event.get("metrics", {}).items():
        values |= {f"metrics/{name}/{key}": own[key] for key in _RANGE if own[key] is not None}
    if event["local_loss"]:
        values["loss/local"] = float(np.mean(event["local_loss"]))
    if event["path_loss"]:  # the last of a path is a client's own
        best = [min(losses.values()) for losses in event["path_loss"].values() if losses]
        values["loss/held out"] = float(np.mean(best))
    for name, value in event.get("objective", {}).items():
        values[f"objective/{name}"] = value
    parents = {int(node): parent for node, parent in event["tree"].items()}
    values["tree/levels"] = _levels(parents)
    values["tree/clusters"] = len(set(parents.values()) - {None})
    kinds = Counter(edit["edit"] for edit in event["edits"])
    values["edits/all"] = kinds.total()
    values |= {f"edits/{kind}": count for kind, count in sorted(kinds.items())}
    for name, key in _COSTS.items():
        values[name] = event[key] - (before[key] if before is not None else 0)
    if event["disclosed"]:
        values["sharing/disclosed"] = float(np.mean(event["disclosed"]))
    return {name: float(value) for name, value in values.items()}


_SCORES = {"mean": "mean", "worst": "min", "std": "std"}
_RANGE = ("mean", "min", "max")  # of a user's own metrics
_COSTS = {"cost/bytes down": "bytes_down", "cost/bytes up": "bytes_up", "cost/seconds": "seconds"}


def _levels(parents: dict[int, int | None]) -> int:
    """How many clusters the longest path to the root has."""
    depths: dict[int, int] = {}
    for node in parents:
        way: list[int] = []
        up: int | None = node
        while up is not None and up not in depths:
            way.append(up)
            up = parents[up]
        depth = depths[up] if up is not None else -1
        for passed in reversed(way):
            depth += 1
            depths[passed] = depth
    return max(depths.values(), default=0)
