"""The names of the clients' scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ACCURACY = "accuracy"
R2 = "r2"
_NAMES = {ACCURACY: "accuracy", R2: "R²"}


def metric_of(record: Mapping[str, Any]) -> str:
    """The metric of an event or a summary: `accuracy`, or in regression `r2`."""
    return str(record.get("metric", ACCURACY))


def score_name(metric: str) -> str:
    """A metric's name in a sentence: `accuracy`, `R²`, or `score` if it is unknown here."""
    return _NAMES.get(metric, "score")


def is_evaluated(event: Mapping[str, Any]) -> bool:
    """Whether the scores of an event were taken in its round, and are not older."""
    return bool(event.get("evaluated", event["round"]) == event["round"])
