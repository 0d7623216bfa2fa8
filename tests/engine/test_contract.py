"""What every engine owes its callers: the sequential engine's results, in order, ask by ask."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sofa_fl.engine.base import Exam, Prior, Pull, Task
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.errors import ModelError
from sofa_fl.models.flat import Mix, Vector, mean
from sofa_fl.models.networks import Mlp
from tests.engine.cases import (
    DATA,
    ENGINES,
    LOCAL,
    MLP,
    NETWORKS,
    NUM_CLASSES,
    SHAPE,
    Dropper,
    EngineCase,
    assert_same,
    distance,
    running,
    task,
)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_gives_what_the_sequential_engine_gives(
    case: EngineCase, network: str, optimizer: str
) -> None:
    kind = {"adam": LOCAL, "sgd": replace(LOCAL, optimizer="sgd", momentum=0.5)}[optimizer]
    factory = NETWORKS[network]
    plain = SequentialEngine(factory, DATA, kind)
    start, other = plain.initial(1), plain.initial(2)
    tasks = [task(start, client, seed=client) for client in range(4)]
    tasks[1] = replace(tasks[1], start=other, pulls=(Pull(start, 0.3), Pull(other, 0.1)))
    tasks[2] = replace(tasks[2], pulls=(Pull(other, 1e-3),), batches=3)
    with running(case, factory, local=kind) as engine:
        assert engine.num_trainable == plain.num_trainable
        assert torch.equal(engine.initial(1), start)
        outcomes = engine.train(tasks)
        expected = plain.train(tasks)
        assert_same(outcomes, expected, case)
        exams = [Exam(o.params, DATA.clients[i].holdout) for i, o in enumerate(expected)]
        exams += [Exam(start, np.arange(30), "test")]
        for score, same in zip(engine.evaluate(exams), plain.evaluate(exams), strict=True):
            assert score.loss == pytest.approx(same.loss, rel=case.tolerance or 1e-12)
            assert score.accuracy == pytest.approx(same.accuracy)
            assert score.num_samples == same.num_samples


def test_a_prior_is_added_to_the_outputs(case: EngineCase) -> None:
    """So it does what the same numbers would in the last layer's bias, each task's its own."""
    local = replace(LOCAL, weight_decay=0.0)
    priors = [np.log(np.array([k + 1, 2, 3, 4], dtype=np.float32)) for k in range(3)]
    with running(case, local=local) as engine:
        start, rows = engine.initial(0), DATA.clients[1].train
        shifted = [with_bias(start, prior) for prior in priors]
        plain = [task(model, i, seed=i) for i, model in enumerate(shifted)]
        asked = [task(start, i, seed=i, prior=prior) for i, prior in enumerate(priors)]
        outcomes, expected = engine.train(asked), engine.train(plain)
        for outcome, same, prior in zip(outcomes, expected, priors):
            assert distance(with_bias(outcome.params, prior), same.params) < 1e-4
            np.testing.assert_allclose(outcome.losses, same.losses, rtol=1e-4)
        exams = [Exam(start, rows[: 9 * i], prior=p) for i, p in enumerate([None, *priors])]
        same_exams = [Exam(m, rows[: 9 * i]) for i, m in enumerate([start, *shifted])]
        scores, same_scores = engine.evaluate(exams[1:]), engine.evaluate(same_exams[1:])
        assert [s.loss for s in scores] == pytest.approx([s.loss for s in same_scores], rel=1e-5)
        assert len({round(score.loss, 4) for score in scores}) == 3
        assert engine.evaluate(exams[:1])[0].num_samples == 0


def with_bias(model: Vector, prior: Prior) -> Vector:
    """The network of `MLP`, whose last numbers are the bias of its last layer."""
    moved = model.clone()
    moved[-NUM_CLASSES:] += torch.from_numpy(prior)
    return moved


def test_a_prior_may_name_fewer_outputs_than_there_are(case: EngineCase) -> None:
    prior = np.log(np.array([1, 2], dtype=np.float32))
    with running(case) as engine:
        start = engine.initial(0)
        padded = np.append(prior, np.zeros(2, dtype=np.float32))
        one, same = engine.train([task(start, prior=p) for p in (prior, padded)])
        assert_same([one], [same], case)


def test_a_task_may_name_its_learning_rate(case: EngineCase) -> None:
    half = LOCAL.learning_rate / 2
    halved = SequentialEngine(MLP, DATA, replace(LOCAL, learning_rate=half))
    with running(case) as engine:
        start = engine.initial(0)
        tasks = [task(start, seed=1, learning_rate=rate) for rate in (half, None, half)]
        slow, full, again = engine.train(tasks)
        assert_same([slow, again], halved.train([task(start, seed=1)] * 2), case)
        assert distance(slow.params, full.params) > 1e-3


def test_results_come_in_the_order_asked(case: EngineCase) -> None:
    """Of unequal length, so that those asked later are ready sooner."""
    with running(case) as engine:
        starts = [engine.initial(i) for i in range(6)]
        tasks = [task(s, i % 4, seed=i, batches=12 - 2 * i) for i, s in enumerate(starts)]
        together = engine.train(tasks)
        assert [len(outcome.losses) for outcome in together] == [12, 10, 8, 6, 4, 2]
        assert_same(together, [engine.train([one])[0] for one in tasks], case)
        sizes = [25, 1, 13, 4]
        exams = [Exam(starts[i], np.arange(n)) for i, n in enumerate(sizes)]
        scores = engine.evaluate(exams)
        assert [score.num_samples for score in scores] == sizes
        for score, exam in zip(scores, exams):
            assert score.loss == pytest.approx(engine.evaluate([exam])[0].loss, rel=1e-5)


def test_a_task_depends_on_nothing_but_itself(case: EngineCase) -> None:
    with running(case) as engine:
        tasks = [task(engine.initial(i), i, seed=i) for i in range(4)]
        first = engine.train(tasks)
        assert_same(engine.train(tasks[::-1])[::-1], first, case)
        assert_same(engine.train([tasks[2]]), [first[2]], case)
        assert_same(engine.train([tasks[3], tasks[3]]), [first[3], first[3]], case)


def test_draws_come_from_the_seed(case: EngineCase) -> None:
    with running(case) as engine:
        start = engine.initial(0)
        torch.manual_seed(1)
        one, other, again = engine.train([task(start, seed=s) for s in (1, 2, 1)])
        torch.manual_seed(2)
        (later,) = engine.train([task(start, seed=1)])
        assert_same([one], [again], case)
        assert_same([one], [later], case)
        assert distance(one.params, other.params) > 1e-3
        assert not np.allclose(one.losses, other.losses)


def test_leaves_torchs_generator_alone(case: EngineCase) -> None:
    with running(case) as engine:
        before = torch.random.get_rng_state()
        engine.train([task(engine.initial(0))])
        assert torch.equal(torch.random.get_rng_state(), before)


def test_training_lowers_the_loss(case: EngineCase) -> None:
    with running(case) as engine:
        start, rows = engine.initial(0), DATA.clients[1].train
        (outcome,) = engine.train([task(start, 1, batches=30)])
        assert outcome.losses[-5:].mean() < outcome.losses[:5].mean() / 2
        before, after = engine.evaluate([Exam(start, rows), Exam(outcome.params, rows)])
        assert after.loss < before.loss / 2
        assert after.accuracy > before.accuracy


def test_sites_of_any_size(case: EngineCase) -> None:
    """Fewer samples than a batch, one alone, more than are seen."""
    with running(case) as engine:
        start = engine.initial(0)
        tasks = [task(start, samples=np.arange(n)) for n in (1, 5, 16, 200)]
        assert_same(engine.train(tasks), SequentialEngine(MLP, DATA, LOCAL).train(tasks), case)


def test_every_task_has_its_own_pulls(case: EngineCase) -> None:
    with running(case) as engine:
        start, far = engine.initial(0), engine.initial(1)
        free = task(start)
        one = replace(free, pulls=(Pull(far, 0.5),))
        two = replace(free, pulls=(Pull(far, 0.25), Pull(far, 0.25)))
        home = replace(free, pulls=(Pull(start, 5.0),))
        outcomes = engine.train([free, one, two, home])
        to_far = [distance(outcome.params, far) for outcome in outcomes]
        assert to_far[1] < to_far[0]
        torch.testing.assert_close(outcomes[1].params, outcomes[2].params, rtol=1e-3, atol=1e-3)
        assert distance(outcomes[3].params, start) < distance(outcomes[0].params, start)


def test_reported_losses_leave_the_pulls_out(case: EngineCase) -> None:
    with running(case) as engine:
        start = engine.initial(0)
        pulled = replace(task(start, batches=1), pulls=(Pull(start + 10, 1.0),))
        with_pull, without = engine.train([pulled, task(start, batches=1)])
        assert with_pull.losses == pytest.approx(without.losses, rel=1e-5)


def test_running_statistics_travel_with_the_model(case: EngineCase) -> None:
    factory = NETWORKS["mlp with BatchNorm"]
    with running(case, factory) as engine:
        start = engine.initial(0)
        (outcome,) = engine.train([task(start)])
        n = engine.num_trainable
        assert len(start) == n + 2 * 16
        assert distance(outcome.params[n:], start[n:]) > 0.1
        moved = start.clone()
        moved[n:] = outcome.params[n:]
        rows = DATA.clients[0].train
        plain, with_statistics = engine.evaluate([Exam(start, rows), Exam(moved, rows)])
        assert plain.loss != with_statistics.loss


def test_dropout_draws_from_the_seed_of_the_task(case: EngineCase) -> None:
    with running(case, Dropper) as engine:
        tasks = [task(engine.initial(0), i, seed=i) for i in range(4)]
        first = engine.train(tasks)
        assert_same(engine.train(tasks[::-1])[::-1], first, case)
        assert_same(first, SequentialEngine(Dropper, DATA, LOCAL).train(tasks), case)
        same_rows = [task(engine.initial(0), samples=np.arange(1), seed=s) for s in (1, 2)]
        one, other = engine.train(same_rows)  # one sample: nothing but the dropout differs
        assert distance(one.params, other.params) > 1e-3


def test_asks_and_earlier_results_are_left_as_they_are(case: EngineCase) -> None:
    with running(case) as engine:
        start, target = engine.initial(0), engine.initial(1)
        copies = start.clone(), target.clone()
        asked = replace(task(start), pulls=(Pull(target, 0.1),))
        (first,) = engine.train([asked])
        kept = first.params.clone()
        engine.train([task(target, 1), task(target, 2)])
        engine.evaluate([Exam(target, np.arange(9))])
        assert torch.equal(first.params, kept)
        assert torch.equal(start, copies[0])
        assert torch.equal(target, copies[1])


def counting() -> nn.Module:
    """Without momentum, BatchNorm counts its batches in an integer buffer and divides by it."""
    norm = nn.BatchNorm1d(16, momentum=None)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), norm, nn.Linear(16, NUM_CLASSES))


def test_counts_start_anew_with_every_task(case: EngineCase) -> None:
    with running(case, counting) as engine:
        tasks = [task(engine.initial(0), i, seed=i) for i in range(4)]
        assert_same(engine.train(tasks[::-1])[::-1], engine.train(tasks), case)


def test_a_model_of_another_size_is_refused(case: EngineCase) -> None:
    with running(case) as engine:
        start = engine.initial(0)
        right = task(start)
        for size in (1, len(start) - 1, len(start) + 1):
            wrong = torch.zeros(size)
            with pytest.raises(ModelError, match=f"a vector of {size} numbers does not fit"):
                engine.train([right, replace(right, start=wrong)])
            with pytest.raises(ModelError, match=f"a vector of {size} numbers does not fit"):
                engine.evaluate([Exam(wrong, np.arange(3))])


def test_a_mix_is_loaded_as_the_mean_it_stands_for(case: EngineCase) -> None:
    with running(case) as engine:
        models = tuple(engine.initial(i) for i in range(3))
        mix, alone = Mix(models, (0.5, 0.2, 0.3)), Mix(models[:1], (1.0,))
        meant = mean(models, (0.5, 0.2, 0.3))
        rows, few = DATA.clients[1].train, np.arange(9)
        started = engine.train([task(mix, samples=rows), task(alone, samples=rows)])
        expected = engine.train([task(meant, samples=rows), task(models[0], samples=rows)])
        assert_same(started, expected, case)
        scores = engine.evaluate([Exam(mix, few), Exam(alone, few, "test")])
        assert scores == engine.evaluate([Exam(meant, few), Exam(models[0], few, "test")])
        with pytest.raises(ModelError, match="a vector of 3 numbers does not fit"):
            engine.train([task(Mix((torch.zeros(3), torch.ones(3)), (0.5, 0.5)))])


@pytest.mark.parametrize("case", [case for case in ENGINES if not case.tolerance], ids=str)
def test_tasks_are_drawn_as_they_are_needed_and_let_go(case: EngineCase) -> None:
    """So that models of thousands of clients need not be there at the same time."""
    with running(case) as engine:
        starts: list[weakref.ref[torch.Tensor]] = []
        most = 0

        def tasks() -> Iterator[Task]:
            nonlocal most
            for number in range(9):
                start = engine.initial(number)
                starts.append(weakref.ref(start))
                one = task(start, number % 4)
                del start
                yield one
                del one
                most = max(most, sum(start() is not None for start in starts))

        outcomes = engine.train(tasks())
        assert most <= 3, "one for each worker, and the next"
        again = engine.train([task(engine.initial(i), i % 4) for i in range(9)])
        assert_same(outcomes, again, case)


def half_frozen() -> nn.Module:
    network = Mlp(SHAPE, NUM_CLASSES, hidden=16, batch_norm=False)
    network.body.requires_grad_(False)
    return network


def test_frozen_weights_stay_where_they_are(case: EngineCase) -> None:
    """Neither weight decay nor a pull moves them."""

    with running(case, half_frozen) as engine:
        start, n = engine.initial(0), engine.num_trainable
        assert n == len(start) == 16 * NUM_CLASSES + NUM_CLASSES
        (before,) = engine.evaluate([Exam(start, np.arange(30))])
        (outcome,) = engine.train([replace(task(start), pulls=(Pull(start + 1, 1.0),))])
        assert distance(outcome.params, start) > 1e-3
        (after,) = engine.evaluate([Exam(start, np.arange(30))])
        assert before == after
