"""What sharing brings by what it discloses: a curve per measure, a panel per setting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sofa_fl.jobs.plotting import BLUE, INK, ORANGE, SOFT, VERMILION, drawing
from study.design.disclosure_settings import DEFAULT, DISCLOSURE_SETTINGS, ON_CURVE, WAYS
from study.pages.disclosure_tables import MEASURES, of
from study.rows.estimates import estimate
from study.rows.row_files import Row, column

COLOURS = {"mean": BLUE, "min": ORANGE}
MARKS = dict(zip(WAYS, ("o", "x", "s")))
LINEAR = 1.0  # percent: below this the axis is linear, so that 0 is on it


def draw_disclosure(rows: Sequence[Row], path: Path) -> None:
    """Means over seeds with their intervals; the default is marked. There must be a row."""
    settings = [name for name in DISCLOSURE_SETTINGS if any(r["setting"] == name for r in rows)]
    with drawing(path, 0.8 + 3.9 * len(settings), 3.7) as figure:
        panels = figure.subplots(1, len(settings), squeeze=False)[0]
        for axes, name in zip(panels, settings):
            axes.set_title(f"{name}: {DISCLOSURE_SETTINGS[name].title}", fontsize=9)
            for key in MEASURES:
                _curve(axes, rows, name, key)
            _axis(axes, rows, name)
        panels[0].set_ylabel("accuracy in %")
        figure.supxlabel("share of a client's samples that is disclosed, in %", fontsize=9.5)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)


def _curve(axes: Axes, rows: Sequence[Row], setting: str, key: str) -> None:
    points = [_point(rows, setting, label, key) for label in ON_CURVE if of(rows, setting, label)]
    if points:
        x, y, half = zip(*points)
        colour, words = COLOURS[key], MEASURES[key]
        axes.errorbar(
            x, y, yerr=half, fmt="o-", color=colour, markersize=4.5, capsize=2, label=words
        )
    for way in WAYS[1:]:
        if of(rows, setting, way):
            x_at, y_at, _ = _point(rows, setting, way, key)
            words = f"{MEASURES[key]}, {way}"
            axes.plot(x_at, y_at, MARKS[way], color=COLOURS[key], mfc="white", label=words)


def _point(rows: Sequence[Row], setting: str, label: str, key: str) -> tuple[float, float, float]:
    here = of(rows, setting, label)
    found = estimate(column(here, key))
    half = 100 * found.half if np.isfinite(found.half) else 0.0
    return 100 * fmean(column(here, "disclosed")), 100 * found.mean, half


def _axis(axes: Axes, rows: Sequence[Row], setting: str) -> None:
    axes.set_xscale("symlog", linthresh=LINEAR)
    axes.set_xticks([0, 1, 2, 5, 10, 89])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.minorticks_off()
    axes.set_xlim(-0.2, 130)
    if here := of(rows, setting, DEFAULT):
        at = 100 * fmean(column(here, "disclosed"))
        axes.axvline(at, color=VERMILION, linewidth=1.0, zorder=0)
        axes.text(
            at,
            0.03,
            " the default",
            color=VERMILION,
            fontsize=8,
            transform=axes.get_xaxis_transform(),
        )
    axes.tick_params(colors=SOFT, labelcolor=INK)
