"""What a step of many clients must know of their pulls."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sofa_fl.engine import stacked
from sofa_fl.engine.base import Pull
from sofa_fl.engine.map_clients import UndecidedError
from sofa_fl.engine.mapping import Product
from sofa_fl.engine.precision import multiplying_in_tf32
from sofa_fl.engine.recall import round_up
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stack import LayerStack
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.engine.stepper import Pulls
from sofa_fl.models.flat import Mix
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.rows import rows_of
from tests.engine.cases import DATA, ENGINES, LOCAL, MLP, assert_same, task


def test_a_weight_decay_that_all_agree_on_is_the_optimizers() -> None:
    assert Pulls.of([]) == Pulls(some=False)
    assert Pulls.of([0.5, 0.5]) == Pulls(True, 0.5)


def test_a_step_does_not_depend_on_how_clients_differ() -> None:
    """Or it would be captured anew whenever a cluster grows."""
    first, second = (Pulls.of([0.5, x]) for x in (0.25, 0.75))
    assert first == second == Pulls(True, differ=True)


def test_a_part_of_the_clients_has_one_step_in_all_rounds() -> None:
    """Clusters grow with newcomers, and with them the decay of all their clients."""
    engine = StackedEngine(MLP, DATA, LOCAL, "cpu")
    with closing(engine):
        start = engine.initial(0)
        for weight in (0.1, 0.2, 0.3):
            engine.train([replace(task(start, 0), pulls=(Pull(start, weight),))])
        assert list(engine._steppers) == [(1, Pulls(True, differ=True), "all")]


def test_trained_models_do_not_keep_each_other_in_memory() -> None:
    engine = StackedEngine(MLP, DATA, LOCAL, "cpu")
    with closing(engine):
        start = engine.initial(0)
        outcomes = engine.train([task(start, client) for client in range(3)])
        for outcome in outcomes:
            assert outcome.params.untyped_storage().nbytes() == start.nbytes


def test_operations_do_not_grow_with_the_clients_that_are_loaded() -> None:
    """Mixed starts, pulls and exams of mixes: as many operations for eight clients as for two."""
    engine = StackedEngine(MLP, DATA, LOCAL, "cpu")
    counts = []
    with closing(engine):
        parts = [engine.initial(seed) for seed in range(9)]
        for num in (2, 8):
            mixes = [Mix((parts[0], parts[1 + i]), (0.5, 0.5)) for i in range(num)]
            tasks = [
                replace(task(mix, i % 4), pulls=(Pull(parts[1 + i], 0.1), Pull(parts[0], 0.2)))
                for i, mix in enumerate(mixes)
            ]
            with Operations() as operations:
                engine._pulled(tasks)
                rows_of(mixes, len(parts[0]))
            counts.append(operations.count)
    assert counts[0] == counts[1] > 0


class LooksAtValues(nn.Module):
    """Looks at a value of all samples."""

    def forward(self, x: Tensor) -> Tensor:
        return x.log_softmax(dim=1) if float(x.max()) > 0 else x


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what torch is told to do."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if "slice" not in str(func):  # no more than a view
            self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("weights", [(0.1, 0.1, 0.1), (0.1, 0.3, 0.02), (0.1, 0.0, 0.1)])
def test_pulls_of_any_kind_go_together(weights: tuple[float, ...]) -> None:
    case = next(case for case in ENGINES if case.name == "stacked")
    plain, engine = SequentialEngine(MLP, DATA, LOCAL), StackedEngine(MLP, DATA, LOCAL, "cpu")
    with closing(plain), closing(engine):
        start, target = plain.initial(0), plain.initial(1)
        tasks = [
            replace(task(start, client), pulls=(Pull(target, w),) if w else ())
            for client, w in enumerate(weights)
        ]
        for _ in range(2):  # the second time with what the first left in the optimizer
            assert_same(engine.train(tasks), plain.train(tasks), case)


def test_stacks_for_exams_are_made_once_as_far_as_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "KEPT_ROWS", 20)
    engine = StackedEngine(MLP, DATA, LOCAL, "cpu")
    with closing(engine):
        first = {num: engine._stack(num) for num in (1, 2, 3, 4, 5)}
        assert all(engine._stack(num) is stack for num, stack in first.items())
        engine._stack(8)  # 23 in all
        assert list(engine._stacks) == [3, 4, 5, 8]
        engine._stack(3)
        engine._stack(32)
        assert list(engine._stacks) == [32]


def test_stacks_for_exams_come_in_few_sizes() -> None:
    sizes = [round_up(num) for num in range(1, 257)]
    assert all(num <= size <= 1.25 * num for num, size in enumerate(sizes, start=1))
    assert len(set(sizes)) == 28
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("odd", [nn.Dropout(0.5), LooksAtValues()])
def test_only_what_is_known_not_to_look_at_values_is_not_watched(odd: nn.Module) -> None:
    """Watched or not, a network that is scored gives the same; one that looks is found out."""
    made = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), odd)
    stack = LayerStack(FlatNetwork(made), 2)
    assert stack.is_plain == isinstance(odd, nn.Dropout)
    stack.load(torch.randn(2, stack.size))
    x = torch.randn(10, 6)
    if not stack.is_plain:
        with pytest.raises(UndecidedError):
            stack.forward(x, training=False)
        return
    found = stack.forward(x, training=False)
    stack.is_plain = False
    assert torch.equal(stack.forward(x, training=False), found)


def test_the_precision_of_scores_is_that_of_scores_alone() -> None:
    before = torch.get_float32_matmul_precision()
    with multiplying_in_tf32(False):
        assert torch.get_float32_matmul_precision() == before
    with multiplying_in_tf32(True):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


def test_a_product_in_low_precision_has_gradients_of_the_weights_precision() -> None:
    x = torch.randn(2, 5, 3).bfloat16().requires_grad_()
    weight = torch.randn(2, 4, 3).requires_grad_()
    out = Product.apply(x, weight)  # type: ignore[no-untyped-call]
    assert out.dtype == torch.bfloat16
    d_x, d_weight = torch.autograd.grad(out.float().square().sum(), [x, weight])
    assert (d_x.dtype, d_weight.dtype) == (torch.bfloat16, torch.float32)
    expected = torch.bmm(2 * out.detach().transpose(1, 2).float(), x.detach().float())
    torch.testing.assert_close(d_weight, expected, rtol=2e-2, atol=2e-2)
