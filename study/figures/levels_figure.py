"""What a second level of the tree adds, by the samples of a client: a panel per federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from sofa_fl.jobs.plotting import BLUE, INK, ORANGE, drawing
from study.design.tree_settings import CELLS, NESTED, NETWORKS, ONE, SAMPLES, TWO
from study.pages.tree_tables import gap
from study.rows.row_files import Row

TITLES = {"S4": "S4: levels contradict each other", "S9": "S9: levels are compatible"}
STYLES: Mapping[str, dict[str, Any]] = {
    "cnn": {"color": BLUE, "marker": "o"},
    "mlp": {"color": ORANGE, "marker": "s"},
}


def draw_levels(rows: Sequence[Row], path: Path) -> None:
    """Two levels minus one, seed by seed, with 95% intervals. There must be a row."""
    with drawing(path, 8.6, 3.5) as figure:
        panels = figure.subplots(1, len(NESTED), sharey=True)
        for axes, data in zip(panels, NESTED):
            axes.set_title(TITLES[data])
            axes.axhline(0, color=INK, linewidth=0.8)
            for network in NETWORKS:
                _line(axes, rows, data, network)
            axes.set_xscale("log")
            axes.set_xticks(SAMPLES)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        panels[0].set_ylabel("two levels \N{MINUS SIGN} one level, in points")
        figure.supxlabel("samples of a client", fontsize=9.5)
        named = {
            label: handle
            for axes in panels
            for handle, label in zip(*axes.get_legend_handles_labels())
        }
        figure.legend(named.values(), named, loc="outside upper center", ncols=2, frameon=False)


def _line(axes: Axes, rows: Sequence[Row], data: str, network: str) -> None:
    points = {
        cell.samples: one.estimate
        for name, cell in CELLS.items()
        if (cell.data, cell.network) == (data, network)
        and (one := gap(rows, name, TWO, ONE, "mean")) is not None
    }
    if points:
        half = [100 * p.half if np.isfinite(p.half) else 0.0 for p in points.values()]
        y = [100 * p.mean for p in points.values()]
        label = network.upper()
        axes.errorbar(
            list(points), y, yerr=half, label=label, markersize=4.5, capsize=2, **STYLES[network]
        )
