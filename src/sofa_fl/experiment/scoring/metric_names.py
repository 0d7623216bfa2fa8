"""What the clients' scores are called: the one place that knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ACCURACY = "accuracy"
R2 = "r2"
_NAMES = {ACCURACY: "accuracy", R2: "R²"}


def metric_of(record: Mapping[str, Any]) -> str:
    """By what an event or a summary scores: `accuracy`, or in regression `r2`."""
    return str(record.get("metric", ACCURACY))


def score_name(metric: str) -> str:
    """What scores are called in a sentence: `accuracy`, `R²`; another version may have more."""
    return _NAMES.get(metric, "score")
