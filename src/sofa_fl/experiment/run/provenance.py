"""What a result was made of: the code, the configuration and the data, each as a digest."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import sofa_fl.errors
from sofa_fl.experiment.run.config import Config, config_to_dict

# Keys that say where and how a run is executed or shown, not what it computes.
LEFT_OUT = ("out", "engine", "keep", "save_every", "score_levels", "track", "title", "own")


@cache
def code_digest() -> str:
    """A digest of the package's source: the same for the same code, wherever it is installed."""
    root = Path(sofa_fl.errors.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def provenance(config: Config, data: str) -> dict[str, Any]:
    """What a summary says of its origin; `data` is the digest of the data."""
    plain = {key: value for key, value in config_to_dict(config).items() if key not in LEFT_OUT}
    plain["data"] = {key: value for key, value in plain["data"].items() if key != "dir"}
    text = json.dumps(plain, sort_keys=True, default=repr)
    return {
        "code": code_digest(),
        "config": hashlib.blake2b(text.encode(), digest_size=8).hexdigest(),
        "data": data,
        "precision": config.local.precision,
    }
