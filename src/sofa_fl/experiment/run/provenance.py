"""What a result was made of: the code, the configuration and the data, each as a digest."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import sofa_fl.errors
from sofa_fl.experiment.run.config import Config, compared


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
    text = json.dumps(compared(config), sort_keys=True, default=repr)
    return {
        "code": code_digest(),
        "config": hashlib.blake2b(text.encode(), digest_size=8).hexdigest(),
        "data": data,
        "precision": config.local.precision,
    }
