"""How our matplotlib figures look, and how one becomes a file.

The same data give the same file with the same matplotlib: no date, no random ids.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sofa_fl.experiment.storage.disk import write_text

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
