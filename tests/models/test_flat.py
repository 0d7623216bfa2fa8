"""A network as one vector: views both ways, what is in it, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sofa_fl.errors import ModelError
from sofa_fl.models.flat import inner_products, mean, side_by_side
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import Cnn, Mlp, NetworkFactory, build

FACTORIES: dict[str, NetworkFactory] = {
    "mlp": lambda: Mlp((3, 4), 5, hidden=6, batch_norm=False),
    "mlp with BatchNorm": lambda: Mlp((3, 4), 5, hidden=6, batch_norm=True),
    "cnn with BatchNorm": lambda: Cnn((1, 8, 8), 5, batch_norm=True),
}
networks = pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)


def inputs(factory: NetworkFactory) -> Tensor:
    shape = (1, 8, 8) if isinstance(factory(), Cnn) else (3, 4)
    return torch.randn(7, *shape, generator=torch.Generator().manual_seed(0))


@networks
def test_keeps_what_the_network_computes(factory: NetworkFactory) -> None:
    plain, flat = build(factory, 3), FlatNetwork(build(factory, 3))
    x = inputs(factory)
    assert torch.equal(plain(x), flat.network(x))


@networks
def test_the_vector_is_the_networks_tensors_in_order(factory: NetworkFactory) -> None:
    flat = FlatNetwork(factory())
    flat.load(torch.arange(flat.size, dtype=torch.float32))
    entries: list[Tensor] = [*flat.network.parameters()]
    entries += [b for b in flat.network.buffers() if b.is_floating_point()]
    numbers = torch.cat([e.detach().flatten() for e in entries])
    assert torch.equal(numbers, torch.arange(flat.size, dtype=torch.float32))
    with torch.no_grad():
        entries[0].fill_(-1)
    vector = flat.vector
    assert (vector[: entries[0].numel()] == -1).all()
    assert (vector[entries[0].numel() :] >= 0).all()
    vector.zero_()
    assert (entries[0] == -1).all(), "the vector is a copy"


@networks
def test_tensors_are_aligned_for_the_kernels_of_a_gpu(factory: NetworkFactory) -> None:
    """In a dense vector, BatchNorm's buffers after a bias of five numbers would not be."""
    flat = FlatNetwork(factory())
    flat.load(flat.vector)
    assert {tensor.data_ptr() % 16 for tensor in flat.tensors.values()} == {0}


def test_parameters_made_of_one_tensor_are_two() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = nn.Parameter(first.weight)
    flat = FlatNetwork(nn.Sequential(first, second))
    flat.load(torch.arange(12, dtype=torch.float32))
    assert torch.equal(flat.vector, torch.arange(12, dtype=torch.float32))


@networks
def test_a_vector_weight_by_weight(factory: NetworkFactory) -> None:
    flat = FlatNetwork(build(factory, 0))
    pieces = flat.pieces(flat.vector[: flat.num_trainable])
    trained = [p for p in flat.network.parameters() if p.requires_grad]
    assert len(pieces) == len(trained) == len(flat.weights)
    assert all(torch.equal(piece, weight) for piece, weight in zip(pieces, trained))


def test_trainable_part_comes_first() -> None:
    flat = FlatNetwork(Mlp((3, 4), 5, hidden=6, batch_norm=True))
    num_weights = (12 * 6 + 6) + (6 + 6) + (6 * 5 + 5)
    assert flat.num_trainable == num_weights
    assert len(flat.vector) == num_weights + 2 * 6  # and the running mean and variance
    assert torch.equal(flat.vector[num_weights:], torch.tensor([0.0] * 6 + [1.0] * 6))


def test_integer_buffers_are_no_part_of_the_vector() -> None:
    flat = FlatNetwork(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    assert "1.num_batches_tracked" not in flat.places
    assert {"1.running_mean", "1.running_var"} <= set(flat.places)
    flat.network(torch.randn(4, 2))
    assert flat.network.get_buffer("1.num_batches_tracked") == 1


def test_training_moves_the_float_buffers_in_the_vector() -> None:
    flat = FlatNetwork(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    before, n = flat.vector, flat.num_trainable
    flat.network(torch.randn(4, 2))
    after = flat.vector
    assert torch.equal(before[:n], after[:n])
    assert not torch.equal(before[n:], after[n:])


def test_a_buffer_that_is_replaced_is_still_in_the_vector() -> None:
    class Keeper(nn.Linear):
        kept: Tensor

        def forward(self, input: Tensor) -> Tensor:
            self.kept = self.kept + 1
            return super().forward(input)

    network = Keeper(2, 3)
    network.register_buffer("kept", torch.zeros(3))
    flat = FlatNetwork(network)
    start = flat.vector
    network(torch.randn(4, 2))
    assert torch.equal(flat.vector[-3:], torch.ones(3))
    flat.load(start)
    assert not network.kept.any()


def test_a_loaded_vector_brings_back_the_counts() -> None:
    """A count that stayed would let one training change the next (momentum=None divides by it)."""
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=None))
    flat = FlatNetwork(network)
    start, x = flat.vector.clone(), torch.randn(4, 2)
    network(x)
    once = flat.vector.clone()
    flat.load(start)
    network(x)
    assert torch.equal(flat.vector, once)


def test_frozen_parameters_are_no_part_of_the_vector() -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    network[0].requires_grad_(False)
    flat = FlatNetwork(network)
    assert flat.num_trainable == len(flat.vector) == 3 * 4 + 4
    before = {name: parameter.clone() for name, parameter in flat.frozen.items()}
    assert before.keys() == {"0.weight", "0.bias"}
    flat.load(torch.zeros(flat.size))
    assert not any(p.any() for p in network[1].parameters())
    assert all(torch.equal(p, before[f"0.{name}"]) for name, p in network[0].named_parameters())
    state = flat.state_dict(torch.ones(flat.size))
    assert state["1.weight"].eq(1).all()
    assert torch.equal(state["0.weight"], before["0.weight"]), "an exported model is whole"


def test_a_trainable_parameter_leaves_the_memory_of_a_frozen_one() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = nn.Parameter(first.weight.data)
    first.requires_grad_(False)
    flat = FlatNetwork(nn.Sequential(first, second))
    before = first.weight.clone()
    flat.load(torch.zeros(flat.size))
    assert torch.equal(first.weight, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_frozen_parameters_may_have_any_precision(dtype: torch.dtype) -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    network[0].to(dtype).requires_grad_(False)
    assert {p.dtype for p in FlatNetwork(network).frozen.values()} == {dtype}


@networks
def test_state_dict_loads_into_a_fresh_network(factory: NetworkFactory) -> None:
    flat, x = FlatNetwork(build(factory, 0)), inputs(factory)
    flat.network(x)  # moves the running statistics
    vector = flat.vector
    flat.network.eval()
    expected = flat.network(x)
    flat.load(torch.zeros(flat.size))
    fresh = build(factory, 1)
    fresh.load_state_dict(flat.state_dict(vector))
    fresh.eval()
    assert torch.equal(fresh(x), expected)
    assert not flat.vector.any(), "looking at a vector must not load it"


def test_state_dict_of_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.two(self.one(x))
            return out

    flat, x = FlatNetwork(build(Tied, 0)), torch.randn(4, 3)
    vector, expected = flat.vector, flat.network(x).detach()
    flat.load(torch.zeros(flat.size))
    fresh = build(Tied, 1)
    fresh.load_state_dict(flat.state_dict(vector))
    assert torch.equal(fresh(x), expected)


@pytest.mark.parametrize("size", [0, 1, 112, 114])
def test_refuses_a_vector_of_another_size(size: int) -> None:
    flat = FlatNetwork(Mlp((3, 4), 5, hidden=6, batch_norm=False))
    assert len(flat.vector) == 113
    with pytest.raises(ModelError, match=f"a vector of {size} numbers does not fit .* of 113"):
        flat.load(torch.zeros(size))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_refuses_other_precision_by_name(dtype: torch.dtype) -> None:
    with pytest.raises(
        ModelError, match=r"must be float32, but these are not: \['weight', 'bias'\]"
    ):
        FlatNetwork(nn.Linear(2, 2).to(dtype))


def test_refuses_complex_parameters_and_says_what_to_do() -> None:
    network = nn.Linear(2, 2)
    network.phase = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(ModelError, match=r"phase is complex; .* torch\.view_as_complex"):
        FlatNetwork(network)


def test_refuses_a_network_with_nothing_to_train() -> None:
    with pytest.raises(ModelError, match="no parameters to train"):
        FlatNetwork(nn.ReLU())
    with pytest.raises(ModelError, match="no parameters to train"):
        FlatNetwork(nn.Linear(2, 2).requires_grad_(False))


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(-9, 9)), min_size=1, max_size=8),
    st.integers(1, 5),
)
def test_mean_is_the_weighted_mean(parts: list[tuple[int, int]], size: int) -> None:
    weights = [float(w) for w, _ in parts]
    vectors = [torch.full((size,), float(v)) + torch.arange(size) for _, v in parts]
    before = [v.clone() for v in vectors]
    expected = np.average([v.numpy() for v in vectors], axis=0, weights=weights)
    np.testing.assert_allclose(mean(vectors, weights).numpy(), expected, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(vectors, before))


def test_mean_of_one_is_itself_in_new_memory() -> None:
    vector = torch.randn(50)
    out = mean([vector], [3.0])
    assert torch.equal(out, vector)
    assert out.data_ptr() != vector.data_ptr()


def test_mean_needs_a_weight_for_every_vector() -> None:
    with pytest.raises(ValueError, match="shorter"):
        mean([torch.ones(2), torch.ones(2)], [1.0])


@pytest.mark.parametrize("block", [1, 4, 10, 64])
def test_inner_products_block_by_block(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = list(torch.randn(5, 10, generator=torch.Generator().manual_seed(0)) + 100)
    full = torch.stack(vectors).double().numpy()
    products = inner_products(vectors, block=block)
    np.testing.assert_allclose(products, full @ full.T, rtol=1e-14)
    np.testing.assert_array_equal(products, products.T)
    monkeypatch.setattr("sofa_fl.models.flat.ROOM", 1)
    np.testing.assert_array_equal(products, inner_products(vectors, block=block))


@pytest.mark.parametrize("size", [3, 8, 30, 64])
def test_inner_products_of_all_blocks_at_once(size: int) -> None:
    """As on a GPU: with a rest, without one, and of fewer columns than a block."""
    rows = torch.randn(5, size)
    wide = rows.double()
    torch.testing.assert_close(side_by_side(rows, block=8), wide @ wide.T)
