"""Means over seeds, and differences seed by seed, with 95% intervals by Student's t."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the half-width of its 95% interval, which a single value does not have."""

    mean: float
    half_width: float | None
    num: int


def interval_of(values: Sequence[float]) -> Interval:
    """The mean of some values, and how far off it may be."""
    if len(values) < 2:
        return Interval(mean(values), None, len(values))
    from scipy.stats import t

    width = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return Interval(mean(values), width, len(values))


def by_title(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    """The summaries of every method, in the order in which methods first appear."""
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(str(summary.get("title", summary["method"])), []).append(summary)
    return groups


def paired_differences(summaries: Sequence[Summary]) -> dict[str, Interval]:
    """How each method's mean over its clients differs from the first one's, seed by seed.

    By title; only methods that share two seeds or more with the first.
    """
    (_, found), *others = by_title(summaries).items()
    base = {summary["seed"]: summary["client"]["mean"] for summary in found}
    gaps = {
        title: [s["client"]["mean"] - base[s["seed"]] for s in found if s["seed"] in base]
        for title, found in others
    }
    return {title: interval_of(values) for title, values in gaps.items() if len(values) > 1}
