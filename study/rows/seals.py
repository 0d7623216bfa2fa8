"""Rows that cannot be edited unnoticed: each carries a digest of what it says, and its origin.

Rows without an origin, made before runs recorded one, are listed by their digests in
`results/unsealed.json`; `python -m study.rows.seals results` writes that list anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sofa_fl.experiment.storage.disk import write_text

SEAL = "seal"
ORIGIN = "provenance"
UNSEALED = "unsealed.json"


def row_digest(row: Mapping[str, Any]) -> str:
    """A digest of all that a row says, but its seal."""
    content = {key: value for key, value in row.items() if key != SEAL}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def with_seal(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its seal, if it says where it comes from."""
    return {**row, SEAL: row_digest(row)} if ORIGIN in row else dict(row)


def broken(rows: Iterable[Mapping[str, Any]], unsealed: Sequence[str]) -> list[Mapping[str, Any]]:
    """The rows that were edited: whose seal does not fit, or that have none and are not known."""
    known = set(unsealed)
    return [row for row in rows if row.get(SEAL, "") != row_digest(row) and not _is_old(row, known)]


def outdated(rows: Iterable[Mapping[str, Any]], code: str) -> list[Mapping[str, Any]]:
    """The rows that other code than this made, or that do not say which."""
    return [row for row in rows if row.get(ORIGIN, {}).get("code") != code]


def read_unsealed(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / UNSEALED).read_text(encoding="utf-8"))
    return found


def _is_old(row: Mapping[str, Any], known: set[str]) -> bool:
    return SEAL not in row and row_digest(row) in known


def list_unsealed(folder: Path) -> list[str]:
    """The digests of all rows in a folder that have no seal."""
    files = [file for file in sorted(folder.glob("*.json")) if file.name != UNSEALED]
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    rows = [row for rows in found if isinstance(rows, list) for row in rows]
    return sorted({row_digest(row) for row in rows if isinstance(row, dict) and SEAL not in row})


if __name__ == "__main__":
    results = Path(sys.argv[1])
    lines = ",\n".join(json.dumps(digest) for digest in list_unsealed(results))
    write_text(results / UNSEALED, f"[\n{lines}\n]\n")
