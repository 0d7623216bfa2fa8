"""How our matplotlib figures look, how one becomes a file, and the figure of a sweep.

The same data give the same file with the same matplotlib: no date, no random ids.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.events import ACCURACY, metric_of, score_name
from sofa_fl.jobs.combinations import shown_value

# Okabe and Ito's colours, which the colour-blind tell apart.
BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PURPLE, SKY = "#cc79a7", "#56b4e9"
INK, SOFT, GUIDE = "#1e293b", "#64748b", "#e2e8f0"
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "sofa-fl",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Segoe UI", "Helvetica", "Arial"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GUIDE,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)


@contextmanager
def drawing(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure to draw on, in inches; it is written when all went well."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, drawn.getvalue())


def draw_grid(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A line per combination of the other keys; dashed for the worst client."""
    first, metric = next(iter(rows[0]["over"]), ""), metric_of(rows[0])
    unit, sign = (100, ", %") if metric == ACCURACY else (1, "")
    ticks = list(dict.fromkeys(shown_value(row, first) for row in rows))
    lines: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        rest = [key for key in row["over"] if key != first]
        label = ", ".join(f"{key}={shown_value(row, key)}" for key in rest)
        lines.setdefault(label, {})[shown_value(row, first)] = row
    with drawing(path, max(4.5, 0.7 * len(ticks) + 3.5), 3.2) as figure:
        axes = figure.subplots()
        for number, (label, found) in enumerate(lines.items()):
            colour = COLOURS[number % len(COLOURS)]
            places = [at for at, tick in enumerate(ticks) if tick in found]
            for key, dashes in (("mean", "-"), ("min", "--")):
                shares = [unit * found[ticks[at]][key] for at in places]
                told = (label or "mean client") if key == "mean" else None
                axes.plot(
                    places, shares, dashes, color=colour, marker="o", markersize=3.5, label=told
                )
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlabel(first)
        axes.set_ylabel(f"{score_name(metric)}, mean client (dashed: worst){sign}")
        figure.legend(loc="outside right upper", frameon=False)
