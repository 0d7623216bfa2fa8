"""The figure of a sweep: the mean and the worst client over the values of the first key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sofa_fl.experiment.storage.events import ACCURACY, metric_of, score_name
from sofa_fl.jobs.combinations import plain
from sofa_fl.jobs.plotting import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, drawing

COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)


def draw_grid(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A line per combination of the other keys; dashed for the worst client."""
    first, metric = next(iter(rows[0]["over"]), ""), metric_of(rows[0])
    unit, sign = (100, ", %") if metric == ACCURACY else (1, "")
    ticks = list(dict.fromkeys(plain(row["over"].get(first, "")) for row in rows))
    lines: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        rest = {key: value for key, value in row["over"].items() if key != first}
        label = ", ".join(f"{key}={plain(value)}" for key, value in rest.items())
        lines.setdefault(label, {})[plain(row["over"].get(first, ""))] = row
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
