"""What every method owes clients that come and go, and data that change."""

from __future__ import annotations

import typing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sofa_fl.data.concepts import Script
from sofa_fl.engine.base import Exam
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.models.flat import as_vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.edits import apply_all
from sofa_fl.topology.tree import NodeId
from tests.methods.cases import METHODS, Spy, after_rounds, assert_equal
from tests.methods.living import (
    ALL_REPLACED,
    ALMOST_ALL_GO,
    CHURN,
    DRIFT,
    NOBODY_STAYS,
    Mute,
    check_view,
    keys_in,
    living,
)

SHARING = SharingConfig(ratio=0.2)
methods = pytest.mark.parametrize("name", METHODS)
scripts = pytest.mark.parametrize("script", [CHURN, DRIFT], ids=["churn", "drift"])
EXODUS = {"one": ALMOST_ALL_GO, "others": ALL_REPLACED, "nobody": NOBODY_STAYS}


@methods
@scripts
def test_the_view_is_complete_and_forgets_who_left(name: str, script: Script) -> None:
    method, fed = METHODS[name](SHARING), living(script)
    state, _ = method.init(fed.at(0))
    for round in range(1, 7):
        now = fed.at(round)
        before = method.view(state).tree
        state, notes = method.round(state, now)
        view = method.view(state)
        check_view(view, now)
        gone = set(range(fed.first_id)) - set(now.clients)
        assert not [(path, key) for path, key in keys_in(state) if key in gone]
        owned = np.concatenate([now.owned[client] for client in now.clients])
        for rows in view.shared.pools.values():
            assert np.isin(rows, owned).all(), "what nobody has any more cannot be shared"
        if name.startswith("sofa"):
            assert apply_all(before, notes.edits) == view.tree


@methods
@scripts
def test_a_saved_state_goes_on_through_change_to_the_same_bits(
    name: str, script: Script, tmp_path: Path
) -> None:
    method, fed = METHODS[name](SHARING), living(script)
    kind, _ = typing.get_args(typing.get_type_hints(method.init)["return"])
    state = after_rounds(method, fed, 1)
    for round in (2, 3, 4):
        checkpoint.save(tmp_path / "state.safetensors", checkpoint.pack(state=state))
        loaded = checkpoint.load(tmp_path / "state.safetensors", "state", kind)
        assert_equal(loaded, state)
        later = method.round(loaded, fed.at(round))
        state, notes = method.round(state, fed.at(round))
        for now, was in zip(later, (state, notes)):
            assert_equal(now, was)


@methods
@scripts
def test_a_round_of_change_leaves_the_old_state_alone(name: str, script: Script) -> None:
    method, fed = METHODS[name](SHARING), living(script)
    state = after_rounds(method, fed, 1)
    again = after_rounds(method, fed, 1)
    method.round(state, fed.at(2))
    assert_equal(state, again)


@methods
@scripts
def test_clients_train_on_what_they_have_and_what_the_ledger_says_they_were_given(
    name: str, script: Script
) -> None:
    """Also where a client was moved to others between sharing and training."""
    method, fed = METHODS[name](SharingConfig(ratio=0.6)), living(script, spy=True)
    assert isinstance(fed.engine, Spy)
    state, _ = method.init(fed.at(0))
    given = 0
    for round in range(1, 6):
        now = fed.at(round)
        fed.engine.tasks.clear()
        fed.engine.exams.clear()
        state, _ = method.round(state, now)
        owned = np.concatenate([now.owned[client] for client in now.clients])
        ledger = method.view(state).shared.ledger
        for task in fed.engine.tasks:
            if task.site in now.owned:
                assert np.isin(now.owned[task.site], task.samples).all()
                assert np.isin(task.samples, owned).all()
                foreign = np.setdiff1d(task.samples, now.owned[task.site])
                np.testing.assert_array_equal(ledger.given(foreign, task.site), foreign)
                given += len(foreign)
        trained = {task.site for task in fed.engine.tasks if task.site < fed.first_id}
        assert trained == set(now.clients)
        held = np.concatenate([now.judged_on(client) for client in now.clients])
        # SHAPE compares clusters on some training samples, too.
        is_ours = name.startswith(("sofa", "regroup"))
        seen = np.concatenate([held, owned]) if is_ours else held
        assert all(np.isin(exam.samples, seen).all() for exam in fed.engine.exams)
    assert given, "or this shows nothing"


@methods
def test_whose_data_changed_is_served_better_in_time(name: str) -> None:
    """Than by what it was served before they did."""
    method, fed = METHODS[name](SHARING), living(DRIFT)
    state = after_rounds(method, fed, 1)
    old = method.view(state).served
    for round in (2, 3):
        state, _ = method.round(state, fed.at(round))
    new = method.view(state).served
    first, then = (fed.at(round).stage.clients for round in (1, 2))
    changed = [client for client in fed.clients if then[client] is not first[client]]
    assert changed == [0, 3, 6, 7, 8]
    rows = [then[client].test for client in changed]
    exams = [Exam(served[c], own, "test") for served in (old, new) for c, own in zip(changed, rows)]
    losses = [score.loss for score in fed.engine.evaluate(exams)]
    assert sum(losses[len(changed) :]) < sum(losses[: len(changed)])


@methods
def test_who_comes_is_served_well(name: str) -> None:
    """Better than by the untrained model, all newcomers together."""
    method, fed = METHODS[name](SHARING), living(CHURN)
    served = method.view(after_rounds(method, fed, 5)).served
    come = [NodeId(client) for client in (9, 10, 11)]
    rows = [fed.at(5).stage.clients[client].test for client in come]
    models = [*(served[client] for client in come), *[fed.initial()] * 3]
    scores = fed.engine.evaluate([Exam(m, own, "test") for m, own in zip(models, rows * 2)])
    losses = [score.loss for score in scores]
    assert sum(losses[:3]) < sum(losses[3:])


@methods
@pytest.mark.parametrize(
    ("stays", "heard_at"),
    [("one", 2), ("one", 3), ("one", 9), ("others", 3), ("nobody", 9)],
)
def test_it_goes_on_when_all_leave_who_were_ever_heard(
    name: str, stays: str, heard_at: int
) -> None:
    """One who stays was not heard before: at once, later or never; or nobody stays at all."""
    method, fed = METHODS[name](SHARING), living(EXODUS[stays])
    fed = replace(fed, engine=Mute(fed.engine, mute=frozenset({4})), lossy=True)
    assert isinstance(fed.engine, Mute)
    state, _ = method.init(fed.at(0))
    for round in range(1, 7):
        if round == heard_at:
            fed.engine.mute = frozenset()
        now = fed.at(round)
        before = method.view(state).tree
        state, notes = method.round(state, now)
        check_view(method.view(state), now, sorted(now.roll.heard))
        gone = set(range(fed.first_id)) - set(now.clients)
        assert not [(path, key) for path, key in keys_in(state) if key in gone]
        if name.startswith("sofa"):
            assert apply_all(before, notes.edits) == method.view(state).tree


@methods
@pytest.mark.parametrize("script", EXODUS.values(), ids=EXODUS)
def test_it_goes_on_when_nobody_is_asked_who_is_left(name: str, script: Script) -> None:
    """All are in quarantine."""
    method, fed = METHODS[name](SHARING), living(script)
    fed = replace(fed, engine=Mute(fed.engine, mute=frozenset({4})), lossy=True)
    state = after_rounds(method, fed, 1)
    fed.register.back_at.update(dict.fromkeys(map(NodeId, range(15)), 4))
    for round in range(2, 6):
        now = fed.at(round)
        state, _ = method.round(state, now)
        assert bool(now.roll.heard) == (round >= 4 and now.clients != (4,))
        check_view(method.view(state), now, sorted(now.roll.heard))


def test_who_takes_over_goes_on_from_what_all_have_learned() -> None:
    """Those who are left by then join the root, train from its model, and find their groups."""
    method, fed = METHODS["sofa"](SHARING), living(NOBODY_STAYS, spy=True)
    assert isinstance(fed.engine, Spy)
    state = after_rounds(method, fed, 1)
    fed.engine.tasks.clear()
    after, _ = method.round(state, fed.at(2))
    assert after.tree.root == state.tree.root
    root = state.models[state.tree.root]
    assert [task.site for task in fed.engine.tasks] == list(fed.at(2).clients)
    assert all(torch.equal(as_vector(task.start), root) for task in fed.engine.tasks)
