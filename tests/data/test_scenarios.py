"""The ready scenarios: who changes, when, into what, and what is true of whom then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sofa_fl.data.concepts import Concept, Script, turn
from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.data.federated_data import Arrays, FederatedData
from sofa_fl.data.scenarios import ScenarioConfig, ScenarioName, script_of
from sofa_fl.errors import DataError
from tests.engine.cases import images

CONCEPTS = [Concept(degrees, labels) for degrees in (0.0, 180.0) for labels in (None, (1, 0, 2))]
GROUPS = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
NAMES: tuple[ScenarioName, ...] = ("swap", "emerge", "converge", "rotate", "recur", "churn")


def scripted(name: ScenarioName, seed: int = 0, **values: float) -> Script:
    config = ScenarioConfig(name=name, **{"at": 4, "lasts": 3, **values})  # type: ignore[arg-type]
    return script_of(config, GROUPS, CONCEPTS, seed)


def numbers(script: Script) -> list[list[int | None]]:
    """By phase, the number of the concept of every client; of new ones 9, None for who is out."""
    known = {concept: at for at, concept in enumerate(CONCEPTS)}
    everybody = sorted({client for phase in script for client in phase.concepts})
    return [
        [known.get(phase.concepts[c], 9) if c in phase.concepts else None for c in everybody]
        for phase in script
    ]


def changed(before: Sequence[object], after: Sequence[object]) -> list[int]:
    return [client for client, (one, other) in enumerate(zip(before, after)) if one != other]


def test_none_changes_nothing() -> None:
    (only,) = scripted("none")
    assert only.since == 0
    assert [only.concepts[client] for client in range(12)] == [CONCEPTS[g] for g in GROUPS]


@pytest.mark.parametrize("name", NAMES)
def test_everything_begins_as_without_a_scenario(name: ScenarioName) -> None:
    first = scripted(name)[0]
    assert first == scripted("none")[0]
    assert scripted(name)[1].since == 4


def test_swap_moves_one_of_every_group_to_the_next() -> None:
    before, after = numbers(scripted("swap"))
    moved = changed(before, after)
    assert [GROUPS[client] for client in moved] == [0, 1, 2, 3]
    assert [after[client] for client in moved] == [1, 2, 3, 0]


def test_emerge_gives_some_of_the_first_group_something_new() -> None:
    script = scripted("emerge", fraction=0.6)
    before, after = numbers(script)
    moved = changed(before, after)
    assert [GROUPS[client] for client in moved] == [0, 0]
    assert {script[1].concepts[client] for client in moved} == {Concept(90.0, None)}


def test_what_emerges_lies_between_the_rotations() -> None:
    concepts = [Concept(120.0 * k) for k in range(3)]
    script = script_of(ScenarioConfig(name="emerge"), [0, 0, 1, 1, 2, 2], concepts, 0)
    new = set(script[1].concepts.values()) - set(concepts)
    assert new == {Concept(60.0)}


def test_converge_makes_the_second_group_the_first() -> None:
    before, after = numbers(scripted("converge"))
    assert changed(before, after) == [3, 4, 5]
    assert after[3:6] == [0, 0, 0]


def test_rotate_turns_every_other_group_step_by_step() -> None:
    script = scripted("rotate", degrees=4.0)
    assert [phase.since for phase in script] == [0, 4, 5, 6]
    for step, phase in enumerate(script):
        for client, group in enumerate(GROUPS):
            by = 4.0 * step if group in (0, 2) else 0.0
            expected = replace(CONCEPTS[group], degrees=CONCEPTS[group].degrees + by)
            assert phase.concepts[client] == expected


def test_recur_is_as_it_was_after_a_while() -> None:
    first, then, again = scripted("recur")
    assert (then.since, again.since) == (4, 7)
    assert then.concepts == scripted("emerge")[1].concepts
    assert again.concepts == first.concepts


def test_churn_replaces_some_of_every_group() -> None:
    script = scripted("churn")
    before, after = numbers(script)
    gone = [client for client, number in enumerate(after) if number is None]
    assert [GROUPS[client] for client in gone] == [0, 1, 2, 3]
    assert before[12:] == [None] * 4
    assert after[12:] == [0, 1, 2, 3]
    stay = [client for client in range(12) if client not in gone]
    assert [after[c] for c in stay] == [before[c] for c in stay]


@given(
    sizes=st.lists(st.integers(2, 6), min_size=2, max_size=4),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 99),
)
def test_some_of_every_group_change_and_some_stay(
    sizes: list[int], fraction: float, seed: int
) -> None:
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    concepts = [Concept(10.0 * group) for group in range(len(sizes))]
    config = ScenarioConfig(name="swap", fraction=fraction)
    first, then = script_of(config, groups, concepts, seed)
    for group, size in enumerate(sizes):
        own = [client for client in range(len(groups)) if groups[client] == group]
        num = sum(first.concepts[client] != then.concepts[client] for client in own)
        assert num == min(max(1, round(fraction * size)), size - 1)


@pytest.mark.parametrize("name", ["swap", "emerge", "churn"])
def test_who_changes_is_drawn_by_the_seed(name: ScenarioName) -> None:
    assert scripted(name, seed=5) == scripted(name, seed=5)
    found = {tuple(map(tuple, numbers(scripted(name, seed=seed)))) for seed in range(9)}
    assert len(found) > 2


@pytest.mark.parametrize("name", NAMES)
def test_one_group_is_too_few(name: ScenarioName) -> None:
    with pytest.raises(DataError, match=rf"name={name} needs at least two groups .* raise data\."):
        script_of(ScenarioConfig(name=name), [0, 0], CONCEPTS[:1], 0)


ARRAYS = images(240, 0), images(96, 1)


def federated(name: ScenarioName, arrays: tuple[Arrays, Arrays] = ARRAYS) -> FederatedData:
    config = DataConfig(
        num_clients=12,
        partition="iid",
        num_rotations=2,
        num_swaps=2,
        holdout=0.2,
        scenario=ScenarioConfig(name=name, at=4, lasts=3),
    )
    return federate(config, 1, arrays)


@pytest.mark.parametrize("name", NAMES)
def test_data_of_a_scenario(name: ScenarioName) -> None:
    data = federated(name)
    first, *later = data.stages
    assert first.truth[0][:12] == tuple(GROUPS)
    for stage in data.stages:
        (groups,) = stage.truth
        assert len(groups) == len(data.clients)
        assert {client for client, group in enumerate(groups) if group >= 0} == set(stage.clients)
        for rows in stage.clients.values():
            assert min(len(rows.train), len(rows.holdout), len(rows.test)) > 0
    assert [stage.since for stage in later] == {"recur": [4, 7], "rotate": [4, 5, 6]}.get(name, [4])
    expected = {
        "swap": [12, [0, 1, 2, 3]],
        "emerge": [12, [0, 1, 2, 3, 4]],
        "converge": [12, [0, 2, 3]],
        "rotate": [12, [0, 1, 2, 3]],
        "recur": [12, [0, 1, 2, 3, 4]],
        "churn": [12, [0, 1, 2, 3]],
    }[name]
    truth = later[0].truth[0]
    assert [len(later[0].clients), sorted(set(truth) - {-1})] == expected


def test_in_churn_leavers_are_gone_and_newcomers_have_samples_of_their_own() -> None:
    data = federated("churn")
    before, after = (stage.clients for stage in data.stages)
    assert len(data.clients) == 16
    assert set(after) - set(before) == {12, 13, 14, 15}
    assert len(set(before) - set(after)) == 4
    assert all(after[client] is before[client] for client in set(before) & set(after))
    images_of = [
        {bytes(data.train.x[row]) for row in (*rows.train, *rows.holdout)} for rows in data.clients
    ]
    assert sum(map(len, images_of)) == len(set().union(*images_of)) == 240


def test_who_changes_sees_the_same_samples_otherwise() -> None:
    data = federated("converge")
    before, after = (stage.clients for stage in data.stages)
    for client in (3, 4, 5):  # the second group differs from the first in its labels alone
        one, other = before[client], after[client]
        np.testing.assert_array_equal(data.train.x[one.train], data.train.x[other.train])
        assert (data.train.y[one.train] != data.train.y[other.train]).any()
        np.testing.assert_array_equal(data.test.x[one.test], data.test.x[other.test])
        assert not np.isin(one.train, other.train).any()
    assert all(after[c] is before[c] for c in range(12) if c not in (3, 4, 5))


def test_what_recurs_has_its_rows_again() -> None:
    first, then, again = (stage.clients for stage in federated("recur").stages)
    assert all(again[client] is first[client] for client in first)
    assert any(then[client] is not first[client] for client in first)


def test_rotating_goes_on_from_the_original() -> None:
    """Not from what was turned before: every turn blurs."""
    data = federated("rotate")
    first, *later = (stage.clients[0] for stage in data.stages)
    for step, rows in enumerate(later, 1):
        expected = turn(data.train.x[first.train], 3.0 * step)
        np.testing.assert_array_equal(data.train.x[rows.train], expected)


@pytest.mark.parametrize("partition", ["dirichlet", "shards", "groups"])
def test_scenarios_go_with_every_partition(partition: str) -> None:
    values = {"partition": partition, "num_clients": 16, "min_samples": 3}
    config = TypeAdapter(DataConfig).validate_python({**values, "scenario": {"name": "churn"}})
    data = federate(config, 0, ARRAYS)
    assert len(data.stages) == 2
    assert [len(stage.clients) for stage in data.stages] == [16, 16]
    assert len(data.clients) == 24


def test_where_a_client_is_a_group_all_are_replaced() -> None:
    config = DataConfig(num_clients=8, min_samples=3, scenario=ScenarioConfig(name="churn"))
    data = federate(config, 0, ARRAYS)
    assert [list(stage.clients) for stage in data.stages] == [[*range(8)], [*range(8, 16)]]
    first, then = (stage.truth[0] for stage in data.stages)
    assert first[:8] == then[8:] == tuple(range(8))


@pytest.mark.parametrize("size", [(), (3,)])
def test_numbers_as_targets(size: tuple[int, ...]) -> None:
    x = ARRAYS[0].x
    own = Arrays(x, np.random.default_rng(0).normal(size=(len(x), *size)))
    config = DataConfig(
        num_clients=6,
        partition="iid",
        num_rotations=3,
        num_swaps=1,
        scenario=ScenarioConfig(name="swap"),
    )
    data = federate(config, 0, (own, own))
    before, after = (stage.clients for stage in data.stages)
    moved = [client for client in before if after[client] is not before[client]]
    assert len(moved) == 3
    for client in moved:
        one, other = before[client].train, after[client].train
        np.testing.assert_array_equal(data.train.y[one], data.train.y[other])
        assert (data.train.x[one] != data.train.x[other]).any()
    for rotations, swaps in ((1, 2), (1, 1), (3, 2)):
        unfit = replace(config, num_rotations=rotations, num_swaps=swaps)
        with pytest.raises(DataError, match=r"data.num_swaps=1 and data.num_rotations of at least"):
            federate(unfit, 0, (own, own))


def test_clients_must_fill_the_groups() -> None:
    config = DataConfig(num_clients=7, scenario=ScenarioConfig(name="swap"))
    with pytest.raises(DataError, match=r"multiple of the 8 groups .* got 7"):
        federate(config, 0, ARRAYS)


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", "drift"), ("at", 0), ("fraction", 0), ("fraction", 1), ("lasts", 0), ("degrees", 0)],
)
def test_ranges_are_validated(key: str, value: object) -> None:
    with pytest.raises(ValidationError, match=key):
        TypeAdapter(ScenarioConfig).validate_python({key: value})
