"""A node's adapter in the format of `peft`: a folder that `PeftModel.from_pretrained` loads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import explained
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.pretrained import Pretrained


@torch.no_grad()
def write_adapter(flat: FlatNetwork, folder: Path, prior: Sequence[float]) -> tuple[float, ...]:
    """Write the adapter that is loaded in a network; return what is still to be added to outputs.

    A class mix goes into the bias of the head, where there is one; else it is returned.
    """
    model: Any = getattr(flat.network, "model", None)
    if not isinstance(flat.network, Pretrained) or not hasattr(model, "peft_config"):
        raise RunError(
            f"only peft models have adapters to export, got {type(model or flat.network)}; use the "
            "format safetensors"
        )
    head = flat.weights[-1]
    is_bias = head.ndim == 1 and len(head) >= len(prior) > 0
    if is_bias:
        head[: len(prior)] += torch.tensor(prior, device=head.device)
    with explained(f"cannot write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(str(folder), save_embedding_layers=False)
    return () if is_bias else tuple(prior)
