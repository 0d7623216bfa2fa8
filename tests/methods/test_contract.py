"""What every method owes the experiment: pure rounds, a full view, a state that can be saved."""

from __future__ import annotations

import copy
import typing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import Exam
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.models.flat import as_vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId
from tests.methods.cases import (
    LOCAL,
    METHODS,
    SAME_BUDGET,
    Spy,
    after_rounds,
    assert_equal,
    federation,
)

SHARING = SharingConfig(ratio=0.2)
methods = pytest.mark.parametrize("name", METHODS)


@methods
def test_a_round_changes_no_state(name: str) -> None:
    method, fed = METHODS[name](SHARING), federation()
    state = after_rounds(method, fed, 1)
    before = copy.deepcopy(state)
    first, _ = method.round(state, fed.at(2))
    assert_equal(state, before)
    kept = copy.deepcopy(first)
    method.round(first, fed.at(3))
    method.view(first)
    assert_equal(first, kept)


@methods
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    one, again = (after_rounds(METHODS[name](SHARING), federation(), 3) for _ in range(2))
    assert_equal(one, again)


@methods
def test_another_seed_gives_another_run(name: str) -> None:
    views = []
    for seed in (1, 2):
        method = METHODS[name](SHARING)
        views.append(method.view(after_rounds(method, federation(seed=seed), 1)))
    one, other = (as_vector(view.served[NodeId(0)]) for view in views)
    assert not torch.equal(one, other)


@methods
@pytest.mark.parametrize("num_clients", [1, 2, 9])
def test_the_view_is_complete(name: str, num_clients: int) -> None:
    method, fed = METHODS[name](SHARING), federation(num_clients)
    for rounds in range(3):
        view = method.view(after_rounds(method, fed, rounds))
        assert set(view.tree.clients) == set(fed.clients) == set(view.served)
        assert view.tree.is_compact
        size = len(fed.initial())
        served = [as_vector(model) for model in view.served.values()]
        assert all(m.shape == (size,) and m.isfinite().all() for m in served)
        assert set(view.models) <= set(view.tree.parent)
        assert view.tree.root in view.models
        pools = set(view.shared.pools) - view.tree.members  # a client may keep what it was given
        assert pools == set(view.tree.clusters)


@methods
def test_clients_are_on_a_map(name: str) -> None:
    method, fed = METHODS[name](SHARING), federation()
    state, notes = method.init(fed.at(0))
    _, later = method.round(state, fed.at(1))
    for positions in (notes.positions, later.positions):
        assert list(positions) == list(fed.clients)
        assert len(set(positions.values())) == len(positions), "all have data of their own"


@methods
@pytest.mark.parametrize("num_clients", [1, 2, 9])
def test_a_saved_state_goes_on_to_the_same_bits(
    name: str, num_clients: int, tmp_path: Path
) -> None:
    method, fed = METHODS[name](SHARING), federation(num_clients)
    kind, _ = typing.get_args(typing.get_type_hints(method.init)["return"])
    for rounds in (0, 2):
        state = after_rounds(method, fed, rounds)
        checkpoint.save(tmp_path / "state.safetensors", checkpoint.pack(state=state))
        loaded = checkpoint.load(tmp_path / "state.safetensors", "state", kind)
        assert_equal(loaded, state)
        for was, now in zip(
            method.round(state, fed.at(rounds + 1)), method.round(loaded, fed.at(rounds + 1))
        ):
            assert_equal(now, was)


def test_who_missed_rounds_and_idle_clusters_are_saved(tmp_path: Path) -> None:
    state = after_rounds(METHODS["sofa"](SHARING), federation(), 1)
    missed, idle = dict.fromkeys(state.tree.clients[:2], 3), {state.tree.clusters[-1]: 2}
    state = replace(state, mixing=replace(state.mixing, missed=missed, idle=idle))
    checkpoint.save(tmp_path / "state.safetensors", checkpoint.pack(state=state))
    loaded = checkpoint.load(tmp_path / "state.safetensors", "state", type(state))
    assert_equal(loaded, state)


@methods
def test_training_serves_clients_better(name: str) -> None:
    """Than the untrained model, on their own test samples."""
    method, fed = METHODS[name](SHARING), federation()
    served = method.view(after_rounds(method, fed, 6)).served
    for client in fed.clients:
        rows = fed.data.clients[client].test
        before, after = fed.engine.evaluate(
            [Exam(fed.initial(), rows, "test"), Exam(served[client], rows, "test")]
        )
        assert after.loss < before.loss


@pytest.mark.parametrize("name", SAME_BUDGET)
@pytest.mark.parametrize("num_clients", [1, 2, 9])
def test_every_method_trains_on_as_many_samples(name: str, num_clients: int) -> None:
    method, fed = METHODS[name](SHARING), federation(num_clients)
    state, _ = method.init(fed.at(0))
    assert fed.meter.samples_trained == num_clients * fed.warmup * LOCAL.batch_size
    for round in (1, 2, 3):
        before = fed.meter.samples_trained
        state, _ = method.round(state, fed.at(round))
        spent = fed.meter.samples_trained - before
        assert spent == num_clients * LOCAL.batches * LOCAL.batch_size


def test_clusters_that_train_cost_more() -> None:
    method, fed = METHODS["sofa cascade eta 0.5"](SHARING), federation()
    state, _ = method.init(fed.at(0))
    before = fed.meter.samples_trained
    method.round(state, fed.at(1))
    nodes = len(fed.clients) + len(state.tree.clusters)
    assert fed.meter.samples_trained - before == nodes * LOCAL.batches * LOCAL.batch_size


@methods
def test_held_out_and_test_samples_are_never_trained_on(name: str) -> None:
    method, fed = METHODS[name](SharingConfig(ratio=1.0)), federation(spy=True)
    after_rounds(method, fed, 3)
    assert isinstance(fed.engine, Spy)
    trained = np.unique(np.concatenate([task.samples for task in fed.engine.tasks]))
    held = np.concatenate([client.holdout for client in fed.data.clients])
    assert not np.isin(held, trained).any()
    judged = {exam.split for exam in fed.engine.exams}
    assert judged <= {"train"}, "no method looks at test samples"
    seen: list[Samples] = [exam.samples for exam in fed.engine.exams]
    # Whether another cluster suits a client is judged on some of its training samples, too.
    own = list(fed.owned.values()) if name.startswith(("sofa", "regroup")) else []
    allowed = np.concatenate([held, *own])
    assert all(np.isin(rows, allowed).all() for rows in seen)


@methods
@pytest.mark.parametrize("mode", ["random", "fixed"])
def test_the_ledger_is_what_was_in_the_training_sets(name: str, mode: str) -> None:
    """As it was at the start of a round: all that was trained on up to and including it."""
    sharing = {"random": SharingConfig(ratio=0.3), "fixed": SharingConfig(ratio=0.3, mode="fixed")}
    method, fed = METHODS[name](sharing[mode]), federation(spy=True)
    assert isinstance(fed.engine, Spy)
    owned = {c: set(fed.owned[c].tolist()) for c in fed.clients}
    got: dict[NodeId, set[int]] = {client: set() for client in fed.clients}
    state, _ = method.init(fed.at(0))
    assert all(set(t.samples.tolist()) == owned[t.site] for t in fed.engine.tasks), "the warm-up"
    for round in range(1, 6):
        ledger = method.view(state).shared.ledger
        fed.engine.tasks.clear()
        state, _ = method.round(state, fed.at(round))
        for task in fed.engine.tasks:
            if task.site in owned:
                assert len(set(task.samples.tolist())) == len(task.samples)
                assert owned[task.site] <= set(task.samples.tolist())
                got[task.site] |= set(task.samples.tolist()) - owned[task.site]
        for client in fed.clients:
            everything = np.arange(len(fed.data.train))
            assert set(ledger.given(everything, client).tolist()) == got[client]
    assert all(got.values()), "sharing took place"


def test_cap_0_keeps_a_clients_samples_at_home() -> None:
    sharing = SharingConfig(ratio=0.5, max_disclosure={2: 0.0})
    for name in METHODS:
        method, fed = METHODS[name](sharing), federation(spy=True)
        after_rounds(method, fed, 4)
        assert isinstance(fed.engine, Spy)
        others = [task.samples for task in fed.engine.tasks if task.site != 2]
        assert not np.isin(np.concatenate(others), fed.owned[NodeId(2)]).any()
