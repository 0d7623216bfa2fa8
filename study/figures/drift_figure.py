"""Scenarios at a glance: accuracy and agreement with the truth round by round, a column each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sofa_fl.jobs.plotting import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SOFT,
    VERMILION,
    drawing,
)
from study.design.contenders import title
from study.design.drift_settings import DRIFTERS, FROZEN, REGROUP, SCENARIOS, SOFA
from study.pages.drift_tables import By, by_label
from study.rows.row_files import Row

ACROSS = 3  # panels side by side
FAR = 3.0  # points below the best at which a line is still drawn
STYLES: Mapping[str, dict[str, Any]] = {
    SOFA: {"color": BLUE, "linewidth": 2.4, "zorder": 5},
    FROZEN: {"color": ORANGE, "marker": "s"},
    REGROUP: {"color": GREEN, "marker": "^"},
    "fedavg": {"color": SOFT, "linestyle": ":"},
    "hypcluster": {"color": PURPLE, "marker": "D"},
    "feddrift": {"color": VERMILION, "marker": "x", "zorder": 6},
    "oracle": {"color": INK, "linestyle": ":", "linewidth": 1.6},
}
PLAIN: dict[str, Any] = {"linewidth": 1.2, "markersize": 3.5}


def draw_drift(rows: Sequence[Row], path: Path) -> None:
    """Means over seeds; a vertical line is a change. There must be a row of a scenario."""
    by_name = {name: by for name in SCENARIOS if (by := by_label(rows, name))}
    across = min(ACROSS, len(by_name))
    down = -(-len(by_name) // across)
    labels = [label for label in DRIFTERS if any(label in by for by in by_name.values())]
    with drawing(path, 0.6 + 3.6 * across, 0.9 + 4.1 * down) as figure:
        panels = figure.subplots(
            2 * down, across, squeeze=False, sharex=True, height_ratios=[2.2, 1] * down
        )
        for at, (name, by) in enumerate(by_name.items()):
            row, column = divmod(at, across)
            upper, lower = panels[2 * row : 2 * row + 2, column]
            upper.set_title(name)
            _accuracy(upper, by)
            _agreement(lower, by)
            if column == 0:
                upper.set_ylabel("mean client in %")
                lower.set_ylabel("ARI")
        for empty in range(len(by_name), down * across):
            row, column = divmod(empty, across)
            for axes in panels[2 * row : 2 * row + 2, column]:
                axes.set_axis_off()
        words = "round; vertical lines are changes; contenders far below: their mean since"
        figure.supxlabel(words, fontsize=9.5)
        handles = [
            Line2D([], [], label=title(label), **{**PLAIN, **STYLES[label]}) for label in labels
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)


def means_of(rows: Sequence[Row], key: str) -> list[float]:
    """The mean over seeds of every round that all have."""
    length = min(len(row[key]) for row in rows)
    return [float(x) for x in np.mean([row[key][:length] for row in rows], axis=0)]


def shown_of(by: By) -> list[str]:
    """The contenders whose lines are near enough to the best to be drawn."""
    after = {label: 100 * float(np.mean([row["mean"] for row in of])) for label, of in by.items()}
    return [label for label in by if after[label] >= max(after.values()) - FAR]


def _accuracy(axes: Axes, by: By) -> None:
    shown = shown_of(by)
    lines = {label: 100 * np.array(means_of(by[label], "accuracy")) for label in shown}
    for label, line in lines.items():
        axes.plot(line, **{**PLAIN, **STYLES[label]})
    changes = next(iter(by.values()))[0]["changes"]
    _mark(axes, changes)
    since = max(0, changes[0] - 2)  # what comes before is learning, and far below
    low = min(float(line[since:].min()) for line in lines.values())
    high = max(float(line.max()) for line in lines.values())
    room = max(0.06 * (high - low), 0.05)
    axes.set_ylim(low - 2.5 * room, high + room)
    far = [label for label in by if label not in shown]
    if words := [f"{title(label)} {_average(by[label]):.1f}" for label in far]:
        text = f"below: {', '.join(words)}"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        style: Any = {"ha": "right", "fontsize": 7.5, "color": SOFT, "bbox": box}
        axes.text(0.98, 0.05, text, transform=axes.transAxes, **style)


def _agreement(axes: Axes, by: By) -> None:
    for label, of in by.items():
        axes.plot(means_of(of, "ari"), **{**PLAIN, **STYLES[label]})
    _mark(axes, next(iter(by.values()))[0]["changes"])
    axes.set_ylim(-0.08, 1.08)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _average(rows: Sequence[Row]) -> float:
    return 100 * float(np.mean([row["mean"] for row in rows]))


def _mark(axes: Axes, changes: Sequence[int]) -> None:
    """A line before the first round with the new data."""
    for number in changes:
        axes.axvline(number - 0.5, color=INK, linewidth=0.9, zorder=0)
