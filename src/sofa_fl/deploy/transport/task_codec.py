"""Tasks as they are asked of a node, and what is read of its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sofa_fl.data.base import Samples
from sofa_fl.deploy.machine.model_cache import Kept
from sofa_fl.deploy.server.roster import Index
from sofa_fl.deploy.server.sample_relay import Lending
from sofa_fl.deploy.transport.pull_codec import pack_pulls
from sofa_fl.deploy.transport.wire import GarbageError, Packer, Parcel, Transport
from sofa_fl.engine.base import Outcome, Score, Task

NOT_SCORED = Score(float("nan"), float("nan"), 0)


def foreign_rows(task: Task, index: Index) -> Samples:
    """The samples of a task that are not its client's."""
    rows: Samples = task.samples[index.owner[task.samples] != task.site]
    return rows


def pack_tasks(
    tasks: Sequence[Task],
    index: Index,
    size: int,
    lending: Lending,
    num_trainable: int,
    packer: Packer,
    kept: Kept,
) -> list[dict[str, Any]]:
    """All that a node is to train; samples of others travel along.

    A node numbers its own samples from 0 and those it is given from `size` on. What others did
    not give is left out.
    """
    rows = np.unique(np.concatenate([foreign_rows(task, index) for task in tasks]))
    given = rows[lending.has(rows)]
    if len(given):
        x, y = lending.get(given)
        packer.add(x, "given_x")
        packer.add(y, "given_y")
    specs = []
    for task in tasks:
        own = index.owner[task.samples] == task.site
        place = np.where(own, index.position[task.samples], -1)
        is_given = np.isin(task.samples, given)
        place[is_given] = size + np.searchsorted(given, task.samples)[is_given]
        specs.append(
            {
                "start": kept.name(task.start, packer),
                "rows": packer.add(place[place >= 0].astype(np.int32)),
                "given": bool(len(given)),
                "batches": task.batches,
                "seed": task.seed,
                "pull": pack_pulls(task.pulls, num_trainable, packer),
                "pace": task.pace,
                "prior": task.prior is not None,
            }
        )
    return specs


def read_outcomes(answer: Parcel, num: int, size: int, transport: Transport) -> list[Outcome]:
    """So many outcomes, with models of `size` numbers."""
    found = []
    for spec in answer.value("outcomes", list):
        if not isinstance(spec, Mapping):
            raise GarbageError("an outcome must name its arrays")
        params = answer.model(spec.get("params"), size, transport)
        found.append(Outcome(params, answer.array(spec.get("losses"), "float32", (None,))))
    if len(found) != num:
        raise GarbageError(f"{num} outcomes expected, got {len(found)}")
    return found


def read_scores(answer: Parcel, num: int) -> list[Score]:
    """So many scores."""
    found = [_score(values) for values in answer.value("scores", list)]
    if len(found) != num:
        raise GarbageError(f"{num} scores expected, got {len(found)}")
    return found


def together(scores: Sequence[Score]) -> Score:
    """One score of the parts of an exam."""
    if len(scores) == 1:
        return scores[0]
    num = sum(score.num_samples for score in scores)
    if not num:
        return NOT_SCORED
    loss = sum(score.loss * score.num_samples for score in scores) / num
    return Score(loss, sum(s.accuracy * s.num_samples for s in scores) / num, num)


def _score(values: Any) -> Score:
    if not isinstance(values, list) or len(values) != 3:
        raise GarbageError("a score must be a loss, an accuracy and a number of samples")
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise GarbageError(f"a score must be numbers, got {values}")
    return Score(float(values[0]), float(values[1]), int(values[2]))
