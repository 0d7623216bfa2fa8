"""What a person should be told about a run: why its tree is flat, and what made it worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sofa_fl.experiment.scoring.metric_names import ACCURACY
from sofa_fl.report.words import number, tally

WORTH_TELLING = 0.01  # by how much a mean must have fallen
FLAT = (
    "The tree is flat: no group of clients has models that differ clearly more from those of "
    "others than among themselves. That is usual where clients differ only in how common their "
    "classes are."
)
Records = Sequence[Mapping[str, Any]]  # events, or what the page has of them


def remarks(records: Records, *, method: str, depth: int, metric: str) -> list[str]:
    """Sentences about a run, from the records of its rounds; often none."""
    if not records:
        return []
    found = [FLAT] if method == "sofa" and depth == 1 and _num_clients(records[-1]) > 2 else []
    fall = decline(records, metric)
    return [*found, fall] if fall else found


def decline(records: Records, metric: str) -> str | None:
    """How far the mean fell since its best round, where most, and after what; None if it did not.

    Edits of a round show in its scores or in those of the next one.
    """
    means = [record["client"]["mean"] for record in records]
    best = max(range(len(means)), key=lambda at: means[at])
    fell = means[best] - means[-1]
    if fell < WORTH_TELLING:
        return None
    steepest = max(range(best + 1, len(means)), key=lambda at: means[at - 1] - means[at])
    size = f"{100 * fell:.1f} points" if metric == ACCURACY else f"by {fell:.2f}"
    since = _name(records[best])
    where = f"most of it in {_name(records[steepest])}"
    cause = _cause(records[steepest], records[steepest - 1])
    return f"The mean fell {size} since {since}, {where}{cause}."


def _cause(record: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    if told := changes_in_words(record.get("data", {})):
        return f", when {told}"
    for one, when in ((record, ""), (before, " of the round before")):
        if edits := tally(edit["edit"] for edit in one["edits"]):
            return f", after {edits}{when}"
    return ", without an edit of the tree"


def changes_in_words(data: Mapping[str, Sequence[int]]) -> str:
    """`the data of 4 clients changed and 2 clients joined`; empty if nothing did."""
    said = {
        "changed": "the data of {} changed",
        "joined": "{} joined",
        "left": "{} left",
    }
    found = {key: number(len(data[key]), "client") for key in said if data.get(key)}
    parts = [said[key].format(clients) for key, clients in found.items()]
    return " and ".join(parts)


def _name(record: Mapping[str, Any]) -> str:
    return f"round {record['round']}" if record["round"] else "the warm-up"


def _num_clients(record: Mapping[str, Any]) -> int:
    return int(record.get("num_clients", len(record.get("accuracies", ()))))
