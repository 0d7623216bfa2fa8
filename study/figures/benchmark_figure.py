"""The benchmark at a glance: a dot with its interval per contender, setting and sharing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sofa_fl.jobs.plotting import BLUE, GUIDE, INK, SOFT, VERMILION, drawing
from study.design.contenders import CONTENDERS, title
from study.design.settings import SETTINGS, SHARING
from study.pages.benchmark_tables import by_method
from study.rows.estimates import Estimate, estimate
from study.rows.row_files import Row, column

MEASURES = {"mean": "mean client", "min": "worst client"}
LEAST, MOST = 0.5, 0.75  # share of the dots that a panel shows; the others are arrows at its edge

OURS = Line2D(
    [], [], color=VERMILION, linewidth=0.8, label="SOFA-FL (with sharing, if there is any)"
)


def draw_benchmark(rows: Sequence[Row], path: Path) -> None:
    """A column of panels per setting, the mean client above and the worst below."""
    settings = [name for name in SETTINGS if any(row["setting"] == name for row in rows)]
    labels = [label for label in CONTENDERS if any(row["method"] == label for row in rows)]
    height = 2 * (0.24 * len(labels) + 0.6) + 0.5
    with drawing(path, 1.4 + 2.15 * len(settings), height) as figure:
        panels = figure.subplots(len(MEASURES), len(settings), sharey=True, squeeze=False)
        for column_of, name in zip(panels.T, settings):
            here = [row for row in rows if row["setting"] == name]
            for axes, key in zip(column_of, MEASURES):
                _panel(axes, here, key, labels)
            column_of[0].set_title(name)
        for axes, words in zip(panels[:, 0], MEASURES.values()):
            axes.set_yticks(range(len(labels)), [title(label) for label in labels])
            axes.set_ylim(len(labels) - 0.4, -0.6)
            axes.set_ylabel(words)
        figure.supxlabel("accuracy in %, mean over seeds with its 95% interval", fontsize=9.5)
        figure.legend(
            handles=[*map(_handle, SHARING), OURS],
            loc="outside upper right",
            ncols=3,
            frameon=False,
        )


def _panel(axes: Axes, rows: Sequence[Row], key: str, labels: Sequence[str]) -> None:
    found: dict[tuple[str, float], Estimate] = {}
    for sharing in SHARING:
        for label, of in by_method(rows, sharing).items():
            found[label, sharing] = estimate(column(of, key))
    means = np.array([100 * e.mean for e in found.values()])
    ends = [100 * e.high for e in found.values() if np.isfinite(e.half)]
    low = lowest_shown(list(means))
    high = min(max([means.max(), *ends]), 100.0)
    room = max(0.1 * (high - low), 0.05)
    axes.set_xlim(low - 1.5 * room, high + 0.5 * room)
    axes.axhspan(-0.45, 0.45, color=GUIDE, alpha=0.6, linewidth=0, zorder=0)
    for (label, sharing), e in found.items():
        y = labels.index(label) + (0.18 if sharing else -0.18)
        colour = BLUE if label == "sofa" else SOFT if label.startswith("oracle") else INK
        style: Any = {"color": colour, "markerfacecolor": colour if sharing else "white"}
        if 100 * e.mean < low - room:
            axes.plot(low - 1.2 * room, y, "<", markersize=4.5, **style)
            words = f"{100 * e.mean:.1f}"
            axes.text(low - 0.8 * room, y, words, fontsize=6.5, va="center", color=SOFT)
            continue
        half = 100 * e.half if np.isfinite(e.half) else 0.0
        axes.errorbar(
            100 * e.mean,
            y,
            xerr=half,
            fmt="o",
            markersize=4.5,
            elinewidth=1.1,
            ecolor=colour,
            **style,
        )
    if ours := [e for (label, _), e in found.items() if label == "sofa"]:
        axes.axvline(100 * ours[-1].mean, color=VERMILION, linewidth=0.8, zorder=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.locator_params(axis="x", nbins=4)


def lowest_shown(means: Sequence[float]) -> float:
    """Where a panel ends: at most dots, but before a gap that is wider than all above it."""
    downward = np.sort(means)[::-1]
    least, most = (int(np.ceil(share * len(downward))) for share in (LEAST, MOST))
    shown = least
    while shown < most:
        last = downward[shown - 1]
        if last - downward[shown] > downward[0] - last:
            break
        shown += 1
    return float(downward[shown - 1])


def _handle(sharing: float) -> Line2D:
    words = f"sharing ratio {sharing:g}" if sharing else "no sharing"
    face = INK if sharing else "white"
    return Line2D([], [], color=INK, marker="o", linestyle="", markerfacecolor=face, label=words)
