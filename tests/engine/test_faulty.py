"""Clients that fail: always the same ones, in the way asked for, and clusters never."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sofa_fl.engine.base import Exam, Outcome, Pull, Task
from sofa_fl.engine.config import FaultKind, FaultsConfig
from sofa_fl.engine.faulty import HUGE, FaultyEngine, draw_bad
from sofa_fl.models.flat import Mix, as_vector
from sofa_fl.seeding import seed_for
from sofa_fl.topology.tree import NodeId
from tests.engine.quadratic import QuadraticEngine, quadratic_data
from tests.methods.cases import Spy

NUM_CLIENTS = 20
DATA, PLAIN = quadratic_data(np.random.default_rng(0).normal(size=(NUM_CLIENTS, 5)))


def faulty(engine: QuadraticEngine | Spy = PLAIN, seed: int = 0, **values: float) -> FaultyEngine:
    return FaultyEngine(engine, FaultsConfig(**values), NUM_CLIENTS, seed)  # type: ignore[arg-type]


def tasks(round: int = 1, num: int = NUM_CLIENTS) -> list[Task]:
    """One per client; those above their number are for clusters."""
    return [
        Task(
            site=NodeId(site),
            start=PLAIN.initial(site),
            samples=DATA.clients[site % NUM_CLIENTS].train,
            batches=10,
            seed=seed_for(0, round, site, "train"),
        )
        for site in range(num)
    ]


def same(one: Outcome | None, other: Outcome | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.params, other.params) and np.array_equal(one.losses, other.losses)


def test_without_faults_nothing_is_changed() -> None:
    engine = faulty()
    assert not engine.config.are_there
    for mine, plain in zip(engine.train(tasks()), PLAIN.train(tasks())):
        assert same(mine, plain)
    assert torch.equal(engine.initial(3), PLAIN.initial(3))
    assert engine.num_trainable == PLAIN.num_trainable
    exam = Exam(PLAIN.initial(0), DATA.clients[0].holdout)
    assert engine.evaluate([exam]) == PLAIN.evaluate([exam])
    models = [PLAIN.initial(0), PLAIN.initial(1)]
    rows = DATA.clients[0].train
    np.testing.assert_array_equal(engine.embed(models, rows), PLAIN.embed(models, rows))


@pytest.mark.parametrize("key", ["dropout", "straggle", "bad"])
def test_any_fault_is_one(key: str) -> None:
    assert FaultsConfig(**{key: 0.1}).are_there  # type: ignore[arg-type]


def test_faults_are_those_of_the_task_whatever_else_is_asked() -> None:
    """So a run that goes on from a checkpoint has them again."""
    config = FaultsConfig(dropout=0.4, straggle=0.5, bad=0.3)
    engines = [FaultyEngine(PLAIN, config, NUM_CLIENTS) for _ in range(2)]
    whole = {round: engines[0].train(tasks(round)) for round in (1, 2, 3)}
    again = engines[1]
    for round in (3, 1):
        for task, outcome in zip(reversed(tasks(round)), reversed(whole[round])):
            (alone,) = again.train([task])
            if outcome is not None and outcome.params.isnan().any():
                assert alone is not None
                assert bool(alone.params.isnan().all())
            else:
                assert same(alone, outcome)
    missing = [{at for at, out in enumerate(whole[r]) if out is None} for r in (1, 2, 3)]
    assert len(set(map(frozenset, missing))) == 3, "others in every round"


def test_dropout_is_as_often_as_said_and_costs_no_training() -> None:
    spy = Spy(PLAIN)
    engine = faulty(spy, dropout=0.3)
    outcomes = [out for round in range(50) for out in engine.train(tasks(round))]
    num_lost = sum(outcome is None for outcome in outcomes)
    assert num_lost == pytest.approx(0.3 * len(outcomes), abs=60)
    assert len(spy.tasks) == len(outcomes) - num_lost
    assert faulty(dropout=1.0).train(tasks()) == [None] * NUM_CLIENTS


def test_answers_stay_in_the_order_asked() -> None:
    outcomes = faulty(dropout=0.5).train(iter(tasks()))
    plain = PLAIN.train(tasks())
    assert {outcome is None for outcome in outcomes} == {True, False}
    for outcome, expected in zip(outcomes, plain, strict=True):
        assert outcome is None or same(outcome, expected)


def test_stragglers_manage_a_part_of_their_batches() -> None:
    spy = Spy(PLAIN)
    engine = faulty(spy, straggle=0.5)
    for round in range(20):
        engine.train(tasks(round))
    batches = [task.batches for task in spy.tasks]
    assert set(batches) == set(range(1, 11))
    late = sum(number < 10 for number in batches)
    assert late == pytest.approx(0.5 * 0.9 * len(batches), abs=50)  # one in ten is just in time
    for asked, (outcome, task) in zip(tasks(19), zip(engine.train(tasks(19)), spy.tasks[-20:])):
        assert outcome is not None
        assert len(outcome.losses) == task.batches <= asked.batches
        assert same(outcome, PLAIN.train([replace(asked, batches=task.batches)])[0])


def test_a_single_batch_cannot_be_cut_short() -> None:
    few = [replace(task, batches=1) for task in tasks()]
    for mine, plain in zip(faulty(straggle=1.0).train(few), PLAIN.train(few)):
        assert same(mine, plain)


def test_clusters_never_fail() -> None:
    above = tasks(num=2 * NUM_CLIENTS)[NUM_CLIENTS:]
    engine = faulty(dropout=1.0, straggle=1.0, bad=1.0)
    for mine, plain in zip(engine.train(above), PLAIN.train(above)):
        assert same(mine, plain)


@pytest.mark.parametrize("kind", ["nan", "huge", "flip"])
def test_what_the_bad_ones_send(kind: FaultKind) -> None:
    engine = FaultyEngine(PLAIN, FaultsConfig(bad=0.25, kind=kind), NUM_CLIENTS, seed=3)
    assert len(engine.bad) == 5
    asked = [replace(task, pulls=(Pull(PLAIN.initial(9), 0.5),)) for task in tasks()]
    for task, mine, plain in zip(asked, engine.train(asked), PLAIN.train(asked)):
        assert mine is not None
        np.testing.assert_array_equal(mine.losses, plain.losses)
        if task.site not in engine.bad:
            assert same(mine, plain)
        elif kind == "nan":
            assert bool(mine.params.isnan().all())
        else:
            factor = HUGE if kind == "huge" else -1
            start = as_vector(task.start)
            torch.testing.assert_close(mine.params - start, factor * (plain.params - start))


def test_a_blend_as_start_is_taken_for_what_it_is() -> None:
    engine = FaultyEngine(PLAIN, FaultsConfig(bad=1.0, kind="flip"), NUM_CLIENTS)
    mix = Mix((PLAIN.initial(0), PLAIN.initial(1)), (0.25, 0.75))
    task = replace(tasks()[0], start=mix)
    (mine,), (plain,) = engine.train([task]), PLAIN.train([task])
    assert mine is not None
    torch.testing.assert_close(mine.params + plain.params, 2 * as_vector(mix))


def test_who_is_bad_is_drawn_once_by_the_seed() -> None:
    config = FaultsConfig(bad=0.3)
    bad = draw_bad(config, NUM_CLIENTS, 1)
    assert bad == draw_bad(config, NUM_CLIENTS, 1)
    assert set(bad) <= set(range(NUM_CLIENTS))
    assert [list(bad.values()).count(kind) for kind in ("nan", "huge", "flip")] == [2, 2, 2]
    assert len({frozenset(draw_bad(config, NUM_CLIENTS, seed)) for seed in range(9)}) == 9
    assert draw_bad(FaultsConfig(bad=0.01), NUM_CLIENTS, 1) == {}
    alike = draw_bad(FaultsConfig(bad=0.3, kind="flip"), NUM_CLIENTS, 1)
    assert alike == dict.fromkeys(bad, "flip")


def test_bad_ones_may_drop_out_too() -> None:
    engine = FaultyEngine(PLAIN, FaultsConfig(bad=1.0, kind="nan", dropout=0.5), NUM_CLIENTS)
    outcomes = engine.train(tasks())
    assert {outcome is None for outcome in outcomes} == {True, False}
    assert all(out.params.isnan().all() for out in outcomes if out is not None)


def test_closing_closes_the_engine_within() -> None:
    closed = []

    class Closing(Spy):
        def close(self) -> None:
            closed.append(True)

    faulty(Closing(PLAIN)).close()
    assert closed == [True]
