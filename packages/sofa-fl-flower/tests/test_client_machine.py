"""What a machine answers, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cases import OPEN, tiny
from sofa_fl.data.own import from_arrays
from sofa_fl.errors import DataError
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import (
    MachineData,
    as_machine_data,
    example_data,
    fingerprint_of,
    with_holdout,
)
from sofa_fl_flower.machine.policy import Policy
from sofa_fl_flower.machine.site import Site
from sofa_fl_flower.server.roster import DescribedData
from sofa_fl_flower.transport.machine_profile import MachineProfile
from sofa_fl_flower.transport.message_checks import MessageError
from sofa_fl_flower.transport.run_setup import RunSetup
from sofa_fl_flower.transport.wire_message import MessageBuilder, WireMessage, read_mix

CONFIG = tiny()
SETUP = RunSetup(seed=0, local=CONFIG.local, model=CONFIG.model, num_outputs=10)
DATA = example_data(CONFIG.data, 0, 1)


def machine(data: MachineData = DATA, policy: Policy = OPEN) -> ClientMachine:
    return ClientMachine(data, SETUP, policy, Site(b"k" * 32), 1)


def test_a_setup_survives_the_wire() -> None:
    assert RunSetup.from_dict(SETUP.to_dict()) == SETUP


@pytest.mark.parametrize("values", [None, {}, {**SETUP.to_dict(), "local": {"batches": -1}}])
def test_an_invalid_setup_is_refused(values: Any) -> None:
    with pytest.raises(MessageError):
        RunSetup.from_dict(values)


def test_a_setting_of_an_older_server_is_a_sentence() -> None:
    with pytest.raises(MessageError, match=r"local\.final_rate is no longer a setting"):
        RunSetup.from_dict({"local": {"final_rate": 0.3}, "model": {}})


def test_a_machine_describes_itself() -> None:
    profile = MachineProfile.read(machine().hello())
    assert (profile.num_train, profile.number, profile.cap) == (len(DATA.train), 1, 1.0)
    assert profile.format.input == ("uint8", (1, 28, 28))
    assert profile.format.placeholder(5).x.shape == (5, 1, 28, 28)
    assert profile.format.placeholder(5).x.strides == (0, 0, 0, 0), "no memory"
    assert np.array_equal(profile.ids, DATA.ids)  # type: ignore[arg-type]


def test_a_regression_says_how_its_targets_spread() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    data = as_machine_data((from_arrays(x, x[:, :2]), from_arrays(x[:5], x[:5, :2])))
    profile = MachineProfile.read(machine(data, replace(OPEN, holdout=0.1)).hello())
    assert profile.format.is_regression
    assert profile.target_sums is not None
    assert profile.num_train + profile.num_holdout == 50
    assert 0 < profile.num_holdout < 12


def ask(**header: Any) -> WireMessage:
    return MessageBuilder().message(setup=SETUP.to_dict(), **header)


def test_another_version_of_the_messages_is_refused() -> None:
    with pytest.raises(MessageError, match="install the same sofa-fl"):
        machine().answer(WireMessage({"version": 0}))


def test_held_out_samples_are_not_given() -> None:
    here = machine(with_holdout(replace(DATA, holdout=None), 0.5))
    builder = MessageBuilder()
    builder.add(np.arange(len(here.samples), dtype=np.int32), "give")
    answer = here.answer(builder.message(setup=SETUP.to_dict(), give=True))
    assert answer.arrays["gave"].tolist() == list(range(len(here.data.train)))
    assert np.array_equal(answer.arrays["gave_x"], here.data.train.x)


def test_the_same_samples_have_the_same_fingerprint() -> None:
    assert fingerprint_of(DATA) == fingerprint_of(example_data(CONFIG.data, 0, 1))
    assert fingerprint_of(DATA) != fingerprint_of(example_data(CONFIG.data, 0, 2))


@pytest.mark.parametrize("loaded", [None, (1, 2), (DATA.train,)])
def test_what_a_loader_must_return(loaded: Any) -> None:
    with pytest.raises(DataError, match=r"must return \(train, test\)"):
        as_machine_data(loaded)


def test_a_description_knows_no_class() -> None:
    profile = MachineProfile.read(machine().hello())
    format = profile.format
    data = DescribedData(format.placeholder(3), format.placeholder(1), (), 10, fingerprints=("a",))
    assert data.class_counts(np.arange(3)).tolist() == [0] * 10


@pytest.mark.parametrize(
    "change",
    [
        {"num_train": 0}, {"num_train": "x"}, {"num_test": -1}, {"number": -1}, {"number": "1"},
        {"input": ["object", 3]}, {"input": []}, {"target": ["int64", -1]}, {"fingerprint": 3},
        {"scale": None}, {"num_train": 3}, {"num_train": 1 << 62}, {"num_classes": 1 << 40},
        {"input": ["uint8", 1 << 62]}, {"input": ["uint8", *[1] * 50]}, {"identity": ""},
        {"identity": "x" * 99}, {"scale": float("inf")}, {"cap": float("nan")}, {"cap": 1 << 9999},
    ],
)  # fmt: skip
def test_an_invalid_hello_is_refused(change: dict[str, Any]) -> None:
    hello = machine().hello()
    with pytest.raises(MessageError):
        MachineProfile.read(WireMessage({**hello.header, **change}, hello.arrays))


@pytest.mark.parametrize("name", [[], [["a"]], [["a", 1.0, 2.0]], [["a", "b"]], [3], ["ab"]])
def test_an_invalid_mix_is_refused(name: list[Any]) -> None:
    with pytest.raises(MessageError, match="a mix must be pairs"):
        read_mix(name)


@pytest.mark.parametrize(
    "change",
    [
        {"batches": 1.5}, {"seed": None}, {"start": 3}, {"given": "none"},
        {"learning_rate": "fast"}, {"learning_rate": float("nan")}, {"learning_rate": -1e-3},
        {"learning_rate": 2 * CONFIG.local.learning_rate},
        {"batches": 0}, {"batches": 1 << 40}, {"seed": -1},
        {"pulls": {"target": "a0", "weight": float("inf"), "decay": 0.0}}, {"pulls": 3},
        {"pulls": {"target": "a0", "weight": "x", "decay": 0.0}},
        {"pulls": {"weight": 1.0, "decay": 0.0}}, {"part": "neck"}, {"part": None},
    ],
    ids=str,
)  # fmt: skip
def test_an_invalid_task_is_refused(change: dict[str, Any]) -> None:
    here, builder = machine(), MessageBuilder()
    header = {
        "start": builder.add_model(here.learner.initial(0)),
        "given": None, "batches": 1, "seed": 0, "pulls": None, "prior": True,
        "part": "all",
    }  # fmt: skip
    assert len(here.answer(builder.message(tasks=[header])).header["outcomes"]) == 1
    with pytest.raises(MessageError):
        here.answer(builder.message(tasks=[{**header, **change}]))


def test_a_task_may_be_trained_more_slowly_than_configured() -> None:
    """As APFL's mixtures are; it is the training of a run with that rate."""
    slow = replace(SETUP, local=replace(SETUP.local, learning_rate=SETUP.local.learning_rate / 4))
    site, exact = Site(b"k" * 32), replace(OPEN, own_batches=False)

    def trained(setup: RunSetup, **more: Any) -> NDArray[Any]:
        here, builder = ClientMachine(DATA, setup, exact, site, 1), MessageBuilder()
        start = builder.add_model(here.learner.initial(0))
        header = {"start": start, "batches": 2, "seed": 0, "prior": True, **more}
        answer = here.answer(builder.message(tasks=[header]))
        return answer.arrays[answer.header["outcomes"][0]["params"]]

    slowly = trained(SETUP, learning_rate=slow.local.learning_rate)
    np.testing.assert_array_equal(slowly, trained(slow))
    assert not np.array_equal(slowly, trained(SETUP))


@pytest.mark.parametrize("tasks", ["all", [3], {"start": "a0"}])
def test_what_is_no_list_of_tasks_is_refused(tasks: Any) -> None:
    with pytest.raises(MessageError, match="tasks must be a list of mappings"):
        machine().answer(MessageBuilder().message(tasks=tasks))


def test_a_server_cannot_fill_the_memory_with_models() -> None:
    here = machine(policy=replace(OPEN, max_requests=99))
    here.caches_models = True
    for _ in range(3):
        builder = MessageBuilder()
        names = [
            builder.add(np.zeros(len(here.learner.flat.vector), np.float32)) for _ in range(99)
        ]
        exams = [{"params": name, "split": "holdout", "prior": False} for name in names]
        answer = here.answer(builder.message(exams=exams))
    assert len(here.cache._models) == 256
    newest = answer.header["cached"][names[-1]]
    exam = {"params": newest, "split": "holdout", "prior": False}
    assert here.answer(MessageBuilder().message(exams=[exam])).header["scores"][0][2] > 0
