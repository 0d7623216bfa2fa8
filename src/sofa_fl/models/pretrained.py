"""Models of `transformers`, with or without adapters of `peft`, as networks that take our arrays.

Neither library is imported: a model brings all that is needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sofa_fl.errors import ModelError

MASK = "attention_mask"


class Pretrained(nn.Module):
    """A model that is given rows of token numbers (or images), and gives its logits.

    Args:
        model: A model of `transformers`, or one that `peft` made of it.
        pad: The token that fills rows up; it is not attended to. By default the model's own.
        inputs: What the rows are; of several, `x[:, i]` is the i-th. By default the model's main
            input.
        train_a: Train both factors of LoRA. By default all clients have the same `A`, frozen, and
            train `B` (see `fix_a`).
    """

    def __init__(
        self,
        model: nn.Module,
        pad: int | None = None,
        inputs: str | Sequence[str] | None = None,
        *,
        train_a: bool = False,
    ) -> None:
        super().__init__()
        known: Any = model
        self.model = model
        pad = getattr(known.config, "pad_token_id", None) if pad is None else pad
        inputs = known.main_input_name if inputs is None else inputs
        self.inputs = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        self.is_text = "input_ids" in self.inputs
        if self.is_text and pad is None and MASK not in self.inputs:
            raise ModelError(
                "the model does not define a padding token; pass sofa_fl.from_peft(model, "
                "pad=tokenizer.pad_token_id)"
            )
        self.pad = -1 if pad is None else pad
        self.is_causal = any(getattr(module, "is_causal", False) for module in model.modules())
        self.masks = Masks()
        if not train_a:
            fix_a(model)
        _train_in_float32(model)

    def forward(self, x: Tensor) -> Tensor:
        parts = x.unbind(1) if len(self.inputs) > 1 else (x,)
        given = {n: part.long() if self.is_text else part for n, part in zip(self.inputs, parts)}
        if not self.is_text:
            return _logits(self.model(**given))
        ids = given["input_ids"]
        seen = given.pop(MASK).bool() if MASK in given else ids.ne(self.pad)
        # A mask of every pair: of a mask of tokens, models ask whether anything is masked at all,
        # which waits for a GPU, and cannot be mapped over clients.
        pairs = seen[:, None, None, :].expand(-1, 1, ids.shape[1], -1)
        if self.is_causal:
            pairs = pairs & pairs.new_ones(ids.shape[1], ids.shape[1]).tril()
        out = self._outputs(given, pairs, seen)
        if out.ndim == 3:  # of every token: what follows the last one is asked for
            last = seen.sum(dim=1) - 1
            out = out.gather(1, last[:, None, None].expand(-1, 1, out.shape[2])).squeeze(1)
        return out

    def _outputs(self, given: dict[str, Tensor], pairs: Tensor, seen: Tensor) -> Tensor:
        """With a mask of pairs, or of tokens for a model that takes no other: tried once."""
        if self.masks.of_pairs is None:
            try:
                out = _logits(self.model(**given, **{MASK: pairs}))
            except (RuntimeError, ValueError, IndexError, TypeError):
                out = _logits(self.model(**given, **{MASK: seen.long()}))
                self.masks.of_pairs = False
                return out
            self.masks.of_pairs = True
            return out
        return _logits(self.model(**given, **{MASK: pairs if self.masks.of_pairs else seen.long()}))


@dataclass
class Masks:
    """Which masks a model takes; None if that is not known yet."""

    of_pairs: bool | None = None


class MeanPooled(nn.Module):
    """An encoder with a head on the mean of its tokens, as sentence encoders are trained.

    Freeze the encoder to train only the head, or pass the whole module to `peft` with
    `modules_to_save=["classifier"]`.
    """

    def __init__(self, encoder: nn.Module, num_labels: int) -> None:
        super().__init__()
        known: Any = encoder
        self.config, self.main_input_name = known.config, known.main_input_name
        self.encoder, self.classifier = encoder, nn.Linear(known.config.hidden_size, num_labels)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """`attention_mask` is of tokens, or of pairs of them."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask)[0]
        seen = attention_mask if attention_mask.ndim == 2 else attention_mask[:, 0, -1]
        weights = seen.unsqueeze(-1).to(hidden.dtype)
        logits: Tensor = self.classifier((hidden * weights).sum(dim=1) / weights.sum(dim=1))
        return logits


def from_peft(
    model: nn.Module | Callable[[], nn.Module],
    *,
    pad: int | None = None,
    inputs: str | Sequence[str] | None = None,
    train_a: bool = False,
) -> Callable[[], nn.Module]:
    """A function that creates the network, to be passed as `network`.

    `network=lambda: get_peft_model(...)` is the same as `network=from_peft(lambda: ...)`.

    Args:
        model: A function that creates a `peft` or `transformers` model; or such a model itself,
            from whose weights training then starts.
        pad: The padding token; by default the model's own.
        inputs: The names of the arrays in a row, if it is not just the model's main input; with
            several, `x[:, i]` is the i-th.
        train_a: Train both factors of LoRA, as FedIT does. By default all clients have the same
            frozen `A`, so that averaging adapters averages exactly what they add to the weights.
    """

    def make() -> nn.Module:
        made = _again(model) if isinstance(model, nn.Module) else model()
        return Pretrained(made, pad, inputs, train_a=train_a)

    return make


@torch.no_grad()
def fix_a(model: nn.Module) -> None:
    """Freeze `A` of every LoRA layer, with orthogonal rows of length 1 / scaling.

    What the layer adds, scaling · B · A, stays what it is. Then the mean of models is the mean of
    what they do, since that is linear in B, and their distance is the distance of what they do:
    the rows of scaling · A have length one.
    """
    for module in model.modules():
        layers = getattr(module, "lora_A", None)
        if not isinstance(layers, nn.ModuleDict):
            continue
        known: Any = module
        for name, layer in layers.items():
            first, second, scale = layer, known.lora_B[name], float(known.scaling[name])
            if not isinstance(first, nn.Linear) or not first.weight.requires_grad or not scale:
                continue
            # In double precision: rounded to single, it is the same on any processor.
            axes, triangle = torch.linalg.qr(first.weight.T.double())
            second.weight.copy_(scale * second.weight.double() @ triangle.T)
            first.weight.copy_(axes.T / scale)
            first.weight.requires_grad_(False)


def _again(model: nn.Module) -> nn.Module:
    """A copy whose frozen parameters lie where the model's do."""
    frozen = [p for p in model.parameters() if not p.requires_grad]
    return copy.deepcopy(model, {id(p): nn.Parameter(p.data, requires_grad=False) for p in frozen})


def _train_in_float32(model: nn.Module) -> None:
    """What is trained is float32, also where the rest of a model has fewer bits."""
    if all(parameter.dtype == torch.float32 for parameter in model.parameters()):
        return
    for module in model.modules():
        trained = [p for p in module.parameters(recurse=False) if p.requires_grad]
        for parameter in trained:
            parameter.data = parameter.data.float()
        if trained:
            module.register_forward_pre_hook(_in_float32)


def _in_float32(_module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in given)


def _logits(out: Any) -> Tensor:
    logits = getattr(out, "logits", out)
    if not isinstance(logits, Tensor):
        raise ModelError(
            f"the model must have a head that returns logits, got {type(out).__name__}; use one "
            "like AutoModelForSequenceClassification, or sofa_fl.MeanPooled(model, num_labels)"
        )
    return logits.float()
