"""An encoder of random weights with its tokenizer, and a few intents in two domains."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel, BertTokenizer

DOMAINS = {
    "bank": {"balance": "money account left", "card": "lost card stolen", "pay": "bill due send"},
    "travel": {"book": "hotel flight seat", "car": "rent drive car", "visa": "visa border stamp"},
}
FILLER = ["please", "can", "you", "tell", "me", "what", "is", "my", "the", "a", "for", "to", "now"]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def tiny_encoder(folder: Path) -> Path:
    """A saved encoder, and a tokenizer that knows the words of `few_intents`."""
    words = [
        word for intents in DOMAINS.values() for text in intents.values() for word in text.split()
    ]
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *FILLER, *words])}
    BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32, initializer_range=0.2,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder


def few_intents(file: Path, each: int = 48, seed: int = 0) -> Path:
    """A file as that of CLINC150: domains with their intents, and queries with theirs."""
    rng = np.random.default_rng(seed)

    def query(words: str) -> str:
        return " ".join(rng.permutation([*rng.choice(words.split(), 2), *rng.choice(FILLER, 3)]))

    parts = {
        split: [
            [query(words), intent]
            for _ in range(num)
            for intents in DOMAINS.values()
            for intent, words in intents.items()
        ]
        for split, num in (("train", each), ("val", each // 4), ("test", each // 4))
    }
    domains = {domain: list(intents) for domain, intents in DOMAINS.items()}
    file.write_text(json.dumps({"source": "made up", "domains": domains, **parts}))
    return file
