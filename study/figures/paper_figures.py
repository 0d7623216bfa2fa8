"""The paper's figures as SVG files, drawn from `figures.json` alone: no run is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.jobs.plotting import BLUE, GUIDE, ORANGE, SOFT, VERMILION, drawing
from sofa_fl.report.tree_svg import tree_svg
from study.design.contenders import title
from study.rows.figure_data import Kept, kept_round


def draw_kept(kept: Kept, folder: Path) -> list[Path]:
    """Every figure that something was kept for."""
    draw: dict[str, Callable[[Any, Path], None]] = {
        "clients": draw_clients,
        "losses": draw_losses,
        "tree": draw_tree,
    }
    files = []
    for name, piece in kept.items():
        if name in draw:
            files.append(folder / f"{name}.svg")
            draw[name](piece, files[-1])
    return files


def draw_tree(piece: Mapping[str, Any], path: Path) -> None:
    """The tree at the end of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, tree_svg(kept_round(piece)))


def draw_clients(piece: Mapping[str, Any], path: Path) -> None:
    """Every client's accuracy with both methods, the clients in order of SOFA-FL's."""
    ours, theirs = (
        100 * np.array([np.nan if x is None else x for x in piece["accuracies"][label]])
        for label in ("sofa", "hypcluster")
    )
    order = np.argsort(-ours, kind="stable")
    at = np.arange(len(order))
    with drawing(path, 8.6, 3.4) as figure:
        axes = figure.add_subplot()
        axes.set_title(f"Accuracy of every client (seed {piece['seed']})")
        axes.vlines(at, theirs[order], ours[order], color=GUIDE, linewidth=4, zorder=1)
        for values, name, colour, marker, size in (  # the smaller one last: both are seen
            (ours, title("sofa"), BLUE, "o", 60),
            (theirs, title("hypcluster"), ORANGE, "D", 20),
        ):
            mean = float(np.nanmean(values))
            label = f"{name}, mean {mean:.2f}%"
            axes.scatter(at, values[order], s=size, color=colour, marker=marker, label=label)
            axes.axhline(mean, color=colour, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xticks(at, [str(client) for client in order])
        axes.set_xlabel("client")
        axes.set_ylabel("accuracy in %")
        axes.grid(axis="x", visible=False)
        axes.legend(frameon=False, loc="lower left")


def draw_losses(piece: Mapping[str, Any], path: Path) -> None:
    """The local loss batch by batch; a panel per way of sharing, on the same scale."""
    curves: Mapping[str, list[list[float]]] = piece["curves"]
    colours = dict(zip(curves, (SOFT, VERMILION, BLUE)))
    with drawing(path, 8.6, 1.75 * len(curves) + 0.5) as figure:
        panels = figure.subplots(len(curves), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        figure.suptitle(
            f"Local loss of all clients over the batches of all rounds (seed {piece['seed']})",
            x=0.01,
            ha="left",
            fontsize=10.5,
            fontweight="bold",
        )
        for axes, (name, rounds) in zip(panels, curves.items()):
            _loss_panel(axes, name, rounds, colours[name])
        panels[-1].set_xlabel("round (0 is the warm-up); every line begins with a new round")


def _loss_panel(axes: Axes, name: str, rounds: list[list[float]], colour: str) -> None:
    start = 0
    starts = []
    for losses in rounds:
        starts.append(start)
        # A line per round: what rises between two of them is what the new round brought.
        axes.plot(range(start, start + len(losses)), losses, color=colour, linewidth=1.3)
        start += len(losses)
    axes.scatter(starts, [losses[0] for losses in rounds], s=12, color=colour, zorder=3)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(starts[::2], [str(round) for round in range(0, len(rounds), 2)])
    axes.set_xlim(-0.01 * start, 1.01 * start)
    axes.set_ylabel("loss")
    words = name if name.startswith("no") else f"sharing {name}"
    axes.text(0.995, 0.93, words, transform=axes.transAxes, ha="right", va="top", color=colour)
    axes.grid(axis="y", which="minor", visible=False)
