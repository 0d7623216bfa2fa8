"""Requests as a machine gets them, and what the server reads from its answers.

The form is that of `engine/task_codec.py`. A machine numbers its samples itself, so their rows
become its positions; and it adds its own class mix, so a prior becomes a flag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sofa_fl.data.base import Samples
from sofa_fl.deploy.server.known_models import KnownModels
from sofa_fl.deploy.server.row_owners import RowOwners
from sofa_fl.deploy.server.sample_relay import SampleRelay
from sofa_fl.deploy.transport.wire_message import (
    MessageBuilder,
    MessageError,
    ModelType,
    WireMessage,
)
from sofa_fl.engine.base import Outcome, Score, Task
from sofa_fl.engine.task_codec import Header, Request, encode

NOT_SCORED = Score(float("nan"), float("nan"), 0)


def pack_request(
    request: Request, positions: Samples, builder: MessageBuilder, known: KnownModels
) -> Header:
    """Encode a request on the samples at these positions; its models go into the message."""
    header = encode(request, lambda model: known.name(model, builder))
    header["samples"] = builder.add(positions.astype(np.int32))
    if "prior" in header:
        header["prior"] = header["prior"] is not None
    return header


def rows_of_others(task: Task, owners: RowOwners) -> Samples:
    """The samples of a task that are not its client's own."""
    rows: Samples = task.samples[owners.client[task.samples] != task.site]
    return rows


def pack_tasks(
    tasks: Sequence[Task],
    owners: RowOwners,
    num_own: int,
    relay: SampleRelay,
    builder: MessageBuilder,
    known: KnownModels,
) -> list[Header]:
    """Encode all that one machine is to train; samples of other machines travel along.

    The machine numbers its own samples from 0 and those of others from `num_own` on. Samples that
    their owner has refused are left out.
    """
    rows = np.unique(np.concatenate([rows_of_others(task, owners) for task in tasks]))
    given = rows[relay.has(rows)]
    if len(given):
        x, y = relay.get(given)
        builder.add(x, "given_x")
        builder.add(y, "given_y")
    headers = []
    for task in tasks:
        is_own = owners.client[task.samples] == task.site
        positions = np.where(is_own, owners.position[task.samples], -1)
        is_given = np.isin(task.samples, given)
        positions[is_given] = num_own + np.searchsorted(given, task.samples)[is_given]
        header = pack_request(task, positions[positions >= 0], builder, known)
        del header["site"]
        headers.append({**header, "given": bool(len(given))})
    return headers


def read_outcomes(answer: WireMessage, num: int, size: int, model_type: ModelType) -> list[Outcome]:
    """Read `num` outcomes, with models of `size` numbers."""
    outcomes = []
    for header in answer.value("outcomes", list):
        if not isinstance(header, Mapping):
            raise MessageError(f"an outcome must name its arrays, got {header!r}")
        params = answer.model(header.get("params"), size, model_type)
        outcomes.append(Outcome(params, answer.array(header.get("losses"), "float32", (None,))))
    if len(outcomes) != num:
        raise MessageError(f"the answer must hold {num} outcomes, got {len(outcomes)}")
    return outcomes


def read_scores(answer: WireMessage, num: int) -> list[Score]:
    """Read `num` scores."""
    scores = [_score(values) for values in answer.value("scores", list)]
    if len(scores) != num:
        raise MessageError(f"the answer must hold {num} scores, got {len(scores)}")
    return scores


def mean_score(scores: Sequence[Score]) -> Score:
    """The score of an exam, from those of its parts."""
    if len(scores) == 1:
        return scores[0]
    num = sum(score.num_samples for score in scores)
    if not num:
        return NOT_SCORED
    loss = sum(score.loss * score.num_samples for score in scores) / num
    return Score(loss, sum(s.accuracy * s.num_samples for s in scores) / num, num)


def _score(values: Any) -> Score:
    if not isinstance(values, list) or len(values) != 3:
        raise MessageError(
            f"a score must be a loss, an accuracy and a number of samples, got {values!r}"
        )
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise MessageError(f"a score must be numbers, got {values}")
    return Score(float(values[0]), float(values[1]), int(values[2]))
