"""Private training: the same on every engine, and no sample moves it by more than the clip."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sofa_fl.data.federated_data import FederatedData
from sofa_fl.engine.base import Exam, Noising, Pull, Task
from sofa_fl.engine.private import clipped_sums, noise_scale
from sofa_fl.engine.private_stack import _Stack
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.errors import ModelError
from sofa_fl.topology.tree import NodeId
from tests.engine.cases import DATA, LOCAL, MLP, NETWORKS, EngineCase, make_data

NOISING = Noising(clip=0.5, noise=1.2, max_loss=2.0)
EXACT = Noising(clip=1e9, noise=0.0, max_loss=1e9)
PLAIN = replace(LOCAL, optimizer="sgd", learning_rate=0.1)


def tasks_of(engine: SequentialEngine, noising: Noising, **changes: object) -> list[Task]:
    """A task per client; some are pulled, by other weights, and have a class mix."""
    tasks = []
    for number, client in enumerate(DATA.clients):
        pulls = (Pull(engine.initial(9), 0.01 * number),) if number else ()
        prior = np.log(np.full(4, 0.25, dtype=np.float32)) * number
        tasks.append(
            Task(
                site=NodeId(number), start=engine.initial(0), samples=client.train, batches=4,
                seed=100 + number, pulls=pulls, prior=prior, noising=noising,
            )
        )  # fmt: skip
    return [replace(task, **changes) for task in tasks]  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("network", ["mlp", "cnn", "stride, groups, norms"])
def test_every_engine_trains_the_same_with_the_same_noise(
    case: EngineCase, network: str, optimizer: str
) -> None:
    local = replace(LOCAL, optimizer="adam") if optimizer == "adam" else PLAIN
    reference = SequentialEngine(NETWORKS[network], DATA, local)
    wanted = reference.train(tasks_of(reference, NOISING))
    engine = case.make(NETWORKS[network], DATA, local)
    try:
        got = engine.train(tasks_of(reference, NOISING))
    finally:
        engine.close()
    for ours, theirs in zip(got, wanted):
        bound = case.tolerance * float(theirs.params.norm())
        assert float((ours.params - theirs.params).norm()) <= bound
        np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-4 if case.tolerance else 0)


@pytest.mark.parametrize("part", ["body", "head"])
def test_a_part_of_the_network_is_trained_alone(part: str) -> None:
    reference = SequentialEngine(MLP, DATA, PLAIN)
    stacked = StackedEngine(MLP, DATA, PLAIN, "cpu")
    tasks = tasks_of(reference, NOISING, part=part)
    head = reference.num_trainable - reference.num_head
    for ours, theirs in zip(stacked.train(tasks), reference.train(tasks)):
        moved = theirs.params != reference.initial(0)
        still = moved[:head] if part == "head" else moved[head:]
        assert not still.any()
        assert moved.any()
        torch.testing.assert_close(ours.params, theirs.params, rtol=1e-4, atol=1e-5)


def test_draws_belong_to_the_task() -> None:
    """Whoever trains beside a client, its outcome is the same, and another seed gives another."""
    engine = StackedEngine(MLP, DATA, PLAIN, "cpu")
    single = SequentialEngine(MLP, DATA, PLAIN)
    together = engine.train(tasks_of(single, NOISING))
    alone = [engine.train([task])[0] for task in tasks_of(single, NOISING)]
    for one, other in zip(together, alone):
        torch.testing.assert_close(one.params, other.params, rtol=1e-4, atol=1e-6)
    (again,) = engine.train(tasks_of(single, NOISING, seed=7)[:1])
    assert not torch.allclose(again.params, together[0].params)


def test_without_cut_and_noise_it_is_plain_training() -> None:
    """A batch as large as the client has every sample, in private training as in any other."""
    data = make_data((40,))
    local = replace(PLAIN, batch_size=len(data.clients[0].train))
    engine = SequentialEngine(MLP, data, local)
    task = Task(
        site=NodeId(0), start=engine.initial(0), samples=data.clients[0].train, batches=3, seed=1
    )
    plain, private = engine.train([task, replace(task, noising=EXACT)])
    torch.testing.assert_close(private.params, plain.params, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(private.losses, plain.losses, rtol=1e-4)


def wild(row: int) -> FederatedData:
    """The data with one sample that is far out."""
    x = DATA.train.x.astype(np.float32)
    x[row] = 1e4
    return replace(DATA, train=replace(DATA.train, x=x))


@pytest.mark.parametrize("position", [0, 20])
def test_one_sample_changes_a_sum_by_no_more_than_the_clip(position: int) -> None:
    """In both forms: of a client alone, and in a stack."""
    rows = DATA.clients[1].train
    less = np.delete(rows, position)
    for data in (DATA, wild(int(rows[position]))):
        learner = SequentialEngine(MLP, data, PLAIN).learner
        learner.flat.load(learner.initial(0))
        prior = torch.zeros(4)
        with_it, without = (
            clipped_sums(learner, torch.from_numpy(some), prior, NOISING, slice(None))
            for some in (rows, less)
        )
        task = Task(site=NodeId(1), start=learner.initial(0), samples=rows, batches=1, seed=0)
        stack = _Stack(learner, [task, task])
        stacked, totals = stack.clipped_sums([rows, less], [NOISING, NOISING])
        for more, fewer in (
            (with_it[0], without[0]),
            ([part[0] for part in stacked], [part[1] for part in stacked]),
        ):
            gap = torch.cat([(a - b).flatten() for a, b in zip(more, fewer)])
            assert 0 < float(gap.norm()) <= NOISING.clip * 1.0001
        for gap_of_losses in (with_it[1] - without[1], totals[0] - totals[1]):
            assert -1e-4 <= gap_of_losses <= NOISING.max_loss * 1.0001


def test_noise_is_as_strong_as_it_says() -> None:
    """What two tasks differ by that see the same samples: noise alone."""
    data = make_data((40,))
    local = replace(PLAIN, batch_size=len(data.clients[0].train), learning_rate=1.0)
    engine = StackedEngine(MLP, data, replace(local, weight_decay=0.0), "cpu")
    start, rows = engine.initial(0), data.clients[0].train
    tasks = [
        Task(site=NodeId(0), start=start, samples=rows, batches=1, seed=s, noising=NOISING)
        for s in range(20)
    ]
    vectors = torch.stack([outcome.params for outcome in engine.train(tasks)])
    spread = float((vectors - vectors.mean(dim=0)).square().sum() / (19 * vectors.shape[1])) ** 0.5
    assert spread * len(rows) == pytest.approx(noise_scale(NOISING), rel=0.03)


def test_exams_cut_losses_on_every_engine(case: EngineCase) -> None:
    engine = case.make(MLP, DATA, LOCAL)
    single = SequentialEngine(MLP, DATA, LOCAL)
    model = engine.initial(3) * 8  # some samples lose a lot
    rows = DATA.clients[1].train
    try:
        free, cut, low = engine.evaluate(
            [Exam(model, rows), Exam(model, rows, max_loss=1.0), Exam(model, rows, max_loss=1e-3)]
        )
    finally:
        engine.close()
    each = [single.evaluate([Exam(model, rows[i : i + 1])])[0].loss for i in range(len(rows))]
    assert free.loss == pytest.approx(np.mean(each), rel=1e-4)
    assert cut.loss == pytest.approx(np.mean(np.minimum(each, 1.0)), rel=1e-4)
    assert low.loss <= 1e-3
    assert free.accuracy == cut.accuracy == low.accuracy


def test_batchnorm_is_refused() -> None:
    for make in (SequentialEngine, StackedEngine):
        engine = make(NETWORKS["mlp with BatchNorm"], DATA, PLAIN, "cpu")
        single = SequentialEngine(NETWORKS["mlp with BatchNorm"], DATA, PLAIN)
        with pytest.raises(ModelError, match="is not possible with BatchNorm"):
            engine.train(tasks_of(single, NOISING))


def test_a_network_without_gradients_of_samples_is_refused() -> None:
    class Asking(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input.flatten(1)) * (1 if float(input.sum()) > 0 else 2)

    def factory() -> nn.Module:
        return Asking(64, 4)

    engines = (
        SequentialEngine(factory, DATA, PLAIN),
        StackedEngine(factory, DATA, PLAIN, "cpu"),
    )
    for engine in engines:
        with pytest.raises(ModelError, match="cannot be trained with privacy, which needs the"):
            engine.train(tasks_of(engines[0], NOISING))
