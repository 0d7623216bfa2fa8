"""Files with a row per run; the same rows give the same file, whatever their order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import write_text
from study.design.settings import Overrides

Row = dict[str, Any]
ORIGIN = "provenance"
KEYS = ("setting", "method", "sharing", "seed")
FAIRNESS = ("mean", "std", "min", "gap", "jain", "bottom10")


def make_row(
    setting: str,
    method: str,
    sharing: float,
    seed: int,
    overrides: Overrides,
    summary: Mapping[str, Any],
) -> Row:
    """What is kept of a run; the agreement with true groups is that of the worst level."""
    row = {"setting": setting, "method": method, "sharing": sharing, "seed": seed}
    row |= {key: summary["client"][key] for key in FAIRNESS}
    row |= {key: summary[key] for key in ("full", "root", "samples_trained", "seconds")}
    # Megabytes a round, of all clients together; the warm-up is a round, too.
    row |= {
        name: summary[key] / (summary["rounds"] + 1) / 1e6
        for name, key in (("down", "bytes_down"), ("up", "bytes_up"))
        if key in summary  # a run of an older version has none
    }
    if "sharing" in summary:
        row["disclosed"] = summary["sharing"]["disclosed_mean"]
    if groups := summary.get("groups"):
        row |= {key: min(values) for key, values in groups.items()}
    origin = {ORIGIN: summary[ORIGIN]} if ORIGIN in summary else {}
    overrides = dict(sorted(overrides.items()))
    return {**row, "engine": summary["engine"], "overrides": overrides, **origin}


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; none if there is no file."""
    if not path.exists():
        return []
    try:
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise RunError(f"{path} is damaged: it is not JSON; delete it and repeat") from None
    return rows


def add_rows(path: Path, new: Iterable[Row], key: Callable[[Row], Any] | None = None) -> list[Row]:
    """Add rows to a file; rows with the same key are replaced."""
    key = key or row_key
    rows = list({key(row): row for row in [*read_rows(path), *new]}.values())
    rows.sort(key=lambda row: json.dumps(key(row)))
    write_rows(path, rows)
    return rows


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """A JSON list with a row per line, so that changes show line by line."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, f"[\n{lines}\n]\n" if rows else "[]\n")


def as_read(row: Row) -> Row:
    """A row as it is read from a file: lists for tuples."""
    read: Row = json.loads(json.dumps(row))
    return read


def row_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEYS)


def of_method(rows: Sequence[Row], method: str) -> list[Row]:
    return [row for row in rows if row["method"] == method]


def column(rows: Sequence[Row], key: str) -> list[float]:
    return [row[key] for row in rows]


def by_seed(rows: Sequence[Row], key: str) -> dict[int, float]:
    return {row["seed"]: row[key] for row in rows}
