"""Accuracy by the privacy budget: a line per method, a panel per federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sofa_fl.jobs.plotting import BLUE, GREEN, INK, PURPLE, SOFT, drawing
from study.design.contenders import title
from study.design.privacy_settings import EPSILONS, FEDERATIONS, PRIVATE
from study.pages.privacy_tables import of
from study.rows.estimates import estimate
from study.rows.row_files import Row, column

STYLES: Mapping[str, dict[str, Any]] = {
    "sofa": {"color": BLUE, "linewidth": 2.2, "marker": "o", "zorder": 5},
    "local": {"color": GREEN, "marker": "^"},
    "fedavg": {"color": SOFT, "linestyle": ":", "marker": "s"},
    "hypcluster": {"color": PURPLE, "marker": "D"},
    "oracle": {"color": INK, "linestyle": "--", "zorder": 6},
}


def draw_privacy(rows: Sequence[Row], path: Path) -> None:
    """Means over seeds with their intervals. There must be a row."""
    there = [
        name for name in FEDERATIONS if any(r["setting"].startswith(f"{name}-e") for r in rows)
    ]
    with drawing(path, 0.8 + 3.9 * len(there), 3.7) as figure:
        panels = figure.subplots(1, len(there), squeeze=False, sharey=True)[0]
        for axes, federation in zip(panels, there):
            axes.set_title(federation)
            for label in PRIVATE:
                _line(axes, rows, federation, label)
            axes.set_xscale("log", base=2)
            axes.set_xticks(sorted(EPSILONS))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        panels[0].set_ylabel("mean client in %")
        figure.supxlabel("epsilon (less is more private), delta = 1e-5", fontsize=9.5)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False)


def _line(axes: Axes, rows: Sequence[Row], federation: str, label: str) -> None:
    found = {e: of(rows, federation, e, label) for e in sorted(EPSILONS)}
    points = {e: estimate(column(here, "mean")) for e, here in found.items() if here}
    if points:
        half = [100 * p.half if np.isfinite(p.half) else 0.0 for p in points.values()]
        y = [100 * p.mean for p in points.values()]
        style = {"markersize": 4.5, "capsize": 2, **STYLES[label]}
        axes.errorbar(list(points), y, yerr=half, label=title(label), **style)
