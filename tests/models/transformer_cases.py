"""Tiny random models of `transformers`, with adapters of `peft`, and rows for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTForImageClassification,
)

from sofa_fl.models.pretrained import MeanPooled

VOCABULARY, LENGTH, CLASSES = 40, 7, 3
SMALL: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "num_labels": CLASSES,
}  # fmt: skip


def bert(dtype: torch.dtype = torch.float32) -> nn.Module:
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=12, **SMALL)
    model: nn.Module = BertForSequenceClassification(config)
    return model.to(dtype)


def bert_with_lora(dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    config = LoraConfig(
        task_type="SEQ_CLS", r=2, lora_alpha=6, target_modules=["query", "value"], **options
    )
    return get_peft_model(bert(dtype), config)


def encoder(dtype: torch.dtype = torch.float32) -> nn.Module:
    model: nn.Module = BertModel(
        BertConfig(vocab_size=VOCABULARY, max_position_embeddings=12, **SMALL),
        add_pooling_layer=False,
    )
    return model.to(dtype)


def pooled_with_lora() -> Any:
    config = LoraConfig(
        r=2, lora_alpha=6, target_modules=["query", "value"], modules_to_save=["classifier"]
    )
    return get_peft_model(MeanPooled(encoder(), CLASSES), config)


def gpt_with_lora() -> Any:
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=12, n_embd=16, n_layer=2, n_head=2, pad_token_id=0
    )
    lora = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    return get_peft_model(GPT2LMHeadModel(config), lora)


def vit_with_lora() -> Any:
    config = ViTConfig(image_size=8, patch_size=4, num_channels=1, **SMALL)
    lora = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["classifier"])
    return get_peft_model(ViTForImageClassification(config), lora)


def token_rows(num: int, seed: int = 0, length: int = LENGTH) -> NDArray[np.float32]:
    """Rows of several lengths, filled up with 0."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, VOCABULARY, (num, length)).astype(np.float32)
    rows[np.arange(length) >= rng.integers(2, length + 1, num)[:, None]] = 0
    return rows
