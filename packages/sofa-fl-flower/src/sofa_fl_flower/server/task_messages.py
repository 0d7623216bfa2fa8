"""Requests as a machine gets them, and what the server reads from its answers.

The form is that of `engine/task_codec.py`, but no request names rows: a machine trains on all that
it has to train on and evaluates a whole split. It adds its own class mix, so a prior becomes a
flag.

A resident machine keeps what it trained and the models it was sent since, until it trains again.
The server knows from its answers which these are, so that they need not travel again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sofa_fl.data.federated_data import ClientData, Samples, SplitName
from sofa_fl.engine.base import Exam, Outcome, Score, Task
from sofa_fl.engine.task_codec import Header, Request, encode
from sofa_fl.errors import RunError
from sofa_fl.models.flat import IdentityDict, Mix, Model
from sofa_fl_flower.server.row_owners import RowOwners
from sofa_fl_flower.server.sample_relay import SampleRelay
from sofa_fl_flower.transport.message_checks import MessageError, shown
from sofa_fl_flower.transport.wire_message import MessageBuilder, ModelName, ModelType, WireMessage

LARGEST_SCORE = 1e30  # larger ones could not be added up
NOT_SCORED = Score(float("nan"), float("nan"), 0)


class KnownModels:
    """The models that one machine holds, and what they are called there."""

    def __init__(self) -> None:
        self._names: IdentityDict[str] = IdentityDict()

    def name(self, model: Model, builder: MessageBuilder) -> ModelName:
        """Name a model in a message; it travels along only if the machine cannot compute it."""
        if model in self._names:
            return self._names[model]
        if self._names and isinstance(model, Mix):
            missing = [part for part in model.models if part not in self._names]
            if len(missing) <= 1:  # later messages can use the missing part, but not the mix
                parts = [self.name(part, builder) for part in model.models]
                return [[part, float(weight)] for part, weight in zip(parts, model.weights)]
        return builder.add_model(model)

    def add_sent(self, builder: MessageBuilder, answer: WireMessage) -> None:
        """Add the models of a message that, as the answer says, the machine has cached."""
        cached = answer.header.get("cached")
        if isinstance(cached, Mapping):
            for model, name in builder.models.items():
                self._add(model, cached.get(name))

    def add_trained(self, outcomes: Sequence[Outcome], answer: WireMessage) -> None:
        """Add the models that, as the answer says, the machine has trained and cached."""
        for outcome, header in zip(outcomes, answer.header["outcomes"]):
            self._add(outcome.params, header.get("cached"))

    def _add(self, model: Model, name: object) -> None:
        if isinstance(name, str):
            self._names[model] = name


def pack_request(request: Request, builder: MessageBuilder, known: KnownModels) -> Header:
    """Encode a request without its samples; its models go into the message."""
    header = encode(request, lambda model: known.name(model, builder))
    del header["samples"]
    if "prior" in header:
        header["prior"] = header["prior"] is not None
    return header


def pack_exam(
    exam: Exam, positions: Samples, rows: ClientData, builder: MessageBuilder, known: KnownModels
) -> Header:
    """Encode an exam on the split that has these positions."""
    split = split_at(positions, rows, exam.split)
    return {**pack_request(exam, builder, known), "split": split}


def split_at(positions: Samples, rows: ClientData, split: SplitName) -> str:
    """The split of a client's samples that has these positions.

    No message names rows, so where a method asks for some of a split, the whole of it answers.
    """
    num_train, num_holdout = len(rows.train), len(rows.holdout)
    parts = {
        "train": (0, num_train),
        "holdout": (num_train, num_train + num_holdout),
    }
    if split == "test":
        parts = {"test": (0, len(rows.test))}
    for name, (first, end) in parts.items():
        if len(positions) == end - first == 0 or _lie_within(positions, first, end):
            return name
    raise RunError(
        f"a machine evaluates its {' or its '.join(parts)} samples, but was asked for both or "
        "none; use a method that evaluates one split at a time"
    )


def _lie_within(positions: Samples, first: int, end: int) -> bool:
    return len(positions) > 0 and first <= positions.min() and positions.max() < end


def rows_of_others(task: Task, owners: RowOwners) -> Samples:
    """The samples of a task that are not its client's own."""
    rows: Samples = task.samples[owners.client[task.samples] != task.site]
    return rows


def pack_tasks(
    tasks: Sequence[Task],
    owners: RowOwners,
    own: Samples,
    relay: SampleRelay,
    builder: MessageBuilder,
    known: KnownModels,
) -> list[Header]:
    """Encode all that one machine is to train; samples of other machines travel along.

    A task is on all rows of `own` and, after them, on some of others. Those that their owner has
    refused are left out.
    """
    rows = np.unique(np.concatenate([rows_of_others(task, owners) for task in tasks]))
    given = rows[relay.has(rows)]
    if len(given):
        x, y = relay.get(given)
        builder.add(x, "given_x")
        builder.add(y, "given_y")
    headers = []
    for task in tasks:
        others = task.samples[len(own) :]
        if not np.array_equal(task.samples[: len(own)], own) or np.isin(others, own).any():
            raise RunError(
                "a machine trains on all of its samples, but was asked to train on some of them; "
                "use a method that trains on all of them"
            )
        positions = np.searchsorted(given, others[np.isin(others, given)])
        header = pack_request(task, builder, known)
        del header["site"]
        name = builder.add(positions.astype(np.int32)) if len(positions) else None
        headers.append({**header, "given": name})
    return headers


def read_outcomes(
    answer: WireMessage, tasks: Sequence[Task], size: int, model_type: ModelType
) -> list[Outcome]:
    """Read the outcomes of tasks, with models of `size` numbers."""
    headers = answer.value("outcomes", list)
    if len(headers) != len(tasks):
        raise MessageError(f"the answer must hold {len(tasks)} outcomes, got {len(headers)}")
    outcomes = []
    for header, task in zip(headers, tasks):
        if not isinstance(header, Mapping):
            raise MessageError(f"an outcome must name its arrays, got {shown(repr(header))}")
        params = answer.model(header.get("params"), size, model_type)
        losses = answer.array(header.get("losses"), "float32", (task.batches,))
        outcomes.append(Outcome(params, losses))
    return outcomes


def read_scores(answer: WireMessage, sizes: Sequence[int]) -> list[Score]:
    """Read the scores of exams on `sizes` samples."""
    found = answer.value("scores", list)
    if len(found) != len(sizes):
        raise MessageError(f"the answer must hold {len(sizes)} scores, got {len(found)}")
    return [_score(values, size) for values, size in zip(found, sizes)]


def mean_score(scores: Sequence[Score]) -> Score:
    """The score of an exam, from those of its parts."""
    if len(scores) == 1:
        return scores[0]
    num = sum(score.num_samples for score in scores)
    if not num:
        return NOT_SCORED
    loss = sum(score.loss * score.num_samples for score in scores) / num
    return Score(loss, sum(s.accuracy * s.num_samples for s in scores) / num, num)


def _score(values: Any, size: int) -> Score:
    if not isinstance(values, list) or len(values) != 3:
        raise MessageError(
            "a score must be a loss, an accuracy and a number of samples, got "
            f"{shown(repr(values))}"
        )
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise MessageError(f"a score must consist of numbers, got {shown(values)}")
    loss, accuracy, num = values
    if num not in (0, size):
        raise MessageError(f"a score must be on {size} samples, got {shown(num)}")
    if loss < 0 or accuracy > 1:
        raise MessageError(
            f"a loss must be at least 0 and an accuracy at most 1, got {shown(values)}"
        )
    if not num or not abs(loss) < LARGEST_SCORE or not abs(accuracy) < LARGEST_SCORE:
        return NOT_SCORED  # a model that has diverged says nothing
    return Score(float(loss), float(accuracy), int(num))
