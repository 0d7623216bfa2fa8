"""Clients that are not asked, do not answer or send nonsense: what the federation makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from sofa_fl.data.federated_data import Stage
from sofa_fl.engine.base import Outcome, Task, answered
from sofa_fl.errors import ModelError
from sofa_fl.federation import Federation
from sofa_fl.guard import NOT_FINITE, Register
from sofa_fl.guard_config import GuardConfig
from sofa_fl.models.flat import Vector
from sofa_fl.topology.tree import NodeId
from tests.methods.cases import LOCAL, Spy, federation

CLUSTER = NodeId(20)


@dataclass
class Odd(Spy):
    """An engine in which some sites answer in a way of their own."""

    ways: dict[int, Callable[[Vector], Vector] | None] = field(default_factory=dict)

    def train(self, tasks: Iterable[Task]) -> Sequence[Outcome | None]:
        tasks = list(tasks)
        return [self._answer(task, out) for task, out in zip(tasks, super().train(tasks))]

    def _answer(self, task: Task, outcome: Outcome | None) -> Outcome | None:
        if outcome is None or task.site not in self.ways:
            return outcome
        way = self.ways[task.site]
        return None if way is None else replace(outcome, params=way(outcome.params))


def nan(params: Vector) -> Vector:
    return torch.full_like(params, math.nan)


def odd(ways: dict[int, Callable[[Vector], Vector] | None], **values: object) -> Federation:
    plain = federation()
    engine = Odd(plain.engine, ways=ways)
    return replace(plain, engine=engine, **values).at(1)  # type: ignore[arg-type]


def train_all(fed: Federation, *more: Task) -> dict[NodeId, Outcome]:
    tasks = [fed.task(client, fed.initial()) for client in fed.clients]
    return answered((*fed.clients, *(task.site for task in more)), fed.train([*tasks, *more]))


def test_who_does_not_answer_or_sends_nonsense_is_none() -> None:
    ways: dict[int, Callable[[Vector], Vector] | None] = {
        1: None,
        3: nan,
        4: lambda params: params[:-1],
        5: lambda params: params.double(),
        7: lambda params: 1e4 * params,
    }
    fed = odd(ways)
    outcomes = fed.train([fed.task(client, fed.initial()) for client in fed.clients])
    assert [out is None for out in outcomes] == [c in ways for c in fed.clients]
    assert fed.roll.heard == {0, 2, 6, 8}
    assert set(fed.roll.set_aside) == {3, 4, 5, 7}
    assert fed.roll.set_aside[NodeId(3)] == NOT_FINITE
    assert "times as long as the median update" in fed.roll.set_aside[NodeId(7)]
    assert fed.register.flaws == {3: 1, 4: 1, 5: 1, 7: 1}
    (plain,) = federation().at(1).train([fed.task(NodeId(8), fed.initial())])
    assert plain is not None
    assert outcomes[8] is not None
    assert torch.equal(outcomes[8].params, plain.params)


def test_a_round_has_a_roll_of_its_own_and_one_register() -> None:
    fed = odd({3: nan})
    train_all(fed)
    later = fed.at(2)
    assert (later.roll.heard, later.roll.set_aside) == (set(), {})
    assert later.register is fed.register
    assert later.meter is fed.meter


def test_who_is_not_asked_is_not_trained_and_costs_nothing() -> None:
    fed = odd({}, participation=0.4)
    assert isinstance(fed.engine, Spy)
    cluster = fed.task(CLUSTER, fed.initial(), fed.owned[NodeId(0)])
    found = train_all(fed, cluster)
    assert len(fed.asked) == 4
    assert set(found) == fed.asked | {CLUSTER}
    assert {task.site for task in fed.engine.tasks} == fed.asked | {CLUSTER}
    assert fed.roll.heard == fed.asked
    assert fed.meter.samples_trained == 5 * LOCAL.batches * LOCAL.batch_size
    assert (fed.meter.bytes_down, fed.meter.bytes_up) == (5 * 24, 5 * 24)


def test_who_is_asked_but_not_heard_costs_the_way_there() -> None:
    fed = odd({0: None, 1: None, 2: nan})
    train_all(fed)
    assert fed.meter.samples_trained == 9 * LOCAL.batches * LOCAL.batch_size
    assert (fed.meter.bytes_down, fed.meter.bytes_up) == (9 * 24, 7 * 24)


def test_a_model_that_is_sent_anyway_is_held_out_for_nothing() -> None:
    fed = federation().at(1)
    asks = [(client, fed.initial()) for client in fed.clients]
    assert fed.held_out(asks, sent=True) == fed.held_out(asks)
    assert fed.meter.bytes_down == 9 * 24


def test_who_is_asked_hangs_on_seed_and_round_alone() -> None:
    def asked(seed: int, round: int) -> frozenset[NodeId]:
        return replace(federation(seed=seed), participation=0.5).at(round).asked

    assert asked(3, 4) == asked(3, 4)
    assert len({asked(3, round) for round in range(1, 9)}) > 4
    assert len({asked(seed, 4) for seed in range(8)}) > 4
    assert asked(3, 0) == set(range(9)), "all, in the warm-up"
    assert federation().at(4).asked == set(range(9))


def test_the_quarantined_are_not_asked_until_they_are_back() -> None:
    fed = odd({2: nan}, guard=GuardConfig(patience=2, quarantine=3))
    asked = []
    for round in range(1, 11):
        now = fed.at(round)
        train_all(now)
        asked.append(NodeId(2) in now.asked)
    # Two flaws, three rounds out, one more chance, three rounds out.
    assert asked == [True, True, False, False, False, True, False, False, False, True]


def test_those_asked_are_drawn_among_the_fit() -> None:
    register = Register(back_at={NodeId(c): 9 for c in range(6)})
    fed = replace(federation(), participation=0.7, register=register)
    for round in range(1, 9):
        assert len(fed.at(round).asked & {6, 7, 8}) == len(fed.at(round).asked) == 2
    assert len(fed.at(9).asked) == 6
    nobody = Register(back_at={NodeId(c): 9 for c in range(9)})
    assert replace(fed, register=nobody).at(5).asked == frozenset()
    assert train_all(replace(fed, register=nobody).at(5)) == {}


def test_training_that_blows_up_everywhere_is_an_error() -> None:
    fed = odd(dict.fromkeys(range(9), nan))
    with pytest.raises(
        ModelError, match=r"in round 1 has values that are not finite.*local.learning_rate"
    ):
        train_all(fed)
    fed = odd({**dict.fromkeys(range(8), nan), 8: None})
    with pytest.raises(ModelError, match="in round 1 has values that are not finite"):
        train_all(fed)


def test_a_few_that_send_nonsense_do_not_stop_a_run_when_only_they_are_heard() -> None:
    """They may well be the only ones asked, or to answer."""
    bad = {0: nan, 4: nan}
    fed = odd({**dict.fromkeys(range(9)), **bad}, lossy=True)
    assert train_all(fed) == {}
    assert set(fed.roll.set_aside) == {0, 4}
    for round in range(1, 9):
        few = replace(odd(dict(bad)), participation=0.1).at(round)
        assert set(train_all(few)) == few.asked - {0, 4}


def test_a_cluster_that_fails_is_nobodys_fault() -> None:
    fed = odd({CLUSTER: nan})
    found = train_all(fed, fed.task(CLUSTER, fed.initial(), fed.owned[NodeId(0)]))
    assert set(found) == set(fed.clients)
    assert fed.register == Register()
    assert fed.roll.set_aside == {}


def test_two_answers_of_one_client_are_one_flaw() -> None:
    fed = odd({2: nan})
    train_all(fed, fed.task(NodeId(2), fed.initial(), purpose="other"))
    assert fed.register.flaws == {2: 1}


def test_a_robust_mean_where_one_is_wanted() -> None:
    fed = federation()
    models = {c: torch.full((6,), float(c)) for c in fed.clients}
    models[NodeId(8)] = torch.full((6,), 1e6)
    for how, expected in (("median", 4.0), ("trimmed", 4.0)):
        guard = GuardConfig(aggregate=how)  # type: ignore[arg-type]
        assert replace(fed, guard=guard).mean(models).tolist() == [expected] * 6
    assert float(fed.mean(models)[0]) > 1e4


def test_what_a_federation_is_at_a_round_is_its_stage() -> None:
    fed = federation()
    first = dict(enumerate(fed.data.clients[:6]))
    later = {c: fed.data.clients[c] for c in (0, 1, 2, 6, 7)}
    changed = replace(first[1], train=first[1].train[:4], holdout=first[1].train[4:6])
    stages = (
        Stage(0, first, (tuple(range(9)),)),
        Stage(2, {**later, 1: changed}, (tuple(range(9)),)),
    )
    fed = replace(fed, data=replace(fed.data, stages=stages))
    for round, there in ((0, range(6)), (1, range(6)), (2, later), (7, later)):
        now = fed.at(round)
        assert now.clients == tuple(there)
        assert set(now.owned) == set(now.priors) == set(there)
        assert now.first_id == 9
    assert fed.at(1).size(NodeId(1)) == len(first[1].train)
    assert fed.at(2).size(NodeId(1)) == 4
    np.testing.assert_array_equal(fed.at(2).judged_on(NodeId(1)), changed.holdout)
    probe = fed.at(2).probe(10**6)
    assert set(probe.tolist()) == {row for rows in fed.at(2).owned.values() for row in rows}


def test_other_stages_are_other_data() -> None:
    fed = federation()
    all_there = dict(enumerate(fed.data.clients))
    without = {c: rows for c, rows in all_there.items() if c != 4}
    one, other = (
        replace(fed, data=replace(fed.data, stages=(Stage(0, all_there), Stage(1, later))))
        for later in (all_there, without)
    )
    assert one.fingerprint() != other.fingerprint()
    assert one.fingerprint() == replace(one).fingerprint() == one.at(1).fingerprint()


def test_it_is_known_whether_some_may_be_missed() -> None:
    fed = federation()
    assert not fed.may_miss
    assert replace(fed, participation=0.5).may_miss
    assert replace(fed, lossy=True).may_miss
