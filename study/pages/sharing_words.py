"""What was shared, in the words of a heading, and beside it what that disclosed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from study.rows.row_files import Row

DRAWS = 21  # of a run of 20 rounds: the warm-up is followed by one, too


def mean_disclosed(rows: Sequence[Row]) -> float:
    """The share of a client's samples that others have had at the end, on average.

    Rows from before it was recorded drew the ratio again after every round, without a cap.
    """
    return fmean(row.get("disclosed", 1 - (1 - row["sharing"]) ** DRAWS) for row in rows)


def shared(rows: Sequence[Row]) -> str:
    """`0.1 shared every round, 89% disclosed`, of those who share most; empty if nobody does."""
    most = max(row["sharing"] for row in rows)
    told = mean_disclosed([row for row in rows if row["sharing"] == most])
    return f"{most:g} shared every round, {told:.0%} disclosed" if most else ""
