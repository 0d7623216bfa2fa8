"""Every combination of some values of the configuration, and a row for each."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import Config, load_config

Over = Mapping[str, Sequence[Any]]  # by key, `local.learning_rate`, the values to try
METHOD = "method"
SCORES = ("mean", "min", "std")


@dataclass(frozen=True, slots=True)
class Point:
    """One combination: the values, and the configuration they make."""

    values: dict[str, Any]
    config: Config

    @property
    def title(self) -> str:
        return ", ".join(f"{key}={plain(value)}" for key, value in self.values.items())


def combine(base: Mapping[str, Any], settings: Sequence[str], over: Over) -> list[Point]:
    """All combinations, the last key changing fastest; a wrong key or value is an error."""
    if not over:
        raise ConfigError("a sweep needs values to try: --over key=v1,v2, or 'over:' in the file")
    if empty := [key for key, values in over.items() if not values]:
        raise ConfigError(f"a sweep over {empty[0]} needs at least one value")
    if "out" in over:
        raise ConfigError("a sweep cannot vary 'out', because every run has its own folder")
    points = []
    for values in itertools.product(*over.values()):
        chosen = dict(zip(over, values))
        given = [f"{key}={json.dumps(value)}" for key, value in chosen.items()]
        config = load_config(copy.deepcopy(dict(base)), [*settings, *given])
        if METHOD in chosen:
            config = replace(config, title=None)  # each has its own
        points.append(Point(chosen, config))
    return points


def result_rows(
    points: Sequence[Point], summaries: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A row per combination of all keys but the seed; the mean over seeds, if several were run."""
    groups: dict[str, list[tuple[Point, Mapping[str, Any]]]] = {}
    for point, summary in zip(points, summaries, strict=True):
        rest = {key: value for key, value in point.values.items() if key != "seed"}
        groups.setdefault(json.dumps(rest), []).append((point, summary))
    rows = []
    for name, found in groups.items():
        row: dict[str, Any] = {"over": json.loads(name), "runs": len(found)}
        for key in SCORES:
            row[key] = sum(summary["client"][key] for _, summary in found) / len(found)
        for key in ("full", "seconds"):
            values = [summary[key] for _, summary in found]
            row[key] = None if None in values else sum(values) / len(values)
        first = found[0][1]
        if METHOD in row["over"]:
            row["title"] = first["title"]
        if "metric" in first:
            row["metric"] = first["metric"]
        row["folders"] = [str(Path(summary["run"])) for _, summary in found]
        rows.append(row)
    return rows


def best_run(rows: Sequence[Mapping[str, Any]], summaries: Sequence[Mapping[str, Any]]) -> Path:
    """The folder of the best run of the combination whose clients are best on average."""
    means = {str(Path(summary["run"])): summary["client"]["mean"] for summary in summaries}
    best = max(rows, key=lambda row: row["mean"])
    return Path(max(best["folders"], key=means.__getitem__))


def shown_value(row: Mapping[str, Any], key: str) -> str:
    """A row's value of a key that was varied, as it is written in a table: a method's by title."""
    return str(row["title"]) if key == METHOD else plain(row["over"].get(key, ""))


def plain(value: Any) -> str:
    """A value as it is written in a table."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
