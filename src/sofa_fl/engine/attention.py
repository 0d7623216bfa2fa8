"""Attention by matrix products and softmax: it can be mapped over clients, and draws as they do.

Torch's fused kernels can do neither.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sofa_fl.engine.draws import Draws, Replacement


def attend(
    draws: Draws,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As `scaled_dot_product_attention`."""
    if enable_gqa:
        key, value = (
            x.repeat_interleave(query.shape[-3] // x.shape[-3], dim=-3) for x in (key, value)
        )
    if is_causal:
        size = (query.shape[-2], key.shape[-2])
        attn_mask = torch.ones(size, dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = _additive(~attn_mask)
    return _weigh(query, key, value, attn_mask, dropout_p, scale)[0]


def attend_if_drawing(
    draws: Draws,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    *rest: Any,
    **options: Any,
) -> Any:
    """Where nothing is drawn, torch's own is faster."""
    if dropout_p == 0:
        return NotImplemented
    return attend(draws, query, key, value, attn_mask, dropout_p, *rest, **options)


def many_heads(
    draws: Draws,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """As `multi_head_attention_forward`: `(length, batch, width)`, or without a batch."""
    if static_k is not None or static_v is not None:
        return NotImplemented
    if alone := query.ndim == 2:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    if in_proj_weight is not None and not use_separate_proj_weight:
        weights = in_proj_weight.chunk(3)
    else:
        assert q_proj_weight is not None
        assert k_proj_weight is not None
        assert v_proj_weight is not None
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    length, batch, width = query.shape
    if query is key is value and in_proj_weight is not None:  # one product instead of three
        q, k, v = functional.linear(query, in_proj_weight, in_proj_bias).chunk(3, dim=-1)
    else:
        given = zip((query, key, value), weights, biases)
        q, k, v = (functional.linear(x, weight, bias) for x, weight, bias in given)
    if bias_k is not None and bias_v is not None:
        k = torch.cat([k, bias_k.expand(1, batch, width).to(k.dtype)])
        v = torch.cat([v, bias_v.expand(1, batch, width).to(v.dtype)])
    if add_zero_attn:
        k, v = (functional.pad(x, (0, 0, 0, 0, 0, 1)) for x in (k, v))
    added = len(k) - len(key)
    mask = _mask(attn_mask, key_padding_mask, (batch, num_heads, length, len(key)))
    if mask is not None and added:
        mask = functional.pad(mask, (0, added))
    q, k, v = (x.reshape(len(x), batch, num_heads, -1).permute(1, 2, 0, 3) for x in (q, k, v))
    found, attention = _weigh(q, k, v, mask, dropout_p if training else 0.0)
    out = functional.linear(
        found.permute(2, 0, 1, 3).reshape(length, batch, width), out_proj_weight, out_proj_bias
    )
    if average_attn_weights:
        attention = attention.mean(dim=1)
    out, attention = (out.squeeze(1), attention.squeeze(0)) if alone else (out, attention)
    return out, attention if need_weights else None


def many_heads_if_drawing(draws: Draws, *args: Any, **options: Any) -> Any:
    """Torch gives all but the last of its arguments by position, the dropout as the eleventh."""
    if not options.get("training", True) or args[10] == 0:
        return NotImplemented
    return many_heads(draws, *args, **options)


def _weigh(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The values that queries find, and by which weights."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    if mask is not None:
        scores = scores + mask
    weights = functional.softmax(scores, dim=-1)
    if dropout_p > 0:
        weights = functional.dropout(weights, dropout_p)
    return torch.matmul(weights.to(value.dtype), value), weights


def _mask(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, shape: tuple[int, ...]
) -> Tensor | None:
    """Both masks as one that is added: where they say true, minus infinity."""
    parts = []
    if attn_mask is not None:
        part = _additive(attn_mask)
        parts.append(part.view(shape) if part.ndim == 3 and len(part) > 1 else part)
    if key_padding_mask is not None:
        parts.append(_additive(key_padding_mask)[:, None, None])
    return sum(parts[1:], parts[0]) if parts else None


def _additive(mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    nothing = torch.zeros_like(mask, dtype=torch.float32)
    return nothing.masked_fill(mask, -math.inf)


ATTENTION_IF_DRAWING: dict[Any, Replacement] = {
    functional.scaled_dot_product_attention: attend_if_drawing,
    functional.multi_head_attention_forward: many_heads_if_drawing,
}
ATTENTION: dict[Any, Replacement] = {
    functional.scaled_dot_product_attention: attend,
    functional.multi_head_attention_forward: many_heads,
}
