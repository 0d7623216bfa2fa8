"""What the sweep chose: `choices.json`, a row per setting, method and sharing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from study.design.contenders import CONTENDERS, title
from study.design.settings import SETTINGS, Overrides, Setting
from study.pages.markdown import NOTHING, table
from study.rows.row_files import Row, read_rows

Key = tuple[str, str, float]
Choices = Mapping[Key, Overrides]
FILE, TRIED = "choices.json", "sweep.json"


def key_of(row: Row) -> Key:
    return row["setting"], row["method"], row["sharing"]


def read_choices(out: Path) -> dict[Key, Overrides]:
    """The chosen hyperparameters; none if there was no sweep."""
    return {key_of(row): row["overrides"] for row in read_rows(out / FILE)}


def best_choices(rows: Iterable[Row]) -> dict[Key, Row]:
    """The best of what was tried: by the mean client over the seeds, then by the worst client."""
    tried: dict[Key, dict[str, list[Row]]] = {}
    for row in rows:
        values = json.dumps(row["overrides"], sort_keys=True)
        tried.setdefault(key_of(row), {}).setdefault(values, []).append(row)
    return {key: _best(list(of.values())) for key, of in tried.items()}


def _best(groups: Sequence[Sequence[Row]]) -> Row:
    def score(rows: Sequence[Row]) -> tuple[float, float]:
        return fmean(row["mean"] for row in rows), fmean(row["min"] for row in rows)

    best = max(groups, key=score)
    mean, worst = score(best)
    one = best[0]
    seeds = sorted({row["seed"] for row in best})
    return {
        **{key: one[key] for key in ("setting", "method", "sharing", "overrides")},
        "of": len(groups),
        "seeds": seeds,
        "mean": mean,
        "min": worst,
    }


def choices_table(rows: Sequence[Row]) -> str:
    """What was chosen, as Markdown: a row per method, a column per setting."""
    chosen = {key_of(row): row for row in rows}
    settings = [name for name in SETTINGS if any(key[0] == name for key in chosen)]
    labels = [label for label in CONTENDERS if any(key[1] == label for key in chosen)]
    tried = {
        label: {row["of"] for key, row in chosen.items() if key[1] == label} for label in labels
    }
    lines = [
        [
            title(label),
            *(_cell(SETTINGS[name], label, chosen) for name in settings),
            " or ".join(map(str, sorted(tried[label]))),
        ]
        for label in labels
    ]
    return table(["", *settings, "tried"], lines)


def words(overrides: Overrides) -> str:
    """`rate 0.002, pull 0.01`: keys without their sections."""
    names = {key: key.rpartition(".")[2].removeprefix("learning_") for key in overrides}
    return ", ".join(f"{names[key]} {value:g}" for key, value in overrides.items())


def _cell(setting: Setting, label: str, chosen: Mapping[Key, Row]) -> str:
    contender = CONTENDERS[label]
    if not (contender.fits(setting) and contender.is_swept(setting)):
        return ""
    rows = [chosen.get((setting.name, label, sharing)) for sharing in setting.sharing]
    told = [words(row["overrides"]) if row else NOTHING for row in rows]
    return told[0] if len(set(told)) == 1 else " / ".join(told)
