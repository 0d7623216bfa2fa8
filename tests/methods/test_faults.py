"""What every method owes when clients are not asked, do not answer, or send nonsense."""

from __future__ import annotations

import copy
import typing
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sofa_fl.data.concepts import Phase, Script
from sofa_fl.engine.base import Outcome, Task
from sofa_fl.engine.config import FaultsConfig
from sofa_fl.engine.faulty import FaultyEngine
from sofa_fl.errors import RunError
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.federation import Federation
from sofa_fl.guard_config import GuardConfig
from sofa_fl.methods.method import Method
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.models.flat import Aggregate, as_vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId
from tests.methods.cases import METHODS, Spy, after_rounds, assert_equal
from tests.methods.living import CHURN, DRIFT, THREE_GROUPS, check_view, living

SHARING = SharingConfig(ratio=0.2)
STILL: Script = [Phase(0, THREE_GROUPS)]
methods = pytest.mark.parametrize("name", METHODS)


def rounds_of(
    method: Method[Any], fed: Federation, rounds: int
) -> Iterator[tuple[Federation, Any, Any]]:
    """Every round of a run, the state before it and the state after."""
    state, _ = method.init(fed.at(0))
    for round in range(1, rounds + 1):
        now, before = fed.at(round), copy.deepcopy(state)
        state, _ = method.round(state, now)
        yield now, before, state


@methods
def test_the_absent_keep_their_models(name: str) -> None:
    """Bit for bit, in methods that have models of clients; and nothing is lost of the others."""
    method, fed = METHODS[name](SHARING), living(STILL, participation=0.4, dropout=0.3)
    warm = fed.at(0)
    method.init(warm)
    known = set(warm.roll.heard)
    assert 0 < len(known) < 9, "some are lost in the warm-up already"
    numbers = set()
    for now, before, after in rounds_of(method, fed, 8):
        known |= now.roll.heard
        check_view(method.view(after), now, sorted(known))
        old, new = method.view(before).models, method.view(after).models
        for client in set(now.clients) & old.keys() - now.roll.heard:
            assert torch.equal(as_vector(new[client]), as_vector(old[client]))
        # With these it may be the global model alone that was heard of.
        if name not in ("ditto", "apfl"):
            for client in now.roll.heard & old.keys():
                assert not torch.equal(as_vector(new[client]), as_vector(old[client]))
        assert now.roll.heard <= now.asked
        numbers.add(len(now.roll.heard))
    assert max(numbers) <= 4
    assert len(numbers) > 1, "some drop out, or this shows nothing"


@methods
@pytest.mark.parametrize("script", [CHURN, DRIFT], ids=["churn", "drift"])
def test_all_of_it_at_once(name: str, script: Script, tmp_path: Path) -> None:
    """Change, few who are asked, some who fail: and a saved state goes on to the same bits."""
    fed = living(script, participation=0.6, dropout=0.3, straggle=0.4, bad=0.2)
    method = METHODS[name](SHARING)
    kind, _ = typing.get_args(typing.get_type_hints(method.init)["return"])
    state, _ = method.init(fed.at(0))
    for round in range(1, 8):
        now = fed.at(round)
        now.register.keep(now.clients)
        checkpoint.save(tmp_path / "state.safetensors", checkpoint.pack(state=state))
        loaded = checkpoint.load(tmp_path / "state.safetensors", "state", kind)
        again = replace(now, register=copy.deepcopy(now.register))
        state, _ = method.round(state, now)
        assert_equal(method.round(loaded, again)[0], state)
        assert again.register == now.register
        check_view(method.view(state), now, sorted(now.roll.heard))


@methods
@pytest.mark.parametrize("kind", ["nan", "huge", "flip", "mixed"])
def test_nobodys_nonsense_reaches_a_model(name: str, kind: str) -> None:
    method, fed = METHODS[name](SHARING), living(STILL, bad=0.2, kind=kind)
    assert isinstance(fed.engine, FaultyEngine)
    bad = fed.engine.bad
    assert len(bad) == 2
    for now, before, after in rounds_of(method, fed, 6):
        check_view(method.view(after), now, sorted(now.roll.heard))
        good = set(fed.clients) - bad.keys()
        assert good <= now.roll.heard
        caught = {client for client, way in bad.items() if way != "flip"}
        assert not caught & now.roll.heard
        old, new = method.view(before).models, method.view(after).models
        for client in caught & old.keys():
            assert torch.equal(as_vector(new[client]), as_vector(old[client]))
    caught = {client for client, way in bad.items() if way != "flip"}
    assert caught <= fed.register.back_at.keys(), "and in the end they are not even asked"


@methods
@pytest.mark.parametrize("how", ["median", "trimmed"])
def test_robust_means(name: str, how: Aggregate) -> None:
    """In place of plain ones, whatever the method: with one whom the guard lets through."""
    guard = GuardConfig(aggregate=how, scale=1e9)
    method, fed = METHODS[name](SHARING), living(STILL, bad=0.12, kind="huge")
    fed = replace(fed, guard=guard)
    for now, _, after in rounds_of(method, fed, 4):
        check_view(method.view(after), now)


@pytest.mark.parametrize("how", ["median", "trimmed"])
def test_a_robust_mean_stays_among_the_honest(how: Aggregate) -> None:
    """Where a plain one is carried off by one that sends what is a hundred times too long."""
    far = {}
    for kind in ("mean", how):
        method, fed = METHODS["fedavg"](SHARING), living(STILL, bad=0.12, kind="huge")
        fed = replace(fed, guard=GuardConfig(aggregate=kind, scale=1e9))
        far[kind] = float(after_rounds(method, fed, 4).models[0].abs().max())
    assert far[how] < 10 < 100 < far["mean"]


@methods
def test_nobody_answers(name: str) -> None:
    """All stays as it is, round after round; those who come back go on from there."""
    method, fed = METHODS[name](SHARING), living(STILL, spy=True)
    silent = FaultyEngine(fed.engine, FaultsConfig(dropout=1.0), fed.first_id)
    dead = replace(fed, engine=silent, lossy=True)
    state = after_rounds(method, fed, 1)
    before = copy.deepcopy(method.view(state))
    for round in (2, 3):
        state, notes = method.round(state, dead.at(round))
        assert notes.edits == ()
        after = method.view(state)
        assert after.tree == before.tree
        if name.startswith("hierfavg"):  # its cloud averages what the edges learned before
            continue
        for old, new in ((before.models, after.models), (before.served, after.served)):
            assert old.keys() == new.keys()
            for node, model in old.items():
                assert torch.equal(as_vector(new[node]), as_vector(model))
    state, _ = method.round(state, replace(fed, lossy=True).at(4))
    check_view(method.view(state), fed.at(4))
    assert any(
        not torch.equal(as_vector(model), as_vector(before.served[client]))
        for client, model in method.view(state).served.items()
    )


@methods
def test_nobody_answers_in_the_warm_up(name: str) -> None:
    method, fed = METHODS[name](SHARING), living(STILL, dropout=1.0)
    if isinstance(method, Sofa):
        with pytest.raises(RunError, match="no client answered in the warm-up"):
            method.init(fed.at(0))
    else:
        state, _ = method.init(fed.at(0))
        check_view(method.view(state), fed)


@methods
def test_nobody_is_asked(name: str) -> None:
    """All are in quarantine: the round goes by, and costs no training."""
    method, fed = METHODS[name](SHARING), living(STILL, spy=True)
    state = after_rounds(method, fed, 1)
    now = replace(fed, lossy=True).at(2)
    now.register.back_at.update(dict.fromkeys(now.clients, 9))
    assert isinstance(fed.engine, Spy)
    fed.engine.tasks.clear()
    state, _ = method.round(state, now)
    assert not [task for task in fed.engine.tasks if task.site in now.owned]
    check_view(method.view(state), now)


@methods
def test_a_client_set_aside_where_nobody_expects_it(name: str) -> None:
    """Nothing is lossy, and yet one answer cannot be used: all clients still have a model."""
    method, fed = METHODS[name](SHARING), living(STILL)
    state = after_rounds(method, fed, 1)
    odd = FaultyEngine(fed.engine, FaultsConfig(), fed.first_id)
    odd.bad = {NodeId(4): "nan"}
    state, _ = method.round(state, replace(fed, engine=odd).at(2))
    check_view(method.view(state), fed.at(2))
    state, _ = method.round(state, fed.at(3))
    check_view(method.view(state), fed.at(3))


class OneBad(Spy):
    """Its third client sends a model that is not finite; nobody expects it to."""

    def train(self, tasks: Iterable[Task]) -> list[Outcome | None]:
        outcomes = list(super().train(tasks))
        tasks = self.tasks[-len(outcomes) :]
        return [
            replace(out, params=out.params * float("nan")) if out and task.site == 2 else out
            for task, out in zip(tasks, outcomes)
        ]


@methods
def test_a_client_that_the_guard_sets_aside_keeps_its_model(name: str) -> None:
    """Where every client is asked and none is known to fail."""
    fed = living(STILL)
    assert not fed.may_miss
    method = METHODS[name](SHARING)
    state, _ = method.init(fed.at(0))
    bad = replace(fed, engine=OneBad(fed.engine))
    for round in (1, 2):
        before = copy.deepcopy(method.view(state).models)
        now = bad.at(round)
        assert not now.register.is_out(NodeId(2), round), "also if it was trained several times"
        state, _ = method.round(state, now)
        assert set(now.roll.set_aside) == {2}
        after = method.view(state).models
        if NodeId(2) in before:
            assert torch.equal(as_vector(after[NodeId(2)]), as_vector(before[NodeId(2)]))
