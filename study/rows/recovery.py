"""How a run recovers from a change: its level before, the time to recover, means after.

Rounds are counted from the change: 1 is the first with the new data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from study.rows.row_files import Row

POINT = 0.01
AGREES = 0.95  # the adjusted Rand index at which a tree counts as the truth
TREE_ROUNDS, LEVEL_ROUNDS = 3, 5  # allowed for recovery
NEWCOMERS, NEWCOMER_ROUNDS = 0.98, 3  # share of the others' accuracy, and how soon
TINY = 1e-9  # rows are rounded
Rounds = list[int | None]  # per change, the rounds it took, or None for never


def level_before(row: Row) -> float:
    """The mean client in the last round before the first change."""
    return float(row["accuracy"][row["changes"][0] - 1])


def mean_after(row: Row, key: str = "accuracy") -> float:
    """The mean over all rounds since the first change."""
    return fmean(row[key][row["changes"][0] :])


def total_after(row: Row, key: str) -> int:
    return int(sum(row[key][row["changes"][0] :]))


def until(flags: Iterable[bool]) -> int | None:
    """The first round from which all flags are set to the end."""
    flags = list(flags)
    bad = [at for at, is_well in enumerate(flags, start=1) if not is_well]
    first = 1 + max(bad, default=0)
    return first if first <= len(flags) else None


def rounds_to_truth(row: Row) -> Rounds:
    """Rounds until the tree is the truth, and stays so until the next change."""
    return [until(x >= AGREES for x in part) for part in _stages(row, "ari")]


def rounds_to_level(row: Row, level: float) -> Rounds:
    """Rounds until the mean client is within a point of `level`, and stays there."""
    least = level - POINT - TINY
    return [until(x >= least for x in part) for part in _stages(row, "accuracy")]


def newcomers_of(row: Row) -> list[float]:
    """The newcomers' accuracy as a fraction of the others', from the round in which they join."""
    first = row["changes"][0]
    return [new / old for new, old in zip(row["newcomers"][first:], row["old"][first:])]


def is_within(rounds: Rounds, limit: int) -> bool:
    """Whether it took at most `limit` rounds after every change."""
    return all(number is not None and number <= limit for number in rounds)


def told(found: Sequence[Rounds]) -> str:
    """`1`, `1 to 3`, `never` or `2, never in 1 of 5` over seeds; changes are separated by `/`."""
    return " / ".join(_one(numbers) for numbers in zip(*found))


def _one(numbers: Sequence[int | None]) -> str:
    there = [number for number in numbers if number is not None]
    if not there:
        return "never"
    low, high = min(there), max(there)
    text = str(low) if low == high else f"{low} to {high}"
    missing = len(numbers) - len(there)
    return f"{text}, never in {missing} of {len(numbers)}" if missing else text


def _stages(row: Row, key: str) -> list[list[float]]:
    """The rounds from every change to the next, or to the end."""
    starts = row["changes"]
    return [row[key][start:end] for start, end in zip(starts, [*starts[1:], None])]
