"""An event: the line of `events.jsonl` that it becomes, its scores, and how it writes edits.

Up to `MANY` clients a line is the event itself. Above, it leaves out what has not changed: `same`
names what is as in the line before, and `scores` has the scores of the clients in `measured` alone,
in place of all `accuracies`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import asdict
from functools import wraps
from typing import Any, TypeVar

from sofa_fl.topology.edits import Edit, Graft, Join, Leave, Merge, Prune, Split

Event = dict[str, Any]
T = TypeVar("T")
MANY = 5_000  # clients above which a round must not cost what all clients together do
KINDS: Mapping[str, type[Edit]] = {
    kind.__name__.lower(): kind for kind in (Graft, Prune, Merge, Split, Join, Leave)
}
ACCURACY = "accuracy"
R2 = "r2"
NAMES = {ACCURACY: "accuracy", R2: "R²"}
LASTING = ("clients", "names", "samples", "tree", "accuracies", "disclosed")


def metric_of(record: Mapping[str, Any]) -> str:
    """The metric of an event or a summary: `accuracy`, or in regression `r2`."""
    return str(record.get("metric", ACCURACY))


def score_name(metric: str) -> str:
    """A metric's name in a sentence: `accuracy`, `R²`, or `score` if it is unknown here."""
    return NAMES.get(metric, "score")


def is_evaluated(event: Mapping[str, Any]) -> bool:
    """Whether the scores of an event were taken in its round, and are not older."""
    return bool(event.get("evaluated", event["round"]) == event["round"])


def are_many(clients: Sized) -> bool:
    return len(clients) > MANY


def to_line(event: Event, before: Event) -> Event:
    """What is written of an event; `before` is the event of the round before, or empty.

    Something is the same if it is the same object: comparing would cost as much as writing.
    """
    if not are_many(event.get("clients", ())):
        return event
    same = [key for key in LASTING if key in event and event[key] is before.get(key)]
    dropped = {*same, "accuracies" if "clients" in same and "scores" in event else "scores"}
    return {**{k: value for k, value in event.items() if k not in dropped}, "same": same}


def from_line(line: Event, before: Event) -> Event:
    """The event that a line stands for; what has not changed is the same object as in `before`."""
    if "same" not in line:
        return line
    event = {key: value for key, value in line.items() if key != "same"}
    event |= {key: before[key] for key in line["same"]}
    if "scores" in line:
        known = dict(zip(before["clients"], before["accuracies"]))
        known |= zip(event["measured"], line["scores"])
        event["accuracies"] = list(known.values())
    return event


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """Remember the last result of a function, if its first argument has many entries.

    The arguments of the next call are compared by identity, so they must not be changed.
    """
    last: list[tuple[tuple[Any, ...], T]] = []

    @wraps(function)
    def call(*args: Any) -> T:
        if not are_many(args[0]):
            return function(*args)
        if not last or any(a is not b for a, b in zip(last[0][0], args, strict=True)):
            last[:] = [(args, function(*args))]
        return last[0][1]

    return call


def count_edits(edits: Iterable[Edit]) -> dict[str, int]:
    """How many there are of each kind."""
    counts = Counter(type(edit).__name__.lower() for edit in edits)
    return {name: counts[name] for name in KINDS}


def edit_to_json(edit: Edit) -> dict[str, object]:
    """An edit as plain values: `{"edit": "graft", "node": 3, "onto": 21}`."""
    return {"edit": type(edit).__name__.lower(), **asdict(edit)}


def edit_from_json(record: Mapping[str, Any]) -> Edit:
    """The edit that `edit_to_json` wrote (JSON's lists become tuples again)."""
    return KINDS[record["edit"]](**{k: _tuples(v) for k, v in record.items() if k != "edit"})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
