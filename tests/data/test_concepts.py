"""Data that change: rows for what everybody sees when, and the truth about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sofa_fl.data.concepts import Concept, Phase, Script, perform, turn
from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.data.federated_data import Arrays, FederatedData
from sofa_fl.data.partition import Parts, iid
from sofa_fl.errors import DataError
from tests.engine.cases import NUM_CLASSES, images

SWAPPED = tuple(range(NUM_CLASSES))[::-1]
PLAIN, TURNED, SWAP = Concept(), Concept(90.0), Concept(0.0, SWAPPED)
TRAIN, TEST = images(61, 0), images(31, 1)
# The second client turns and turns back, the third leaves, the last one comes.
SCRIPT: Script = [
    Phase(0, {0: PLAIN, 1: PLAIN, 2: SWAP}),
    Phase(2, {3: TURNED, 0: PLAIN, 1: TURNED, 2: SWAP}),
    Phase(5, {0: PLAIN, 1: PLAIN, 3: TURNED}),
]


def dealt(num_clients: int = 4) -> Parts:
    return iid(len(TRAIN), len(TEST), num_clients=num_clients, seed=0)


def performed(script: Script = SCRIPT, holdout: float = 0.2) -> FederatedData:
    num_clients = 1 + max(client for phase in script for client in phase.concepts)
    parts = dealt(num_clients)
    return perform(script, TRAIN, TEST, parts, num_outputs=NUM_CLASSES, holdout=holdout, seed=0)


def test_a_concept_turns_and_renames_copies() -> None:
    x, y = TRAIN.x.copy(), TRAIN.y.copy()
    seen, called = Concept(180.0, SWAPPED).apply(TRAIN.x, TRAIN.y)
    np.testing.assert_array_equal(seen, np.rot90(x, 2, axes=(-2, -1)))
    np.testing.assert_array_equal(called, NUM_CLASSES - 1 - y)
    np.testing.assert_array_equal(TRAIN.x, x)
    np.testing.assert_array_equal(TRAIN.y, y)
    assert (seen.dtype, called.dtype) == (x.dtype, y.dtype)


def test_stages_are_the_phases() -> None:
    data = performed()
    assert [stage.since for stage in data.stages] == [0, 2, 5]
    assert [list(stage.clients) for stage in data.stages] == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 3]]
    assert len(data.clients) == 4
    assert data.num_outputs == NUM_CLASSES


def test_the_truth_is_who_sees_the_same_and_minus_one_for_who_is_not_there() -> None:
    data = performed()
    assert [stage.truth for stage in data.stages] == [
        ((0, 0, 1, -1),),
        ((0, 2, 1, 2),),
        ((0, 0, -1, 2),),
    ]
    assert data.truth == data.stages[0].truth


@pytest.mark.parametrize("split", ["train", "test"])
def test_everybody_sees_its_own_samples_by_its_concept(split: str) -> None:
    data, parts = performed(), dealt()
    for phase, stage in zip(SCRIPT, data.stages):
        for client, rows in stage.clients.items():
            if split == "train":
                made, old, own = data.train, TRAIN, parts.train[client]
                new = np.sort(np.concatenate([rows.train, rows.holdout]))
            else:
                made, old, own, new = data.test, TEST, parts.test[client], rows.test
            seen, called = phase.concepts[client].apply(old.x[own], old.y[own])
            np.testing.assert_array_equal(made.x[new], seen)
            np.testing.assert_array_equal(made.y[new], called)
    assert (data.train.scale, data.train.shift) == (TRAIN.scale, TRAIN.shift)
    assert data.train.x.dtype == TRAIN.x.dtype


def test_no_row_has_two_owners_or_two_meanings() -> None:
    data = performed()
    owners: dict[int, set[tuple[int, Concept]]] = {}
    for phase, stage in zip(SCRIPT, data.stages):
        for client, own in stage.clients.items():
            for row in (*own.train.tolist(), *own.holdout.tolist()):
                owners.setdefault(row, set()).add((client, phase.concepts[client]))
    assert all(len(who) == 1 for who in owners.values())
    assert sorted(owners) == list(range(len(data.train))), "and none is left over"


def test_a_concept_that_comes_back_has_the_same_rows() -> None:
    first, then, again = (stage.clients[1] for stage in performed().stages)
    assert again is first
    assert not np.isin(first.train, then.train).any()
    one = [stage.clients[0] for stage in performed().stages]
    assert one[0] is one[1] is one[2], "who does not change keeps its rows"


def test_the_same_samples_are_held_out_by_every_concept() -> None:
    """Else what was trained on under one name would be judged on under another."""
    data = performed()
    first, then = (stage.clients[1] for stage in data.stages[:2])
    np.testing.assert_array_equal(
        first.holdout - first.train.min(), then.holdout - then.train.min()
    )
    before, after = data.train.x[first.holdout], data.train.x[then.holdout]
    np.testing.assert_array_equal(turn(before, 90.0), after)
    assert len(first.holdout) == 3
    assert performed(holdout=0.0).stages[0].clients[1].holdout.size == 0


def test_what_a_client_first_has_is_in_the_list_of_all() -> None:
    data = performed()
    assert data.clients[:3] == tuple(data.stages[0].clients.values())
    assert data.clients[3] is data.stages[1].clients[3]


def test_performing_is_repeatable() -> None:
    one, again = performed(), performed()
    np.testing.assert_array_equal(one.train.x, again.train.x)
    for mine, same in zip(one.stages, again.stages):
        assert list(mine.clients) == list(same.clients)
        for client in mine.clients:
            np.testing.assert_array_equal(mine.clients[client].train, same.clients[client].train)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([Phase(0, {0: PLAIN, 2: PLAIN})], r"does not mention clients \[1\]"),
        ([Phase(0, {0: PLAIN, 1: PLAIN, -1: PLAIN})], r"clients \[-1\], which have no rows"),
        ([Phase(1, {0: PLAIN, 1: PLAIN})], "must begin at round 0, got 1"),
        ([Phase(0, {0: PLAIN}), Phase(0, {0: TURNED})], "in increasing rounds, got rounds 0, 0"),
        ([Phase(0, {0: PLAIN, 1: PLAIN}), Phase(3, {})], "the stage of round 3 has none"),
        ([], "at least one client"),
        ([Phase(0, {})], "at least one client"),
        ([Phase(0, {0: Concept(0.0, (1, 0))})], r"each of the 4 classes, got \(1, 0\)"),
        ([Phase(0, {0: Concept(0.0, (1, 0, 2, 4))})], r"each of the 4 classes, got \(1, 0, 2, 4\)"),
    ],
)
def test_scripts_that_make_no_sense(script: Script, message: str) -> None:
    config = DataConfig(num_clients=9, partition="iid", min_samples=1)
    with pytest.raises(DataError, match=message) as error:
        federate(config, 0, (TRAIN, TEST), script)
    assert "\n" not in str(error.value)


def test_an_own_script_takes_the_place_of_scenario_and_number_of_clients() -> None:
    config = DataConfig(num_clients=99, partition="iid", holdout=0.2, min_samples=1)
    data = federate(config, 0, (TRAIN, TEST), SCRIPT)
    assert len(data.clients) == 4
    assert [stage.truth for stage in data.stages] == [s.truth for s in performed().stages]
    for mine, same in zip(data.clients, performed().clients):
        np.testing.assert_array_equal(mine.train, same.train)
    np.testing.assert_array_equal(data.train.x, performed().train.x)


def test_a_script_goes_with_any_partition() -> None:
    for partition in ("dirichlet", "shards", "iid", "groups"):
        config = DataConfig(partition=partition, min_samples=2)
        data = federate(config, 3, (images(200, 0), images(80, 1)), SCRIPT)
        assert [len(stage.clients) for stage in data.stages] == [3, 4, 3]
        assert min(len(client.train) for client in data.clients) >= 1


def test_targets_that_are_numbers_are_left_as_they_are() -> None:
    numbers = [replace(a, y=a.y[:, None].repeat(3, 1).astype(np.float32)) for a in (TRAIN, TEST)]
    script = [Phase(0, {0: PLAIN, 1: TURNED}), Phase(3, {0: TURNED, 1: TURNED})]
    config = DataConfig(partition="iid", min_samples=1)
    data = federate(config, 0, (numbers[0], numbers[1]), script)
    assert data.num_outputs == 3
    for stage in data.stages:
        assert data.train.y[stage.clients[0].train].shape[1:] == (3,)
    before, after = (stage.clients[0] for stage in data.stages)
    np.testing.assert_array_equal(data.train.y[before.train], data.train.y[after.train])
    with pytest.raises(DataError, match="labels need integer class labels, got float32"):
        federate(config, 0, (numbers[0], numbers[1]), [Phase(0, {0: Concept(0.0, (1, 0, 2))})])


def test_what_is_no_image_cannot_be_turned() -> None:
    flat = Arrays(np.ones((30, 5)), np.arange(30) % 3)
    config = DataConfig(partition="iid", min_samples=1)
    with pytest.raises(DataError, match="rotations need images"):
        federate(config, 0, (flat, flat), [Phase(0, {0: PLAIN}), Phase(2, {0: TURNED})])
    swap = [Phase(0, {0: PLAIN}), Phase(2, {0: Concept(0.0, (1, 0, 2))})]
    assert len(federate(config, 0, (flat, flat), swap).stages) == 2
