"""The paper's figures as SVG files, drawn from `figures.json` alone: no run is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.jobs.plotting import BLUE, GREEN, GUIDE, ORANGE, VERMILION, drawing
from sofa_fl.report.tree_svg import tree_svg
from study.design.captions import LOSS_FIGURES
from study.design.contenders import (
    AS_WRITTEN,
    PAPER_HYPCLUSTER,
    TABLE2_CONTENDERS,
    table2_label,
    title,
)
from study.rows.figure_data import FigureData, round_of

Rounds = Sequence[Sequence[float]]  # the loss of every batch of every round
# Colour, marker and size by contender: larger marks first, so that smaller ones stay visible.
MARKS: Mapping[str, tuple[str, str, int]] = {
    "sofa": (BLUE, "o", 70),
    AS_WRITTEN: (GREEN, "s", 34),
    PAPER_HYPCLUSTER: (VERMILION, "^", 30),
    "hypcluster": (ORANGE, "D", 16),
}
LOSS_COLOURS = {AS_WRITTEN: GREEN, "sofa": BLUE}


def draw_figures(data: FigureData, folder: Path) -> list[Path]:
    """Every figure whose data are there."""
    files = []
    if "clients" in data:
        files.append(folder / "clients.svg")
        draw_clients(data["clients"], files[-1])
    if "losses" in data:
        files += draw_losses(data["losses"], folder)
    if "tree" in data:
        files.append(folder / "tree.svg")
        draw_tree(data["tree"], files[-1])
    return files


def draw_tree(piece: Mapping[str, Any], path: Path) -> None:
    """The tree at the end of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, tree_svg(round_of(piece)))


def draw_clients(piece: Mapping[str, Any], path: Path) -> None:
    """Every client's accuracy by method, the clients in the order of SOFA-FL's accuracy."""
    accuracies = {
        label: 100 * np.array([np.nan if x is None else x for x in piece["accuracies"][label]])
        for label in MARKS
        if label in piece["accuracies"]
    }
    every = np.array(list(accuracies.values()))
    order = np.argsort(-every[0], kind="stable")
    at = np.arange(len(order))
    with drawing(path, 8.6, 3.8) as figure:
        axes = figure.add_subplot()
        axes.set_title(f"Accuracy of every client (seed {piece['seed']})")
        low, high = np.min(every, axis=0)[order], np.max(every, axis=0)[order]
        axes.vlines(at, low, high, color=GUIDE, linewidth=4, zorder=1)
        for label, values in accuracies.items():
            colour, marker, size = MARKS[label]
            mean = float(np.nanmean(values))
            name = f"{title(label)}, K chosen" if label == "hypcluster" else title(label)
            words = f"{name}, mean {mean:.2f}%"
            axes.scatter(at, values[order], s=size, color=colour, marker=marker, label=words)
            axes.axhline(mean, color=colour, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xticks(at, [str(client) for client in order])
        axes.set_xlabel("client")
        axes.set_ylabel("accuracy in %")
        axes.grid(axis="x", visible=False)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def draw_losses(piece: Mapping[str, Any], folder: Path) -> list[Path]:
    """A figure per way of sharing, all on one scale; a panel per contender with a curve."""
    curves: Mapping[str, Rounds] = piece["curves"]
    shown = [losses for rounds in curves.values() for losses in rounds]
    scale = 0.8 * min(map(min, shown)), 1.25 * max(map(max, shown))
    files = []
    for sharing, what in LOSS_FIGURES.items():
        names = {label: table2_label(label, sharing) for label in TABLE2_CONTENDERS}
        found = {label: curves[name] for label, name in names.items() if name in curves}
        if not found:
            continue
        files.append(folder / f"{what.file}.svg")
        with drawing(files[-1], 8.6, 2.7) as figure:
            panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
            heading = f"{what.title} (seed {piece['seed']})"
            figure.suptitle(heading, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
            for axes, (label, rounds) in zip(panels, found.items()):
                _loss_panel(axes, label, rounds)
                axes.set_ylim(*scale)
            panels[0].set_ylabel("local loss")
            figure.supxlabel("round (0 is the warm-up)", fontsize=9.5)
    return files


def _loss_panel(axes: Axes, label: str, rounds: Rounds) -> None:
    colour, start, starts = LOSS_COLOURS[label], 0, []
    for losses in rounds:
        starts.append(start)
        # A line per round: a jump between two lines is what the new round brought.
        axes.plot(range(start, start + len(losses)), losses, color=colour, linewidth=1.3)
        start += len(losses)
    axes.scatter(starts, [losses[0] for losses in rounds], s=12, color=colour, zorder=3)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    step = 2 if len(rounds) <= 12 else 5
    axes.set_xticks(starts[::step], [str(round) for round in range(0, len(rounds), step)])
    axes.set_xlim(-0.01 * start, 1.01 * start)
    axes.text(
        0.98, 0.95, title(label), transform=axes.transAxes, ha="right", va="top", color=colour
    )
    axes.grid(axis="y", which="minor", visible=False)
