"""Models of `transformers` and `peft` are networks: they take rows of tokens, and give logits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BertModel

import sofa_fl
from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData
from sofa_fl.engine.base import LocalConfig, Task
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.errors import ModelError
from sofa_fl.models.flat import mean
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import LOADING, NetworkFactory, build
from sofa_fl.models.pretrained import MeanPooled, Pretrained
from sofa_fl.topology.tree import NodeId
from tests.models.transformer_cases import (
    CLASSES,
    LENGTH,
    VOCABULARY,
    bert,
    bert_with_lora,
    encoder,
    gpt_with_lora,
    pooled_with_lora,
    token_rows,
    vit_with_lora,
)

LOCAL = LocalConfig(batches=3, batch_size=6, optimizer="sgd", learning_rate=0.05)
CASES: dict[str, NetworkFactory] = {
    "LoRA": bert_with_lora,
    "LoRA, both factors": sofa_fl.from_peft(bert_with_lora, train_a=True),
    "LoRA, dropout": lambda: bert_with_lora(lora_dropout=0.3),
    "LoRA, bf16": lambda: bert_with_lora(torch.bfloat16),
    "whole BERT": bert,
    "mean of tokens, LoRA": pooled_with_lora,
    "mean of tokens, head": lambda: MeanPooled(encoder().requires_grad_(False), CLASSES),
    "GPT-2": gpt_with_lora,
    "ViT": vit_with_lora,
}


def rows(name: str, num: int = 36) -> Tensor:
    if name == "ViT":
        return torch.randn(num, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return torch.from_numpy(token_rows(num))


def data(name: str) -> FederatedData:
    x = rows(name).numpy()
    top = VOCABULARY if name == "GPT-2" else CLASSES
    arrays = Arrays(x, np.random.default_rng(1).integers(0, top, len(x)))
    thirds = np.array_split(np.arange(len(x)), 3)
    clients = tuple(ClientData(train=t, holdout=t[:0], test=t) for t in thirds)
    return FederatedData(arrays, arrays, clients, top)


@pytest.mark.parametrize("name", CASES)
def test_stacked_comes_out_as_alone(name: str) -> None:
    given = data(name)
    plain = SequentialEngine(CASES[name], given, LOCAL)
    stacked = StackedEngine(CASES[name], given, LOCAL, "cpu")
    assert stacked.way == "clients are stacked by torch.func"
    start = plain.initial(0)
    tasks = [
        Task(site=NodeId(i), start=start, samples=client.train, batches=LOCAL.batches, seed=i)
        for i, client in enumerate(given.clients)
    ]
    expected, found = plain.train(tasks), stacked.train(tasks)
    allowed = 3e-2 if name == "LoRA, bf16" else 2e-3
    for one, same in zip(found, expected):
        moved = float((same.params - start).norm())
        assert moved > 0
        assert float((one.params - same.params).norm()) <= allowed * moved


def test_text_is_as_the_model_has_it() -> None:
    model = bert_with_lora().eval()
    network, ids = Pretrained(model).eval(), rows("LoRA").long()
    expected = model(input_ids=ids, attention_mask=(ids != 0).long()).logits
    torch.testing.assert_close(network(ids.float()), expected)


def test_the_mean_of_tokens_leaves_out_padding() -> None:
    model, x = MeanPooled(encoder(), CLASSES).eval(), rows("LoRA", 4)
    for row, out in zip(x, Pretrained(model).eval()(x)):
        tokens = row[row != 0].long()[None]
        expected = model.classifier(model.encoder(input_ids=tokens)[0].mean(dim=1))
        torch.testing.assert_close(out[None], expected)
        torch.testing.assert_close(model(tokens, torch.ones_like(tokens)), expected)


def test_longer_padding_changes_nothing() -> None:
    network = build(bert_with_lora, 0).eval()
    x = rows("LoRA")
    torch.testing.assert_close(network(nn.functional.pad(x, (0, 4))), network(x))


def test_what_follows_the_last_token_is_predicted() -> None:
    model = gpt_with_lora().eval()
    network, x = Pretrained(model).eval(), rows("GPT-2", 4)
    for row, out in zip(x, network(x)):
        tokens = row[row != 0].long()
        torch.testing.assert_close(out, model(input_ids=tokens[None]).logits[0, -1])


def test_several_inputs_lie_side_by_side() -> None:
    model = bert_with_lora().eval()
    network = sofa_fl.from_peft(model, inputs=("input_ids", "token_type_ids", "attention_mask"))()
    ids = rows("LoRA").long()
    kinds, seen = ids % 2, (torch.arange(LENGTH) < 3).long().expand_as(ids)
    given = {"input_ids": ids, "token_type_ids": kinds, "attention_mask": seen}
    found = network.eval()(torch.stack(list(given.values()), dim=1).float())
    torch.testing.assert_close(found, model(**given).logits)


def test_a_model_is_where_training_starts() -> None:
    torch.manual_seed(5)
    model = bert_with_lora(init_lora_weights=False).eval()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    factory, ids = sofa_fl.from_peft(model), rows("LoRA").long()
    first, second = build(factory, 0).eval(), build(factory, 1).eval()
    expected = model(input_ids=ids, attention_mask=(ids != 0).long()).logits
    for network in (first, second):
        torch.testing.assert_close(network(ids.float()), expected, rtol=1e-4, atol=1e-5)
    base = "base_model.model.bert.encoder.layer.0.attention.self.key.weight"
    assert first.get_parameter(f"model.{base}").data_ptr() == model.get_parameter(base).data_ptr()
    FlatNetwork(first).load(torch.zeros(FlatNetwork(first).size))
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), "the model itself is not touched"


def products(flat: FlatNetwork, vector: Tensor) -> Tensor:
    """What the adapters of a model add to each weight, and its head, as one vector."""
    flat.load(vector)
    parts = []
    for module in flat.network.modules():
        if isinstance(getattr(module, "lora_A", None), nn.ModuleDict):
            known: Any = module
            parts.append(known.get_delta_weight("default").flatten())
    head = flat.network.get_submodule("model.base_model.model.classifier.modules_to_save.default")
    return torch.cat([*parts, *(p.flatten() for p in head.parameters())]).detach().clone()


def trained(flat: FlatNetwork) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [flat.vector + torch.randn(flat.size, generator=generator) for _ in range(3)]


def test_a_mean_of_adapters_is_the_mean_of_what_they_do() -> None:
    flat = FlatNetwork(build(bert_with_lora, 0))
    models, weights = trained(flat), [1.0, 2.0, 5.0]
    expected = mean([products(flat, model) for model in models], weights)
    torch.testing.assert_close(products(flat, mean(models, weights)), expected)


def test_a_mean_of_factors_is_not() -> None:
    """Which is why `A` is frozen unless one asks for it."""
    flat = FlatNetwork(build(CASES["LoRA, both factors"], 0))
    models, weights = trained(flat), [1.0, 2.0, 5.0]
    expected = mean([products(flat, model) for model in models], weights)
    error = (products(flat, mean(models, weights)) - expected).norm() / expected.norm()
    assert error > 0.3


def test_a_distance_of_models_is_the_distance_of_what_they_do() -> None:
    flat = FlatNetwork(build(bert_with_lora, 0))
    one, other, _ = trained(flat)
    expected = (products(flat, one) - products(flat, other)).norm()
    torch.testing.assert_close((one - other).norm(), expected)


def test_only_b_and_the_head_are_trained() -> None:
    flat = FlatNetwork(build(bert_with_lora, 0))
    assert flat.size == flat.num_trainable == 4 * 16 * 2 + 16 * CLASSES + CLASSES
    assert flat.num_head == 16 * CLASSES + CLASSES
    both = FlatNetwork(build(CASES["LoRA, both factors"], 0))
    assert both.size == flat.size + 4 * 16 * 2


def test_refuses_a_model_without_a_head_or_padding() -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1)
    headless = build(lambda: BertModel(config), 0)
    with pytest.raises(
        ModelError, match="must have a head that returns logits, got BaseModelOutput"
    ):
        headless(rows("LoRA", 2) % 9)
    config.pad_token_id = None
    with pytest.raises(ModelError, match="does not define a padding token"):
        build(lambda: BertModel(config), 0)


def test_a_network_is_made_without_a_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours alone: whoever loads a model themselves sees the bar before and after."""
    encoder().save_pretrained(tmp_path)  # type: ignore[operator]

    def load() -> nn.Module:
        return MeanPooled(BertModel.from_pretrained(tmp_path), CLASSES)

    def is_seen(make: Callable[[], object]) -> bool:
        make()
        return LOADING in capsys.readouterr().err

    assert is_seen(load)
    assert not is_seen(lambda: build(load, 0))
    assert is_seen(load)
