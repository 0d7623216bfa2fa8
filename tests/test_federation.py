"""The federation: budget, draws and costs are counted in one place, for all methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.data.concepts import Phase
from sofa_fl.engine.base import Exam, Pull
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.federation import Federation
from sofa_fl.models.flat import Mix
from sofa_fl.seeding import rng_for, seed_for
from sofa_fl.topology.tree import NodeId
from tests.engine.cases import DATA, MLP, NUM_CLASSES
from tests.methods.cases import LOCAL, Spy, federation
from tests.methods.living import THREE_GROUPS, D, living

names = st.lists(st.one_of(st.integers(0, 99), st.text(max_size=3)), max_size=4).map(tuple)


@given(st.integers(0, 2**40), names)
def test_a_seed_has_63_bits_and_is_the_same_again(seed: int, name: tuple[int | str, ...]) -> None:
    assert 0 <= seed_for(seed, *name) < 2**63
    assert seed_for(seed, *name) == seed_for(seed, *name)


@given(st.tuples(st.integers(0, 9), names), st.tuples(st.integers(0, 9), names))
def test_other_names_other_draws(
    one: tuple[int, tuple[int | str, ...]], other: tuple[int, tuple[int | str, ...]]
) -> None:
    assert (seed_for(one[0], *one[1]) == seed_for(other[0], *other[1])) == (one == other)


def test_the_draws_of_a_seed_never_change() -> None:
    """Else no old run could be resumed or repeated."""
    assert seed_for(0, 1, "train") == 6274752650675379668
    assert rng_for(7, "share").integers(0, 1000, 4).tolist() == [782, 540, 649, 820]


def test_round_0_is_the_warm_up() -> None:
    fed = federation()
    client, start = NodeId(2), fed.initial()
    assert fed.task(client, start).batches == fed.warmup == 5
    assert fed.at(1).task(client, start).batches == LOCAL.batches
    assert fed.at(1).task(client, start, batches=3).batches == 3


def test_a_task_has_draws_of_its_own() -> None:
    fed = federation()
    start = fed.initial()
    seeds = [
        fed.at(round).task(client, start, purpose=purpose).seed
        for round in range(3)
        for client in fed.clients
        for purpose in ("train", "other")
    ]
    assert len(set(seeds)) == len(seeds)
    assert (
        fed.at(1).task(NodeId(0), start).seed
        != replace(fed, seed=9, round=1).task(NodeId(0), start).seed
    )


def test_a_task_is_on_the_clients_own_samples_unless_told() -> None:
    fed = federation()
    task = fed.task(NodeId(1), fed.initial())
    np.testing.assert_array_equal(task.samples, fed.data.clients[1].train)
    assert not np.isin(fed.data.clients[1].holdout, task.samples).any()
    few = np.arange(3)
    assert fed.task(NodeId(1), fed.initial(), few).samples is few


def test_pulls_without_weight_are_left_out() -> None:
    fed = federation()
    start = fed.initial()
    pulls = [Pull(start, 0.0), Pull(start, 0.5)]
    assert fed.task(NodeId(0), start, pulls=pulls).pulls == (pulls[1],)


def test_costs_are_counted_over_all_rounds() -> None:
    fed = federation()
    start = fed.initial()
    size = start.nbytes
    task = fed.at(1).task(NodeId(0), start, pulls=[Pull(fed.initial(1), 1.0)])
    fed.at(1).train([task, fed.at(1).task(NodeId(1), start)])
    meter = fed.meter
    assert meter.samples_trained == 2 * LOCAL.batches * LOCAL.batch_size
    assert (meter.bytes_down, meter.bytes_up) == (3 * size, 2 * size)
    fed.at(2).held_out([(NodeId(0), start)] * 5)
    assert (meter.bytes_down, meter.bytes_up) == (8 * size, 2 * size)
    sample = fed.data.train.x[0].nbytes + fed.data.train.y[:1].nbytes
    fed.at(3).count_shared(up=4, down=10)
    assert (meter.bytes_down, meter.bytes_up) == (8 * size + 10 * sample, 2 * size + 4 * sample)


def test_a_model_is_counted_once_and_pulls_as_their_sum() -> None:
    fed = federation()
    start, other, third = (fed.initial(i) for i in range(3))
    for pulls, models in (
        ([], 1),
        ([Pull(start, 1.0)], 1),
        ([Pull(other, 1.0)], 2),
        ([Pull(other, 1.0), Pull(third, 0.5)], 2),
        ([Pull(start, 1.0), Pull(other, 0.5)], 2),
    ):
        assert fed.task(NodeId(0), start, pulls=pulls).num_bytes == models * start.nbytes


def test_a_mix_counts_as_the_one_model_that_is_sent() -> None:
    fed = federation()
    models = tuple(fed.initial(i) for i in range(3))
    mix, size = Mix(models, (0.2, 0.3, 0.5)), models[0].nbytes
    fed.train([fed.task(NodeId(0), mix)])
    assert (fed.meter.bytes_down, fed.meter.bytes_up) == (size, size)
    fed.held_out([(NodeId(0), mix)])
    assert fed.meter.bytes_down == 2 * size


def test_losses_are_judged_on_held_out_samples_where_there_are_any() -> None:
    fed = federation()
    np.testing.assert_array_equal(fed.judged_on(NodeId(0)), fed.data.clients[0].holdout)
    bare = replace(fed.data.clients[0], holdout=np.empty(0, dtype=np.int64))
    without = replace(fed, data=replace(fed.data, clients=(bare, *fed.data.clients[1:])))
    np.testing.assert_array_equal(without.judged_on(NodeId(0)), bare.train)


def test_models_are_weighed_by_samples() -> None:
    fed = federation(3)
    models = {c: torch.full((6,), float(c)) for c in fed.clients}
    sizes = [len(fed.owned[c]) for c in fed.clients]
    expected = np.average([0, 1, 2], weights=sizes)
    assert fed.mean(models).numpy() == pytest.approx(np.full(6, expected), rel=1e-5)


def test_the_probe_is_the_same_in_every_round() -> None:
    fed = federation(spy=True)
    assert isinstance(fed.engine, Spy)
    everything = np.concatenate(list(fed.owned.values()))
    first = fed.at(1).probe(30)
    np.testing.assert_array_equal(first, fed.at(4).probe(30))
    assert len(np.unique(first)) == 30
    assert np.isin(first, everything).all()
    assert len(fed.probe(10**6)) == len(everything)


def test_a_prior_is_the_log_of_a_class_mix() -> None:
    fed = Federation(DATA, SequentialEngine(MLP, DATA, LOCAL), LOCAL)
    for client in fed.clients:
        labels = DATA.train.y[fed.owned[client]]
        counts = np.array([(labels == label).sum() + 1 for label in range(NUM_CLASSES)])
        prior = fed.priors[client]
        assert prior is not None
        np.testing.assert_allclose(np.exp(prior), counts / counts.sum(), rtol=1e-6)
    start, mixed = fed.initial(), np.concatenate([fed.owned[c] for c in fed.clients])
    asked = fed.task(NodeId(0), start, mixed)
    np.testing.assert_array_equal(asked.prior, fed.present.prior_of(mixed))  # of what it trains on
    (score,) = fed.held_out([(NodeId(0), start)])
    exam = Exam(start, fed.judged_on(NodeId(0)), prior=fed.priors[NodeId(0)])
    assert score == fed.engine.evaluate([exam])[0]


def test_no_prior_if_not_wanted_or_without_classes() -> None:
    without = replace(LOCAL, prior=False)
    fed = Federation(DATA, SequentialEngine(MLP, DATA, without), without)
    assert fed.task(NodeId(0), fed.initial()).prior is None
    numbers = replace(DATA, train=replace(DATA.train, y=DATA.train.y.astype(np.float32)))
    assert replace(fed, data=numbers, local=LOCAL).priors[NodeId(1)] is None


def test_the_learning_rate_is_the_configured_one_in_every_round() -> None:
    """So a round's training does not depend on how many rounds there are."""
    fed = federation()
    task = fed.at(9).task(NodeId(0), fed.initial())
    (free,) = fed.at(9).train([task])
    planned = replace(fed, rounds=10).at(9)
    (same,) = planned.train([planned.task(NodeId(0), fed.initial())])
    assert free is not None
    assert same is not None
    assert torch.equal(free.params, same.params)


def test_what_a_blind_guess_loses() -> None:
    fed = Federation(DATA, SequentialEngine(MLP, DATA, LOCAL), LOCAL)
    assert fed.blind_loss == pytest.approx(np.log(NUM_CLASSES))
    numbers = replace(DATA.train, y=3 * DATA.train.y.astype(np.float32))
    spread = 9 * DATA.train.y.var()
    assert replace(fed, data=replace(DATA, train=numbers)).blind_loss == pytest.approx(spread)
    assert federation().blind_loss == 1.0  # of one class there is nothing to guess


def test_whose_data_are_others_than_in_the_last_round() -> None:
    """Client 2 sees something new in round 2, and client 9 comes then."""
    fed = living([Phase(0, THREE_GROUPS), Phase(2, {**THREE_GROUPS, 2: D, 9: D})])
    new = {r: [c for c in fed.at(r).clients if fed.at(r).has_new_data(c)] for r in range(4)}
    assert new == {0: [], 1: [], 2: [2, 9], 3: []}
    news = [client for client in fed.at(2).clients if fed.at(2).has_news(client)]
    assert news == new[2]
    some = replace(fed, participation=0.5).at(1)
    assert all(some.has_news(client) for client in some.clients), "it may have missed the round"
    assert not any(some.has_new_data(client) for client in some.clients)
