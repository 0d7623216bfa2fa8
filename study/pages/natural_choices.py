"""What was chosen for baselines on natural federations, from the runs that were tried."""

from __future__ import annotations

from pathlib import Path

from study.design.choices import Key, best_choices, words
from study.design.contenders import title
from study.design.natural_contenders import NATURALS
from study.design.natural_settings import NATURAL_SETTINGS
from study.design.settings import Overrides
from study.pages.markdown import NOTHING, table
from study.rows.row_files import read_rows

TRIED = "natural_sweep.json"


def read_chosen(out: Path) -> dict[Key, Overrides]:
    """The best values of every contender whose values have all been tried."""
    rows = [row for row in read_rows(out / TRIED) if row["method"] in NATURALS]
    found: dict[Key, Overrides] = {}
    for key, best in best_choices(rows).items():
        grid = NATURALS[key[1]].grid
        if best["of"] == len(grid):
            own = {name for values in grid for name in values}
            found[key] = {name: x for name, x in best["overrides"].items() if name in own}
    return found


def chosen_table(out: Path) -> str:
    """What was chosen: a row per contender, a column per federation; empty if nothing was."""
    chosen = read_chosen(out)
    settings = [name for name in NATURAL_SETTINGS if any(key[0] == name for key in chosen)]
    lines = [
        [
            title(label),
            *(words(of) if (of := chosen.get((s, label, 0.0))) else NOTHING for s in settings),
            str(len(contender.grid)),
        ]
        for label, contender in NATURALS.items()
        if any(key[1] == label for key in chosen)
    ]
    return table(["", *settings, "tried"], lines) if lines else ""
