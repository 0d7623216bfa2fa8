"""What a node answers, and what it does not take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sofa_fl.data.own import from_arrays
from sofa_fl.deploy.machine.machine_data import NodeData, held_out, mark_of, node_data, part_of
from sofa_fl.deploy.machine.site import Site
from sofa_fl.deploy.server.described_data import Card, Described
from sofa_fl.deploy.transport.run_setup import Setup
from sofa_fl.deploy.transport.wire import GarbageError, Packer, Parcel, read_mix
from sofa_fl.errors import DataError
from tests.deploy.cases import tiny

CONFIG = tiny()
SETUP = Setup(
    seed=0, holdout=0.1, local=CONFIG.local, model=CONFIG.model, num_outputs=10
)  # fmt: skip
DATA = part_of(CONFIG.data, 0, 1)


def site(data: NodeData = DATA, cap: float = 1.0) -> Site:
    return Site(data, SETUP, cap, 1)


def test_a_setup_survives_the_wire() -> None:
    assert Setup.read(SETUP.plain()) == SETUP


@pytest.mark.parametrize("values", [None, {}, {**SETUP.plain(), "local": {"batches": -1}}])
def test_a_setup_that_is_none_is_garbage(values: Any) -> None:
    with pytest.raises(GarbageError):
        Setup.read(values)


def test_what_a_node_says_of_itself() -> None:
    card = Card.read(site().hello())
    assert (card.num_train, card.number, card.cap) == (len(DATA.train), 1, 1.0)
    assert card.kind.input == ("uint8", (1, 28, 28))
    assert card.kind.stand_in(5).x.shape == (5, 1, 28, 28)
    assert card.kind.stand_in(5).x.strides == (0, 0, 0, 0), "no memory"
    assert np.array_equal(card.ids, DATA.ids)  # type: ignore[arg-type]


def test_a_regression_says_how_its_targets_spread() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    data = node_data((from_arrays(x, x[:, :2]), from_arrays(x[:5], x[:5, :2])))
    card = Card.read(site(data).hello())
    assert card.kind.is_regression
    assert card.target_sums is not None
    assert card.num_train == 45
    assert card.num_holdout == 5


def ask(**header: Any) -> Parcel:
    return Packer().parcel(setup=SETUP.plain(), **header)


def test_a_node_trains_only_on_samples_that_are_there() -> None:
    packer = Packer()
    here = site()
    spec = {
        "start": packer.add_model(here.learner.initial(0)),
        "rows": packer.add(np.array([0, 10_000], dtype=np.int32)),
        "given": False,
        "batches": 1,
        "seed": 0,
        "pulls": [],
        "pace": 1.0,
        "prior": True,
    }
    with pytest.raises(GarbageError, match="numbered from 0"):
        here.answer(packer.parcel(tasks=[spec]))


def test_another_version_of_the_messages_is_refused() -> None:
    with pytest.raises(GarbageError, match="install the same sofa-fl"):
        site().answer(Parcel({"version": 0}))


def test_held_out_samples_are_not_given() -> None:
    here = site(held_out(replace(DATA, holdout=None), 0.5, 0, 1))
    packer = Packer()
    packer.add(np.arange(len(here.own), dtype=np.int32), "give")
    answer = here.answer(packer.parcel(setup=SETUP.plain(), give=True))
    assert answer.arrays["gave"].tolist() == list(range(len(here.data.train)))
    assert np.array_equal(answer.arrays["gave_x"], here.data.train.x)


def test_the_same_samples_have_the_same_mark() -> None:
    assert mark_of(DATA) == mark_of(part_of(CONFIG.data, 0, 1))
    assert mark_of(DATA) != mark_of(part_of(CONFIG.data, 0, 2))


@pytest.mark.parametrize("loaded", [None, (1, 2), (DATA.train,)])
def test_what_a_loader_must_return(loaded: Any) -> None:
    with pytest.raises(DataError, match=r"must return \(train, test\)"):
        node_data(loaded)


def test_a_description_knows_no_class() -> None:
    card = Card.read(site().hello())
    kind = card.kind
    data = Described(kind.stand_in(3), kind.stand_in(1), (), 10, marks=("a",))
    assert data.class_counts(np.arange(3)).tolist() == [0] * 10


@pytest.mark.parametrize(
    "change",
    [
        {"num_train": 0}, {"num_train": "x"}, {"num_test": -1}, {"number": -1}, {"number": "1"},
        {"input": ["object", 3]}, {"input": []}, {"target": ["int64", -1]}, {"mark": 3},
        {"scale": None}, {"num_train": 3},
    ],
)  # fmt: skip
def test_a_hello_that_cannot_be(change: dict[str, Any]) -> None:
    hello = site().hello()
    with pytest.raises(GarbageError):
        Card.read(Parcel({**hello.header, **change}, hello.arrays))


@pytest.mark.parametrize("name", [[], [["a"]], [["a", 1.0, 2.0]], [["a", "b"]], [3], ["ab"]])
def test_a_mix_that_is_none_is_garbage(name: list[Any]) -> None:
    with pytest.raises(GarbageError, match="a mix must be pairs"):
        read_mix(name)
