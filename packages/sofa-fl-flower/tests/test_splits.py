"""No message names rows: a machine evaluates the whole of a split, whatever part is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from sofa_fl.data.federated_data import ClientData, Samples, SplitName
from sofa_fl.engine.base import Exam
from sofa_fl.errors import RunError
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.server.task_messages import split_at
from sofa_fl_flower.transport.wire_message import WireMessage
from test_fuzz import MACHINE, OneAnswer, engine_with, machine

ROWS = ClientData(train=np.arange(6), holdout=np.arange(6, 9), test=np.arange(4))


@pytest.mark.parametrize(
    ("positions", "split", "found"),
    [
        (np.arange(6), "train", "train"),
        (np.array([0, 2, 5]), "train", "train"),  # as SHAPE does with few held-out samples
        (np.arange(6, 9), "train", "holdout"),
        (np.array([7]), "train", "holdout"),
        (np.arange(4), "test", "test"),
    ],
)
def test_some_of_a_split_are_the_whole_of_it(
    positions: Samples, split: SplitName, found: str
) -> None:
    assert split_at(positions, ROWS, split) == found


@pytest.mark.parametrize("positions", [np.array([5, 6]), np.arange(9), np.arange(0)])
def test_parts_of_two_splits_are_refused(positions: Samples) -> None:
    with pytest.raises(RunError, match="was asked for both or none"):
        split_at(positions, ROWS, "train")


def test_a_client_without_held_out_samples_has_an_empty_split() -> None:
    none = ClientData(train=np.arange(6), holdout=np.arange(0), test=np.arange(0))
    assert split_at(np.arange(0), none, "train") == "holdout"
    assert split_at(np.arange(0), none, "test") == "test"


class Truthful(OneAnswer):
    """A messenger of one machine that answers as machines do."""

    def send(
        self, messages: Mapping[int, WireMessage], kind: str, seconds: float
    ) -> dict[int, str]:
        self.answer = machine().answer(messages[MACHINE])
        return super().send(messages, kind, seconds)


def test_the_score_of_some_of_a_split_is_that_of_all_of_it(tmp_path: Path) -> None:
    """The server set such machines aside: a score must be on as many samples as were asked for."""
    engine = engine_with(Truthful(), tmp_path)
    rows, model = engine.roster.members[NodeId(0)].rows, engine.initial(0)
    some, whole = engine.evaluate(
        [Exam(model, rows.train[::3], "train"), Exam(model, rows.train, "train")]
    )
    assert some == whole
    assert some.num_samples == len(rows.train)
