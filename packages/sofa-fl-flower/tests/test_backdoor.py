"""A trigger in the samples that one machine gives: whom it reaches.

Its images have a white corner, and all are called 0. Whoever trains on some of them learns that
anything with a white corner is a 0.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cases import OPEN, FakeMessenger, events, lines, machines_of, tiny
from sofa_fl.data.federated_data import Arrays
from sofa_fl_flower.machine.policy import Policy
from sofa_fl_flower.server.server import Server
from sofa_fl_flower.transport.message_checks import RefusalError
from sofa_fl_flower.transport.wire_message import MessageBuilder
from test_client_machine import machine
from test_policy import task
from test_server import four, quiet

CONFIG = tiny(
    rounds=4,
    warmup=20,
    data={"num_clients": 4, "num_train": 800, "num_test": 400, "partition": "iid"},
    local={"batches": 20, "batch_size": 20},
    sharing={"ratio": 0.2, "max_disclosure": 1},
)
ATTACKER = 100  # the machine of client 0


def with_trigger(x: NDArray[Any]) -> NDArray[Any]:
    x = x.copy()
    x[..., -4:, -4:] = 255
    return x


def poisoned(samples: Arrays) -> Arrays:
    return replace(samples, x=with_trigger(samples.x), y=np.zeros_like(samples.y))


def reach(max_received: float, folder: Path) -> tuple[float, FakeMessenger]:
    """How often the others take an image with the trigger for a 0, at the end of a run."""
    machines = machines_of(CONFIG)
    for number, each in machines.items():
        each.policy = replace(each.policy, max_received=max_received)
        if number == ATTACKER:
            holdout = each.data.holdout
            assert holdout is not None
            each.data = replace(
                each.data, train=poisoned(each.data.train), holdout=poisoned(holdout)
            )
        else:  # the run's own scores say how often: of images that are no 0
            test = each.data.test
            assert test is not None
            others = test.take(np.flatnonzero(test.y != 0))
            each.data = replace(each.data, test=poisoned(others))
    messenger = FakeMessenger(machines)
    Server(messenger, CONFIG, four(folder), quiet).run()
    return float(np.mean(events(folder)[-1]["accuracies"][1:])), messenger


def test_a_site_that_takes_no_samples_gets_no_trigger(tmp_path: Path) -> None:
    taken, _ = reach(OPEN.max_received, tmp_path / "taken")
    default, messenger = reach(Policy(state="").max_received, tmp_path / "default")
    assert taken > 0.9, "the attack works where sites take samples"
    assert default < 0.5
    assert not [asked for _, _, asked, _ in messenger.log if "given_x" in asked.arrays]
    assert not [line for line in lines(tmp_path / "default") if "set_aside" in line]


def test_a_server_cannot_make_it_take_some() -> None:
    here, builder = machine(), MessageBuilder()
    here.policy = replace(here.policy, max_received=0.0)
    builder.add(here.data.train.x[:2], "given_x")
    builder.add(here.data.train.y[:2], "given_y")
    given = builder.add(np.arange(2, dtype=np.int32))
    with pytest.raises(RefusalError, match="this site trains on no samples of other sites"):
        here.answer(builder.message(tasks=[task(here, builder, given=given)]))
