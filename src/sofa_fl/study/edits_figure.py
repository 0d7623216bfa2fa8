"""SHAPE's four edits in the plane: clients that have moved, and the tree that `shape` makes of it.

Nothing is drawn by hand but the positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse

from sofa_fl.report.words import tell
from sofa_fl.study.figures import BLUE, GREEN, GUIDE, INK, ORANGE, PURPLE, SOFT, drawing
from sofa_fl.topology.clustering.shape import ShapeConfig, shape
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit

Place = tuple[float, float]
Positions = tuple[Place, ...]
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
NUMBER: dict[str, Any] = {"color": "white", "fontsize": 7, "fontweight": "bold"}
LEFT: Positions = ((0.0, 0.0), (1.0, 0.2), (0.4, 1.0))
RIGHT: Positions = ((5.0, 0.2), (6.0, 0.0), (5.5, 1.0))
TOP: Positions = ((2.6, 4.6), (3.5, 4.8), (3.0, 3.9))


@dataclass(frozen=True, slots=True)
class Example:
    """Clients in clusters, where they were when the tree was made, and where they are now."""

    title: str
    clusters: tuple[tuple[int, ...], ...]
    before: Positions
    now: Positions

    @property
    def tree(self) -> Tree:
        num = sum(map(len, self.clusters))
        root = NodeId(num + len(self.clusters))
        parent: dict[NodeId, NodeId | None] = {root: None}
        for i, members in enumerate(self.clusters):
            parent[NodeId(num + i)] = root
            parent |= {NodeId(client): NodeId(num + i) for client in members}
        return Tree(parent, tuple(map(NodeId, range(num))), root + 1)

    def shaped(self, positions: Positions) -> tuple[Tree, list[Edit]]:
        """The tree after SHAPE, the clients being there, and what was done to it."""
        tree = self.tree
        at = np.array(positions)
        space = Space(tree.clients, at, np.ones(len(at)), linkage="average")
        return shape(tree, space, ShapeConfig())


EXAMPLES = (
    Example(
        "Graft", ((0, 1, 2), (3, 4, 5)), LEFT + RIGHT, (*LEFT[:2], (4.4, 1.2), *RIGHT)
    ),
    Example(
        "Merge",
        ((0, 1, 2), (3, 4, 5), (6, 7, 8)),
        LEFT + RIGHT + TOP,
        LEFT + tuple((round(x - 3.9, 1), round(y + 0.6, 1)) for x, y in RIGHT) + TOP,
    ),
    Example(
        "Split",
        ((0, 1, 2, 3), (4, 5, 6)),
        ((0.0, 2.4), (0.8, 2.6), (0.1, 3.3), (0.9, 3.4), (4.3, 2.4), (5.1, 2.7), (4.6, 3.4)),
        ((0.6, 0.0), (1.4, 0.2), (0.5, 5.6), (1.3, 5.8), (4.3, 2.4), (5.1, 2.7), (4.6, 3.4)),
    ),
    Example(
        "Prune",
        ((0, 1, 2), (3, 4), (5, 6, 7)),
        (*LEFT, (5.0, 0.0), (5.8, 0.5), *TOP),
        (*LEFT, (1.4, 0.9), (5.8, 0.5), *TOP),
    ),
)  # fmt: skip


def draw_edits(path: Path) -> None:
    """A column per edit: the old tree over the new positions, and below it the tree after SHAPE."""
    with drawing(path, 11.0, 5.6) as figure:
        panels = figure.subplots(2, len(EXAMPLES))
        for column, example in enumerate(EXAMPLES):
            after, edits = example.shaped(example.now)
            upper, lower = panels[:, column]
            upper.set_title(example.title)
            _draw_tree(upper, example.tree, example)
            _draw_moves(upper, example)
            _draw_tree(lower, after, example)
            lower.set_xlabel(fill("; ".join(tell(edits, example.tree)), 31), fontsize=8.5)
        for axes, words in zip(panels[:, 0], ("clients have moved", "after SHAPE")):
            axes.set_ylabel(words)


def _draw_tree(axes: Axes, tree: Tree, example: Example) -> None:
    """Clusters as ellipses around their clients, and lines from their middle to each of them."""
    positions = np.array(example.now)
    clusters = [cluster for cluster in tree.clusters if cluster != tree.root]
    colours = _colours(clusters, tree, example)
    for cluster, colour in colours.items():
        members = list(tree.clients_of(cluster))
        middle = positions[members].mean(axis=0)
        size = 2 * np.abs(positions[members] - middle).max(axis=0) + 1.3
        axes.add_patch(
            Ellipse(tuple(middle), *size, facecolor=colour, alpha=0.13, edgecolor="none")
        )
        for member in members:
            axes.plot(*zip(middle, positions[member]), color=colour, linewidth=1.2, zorder=1)
        top = middle[1] + size[1] / 2 + 0.1
        axes.annotate(f"cluster {cluster}", (middle[0], top), ha="center", color=colour, size=7.5)
        axes.scatter(middle[0], middle[1], marker="s", s=20, color=colour, zorder=2)
        axes.scatter(positions[members, 0], positions[members, 1], s=100, color=colour, zorder=3)
    lone = [client for client in tree.clients if tree.parent[client] == tree.root]
    axes.scatter(positions[lone, 0], positions[lone, 1], s=100, color=INK, zorder=3)
    for client, place in enumerate(positions):
        x, y = place
        axes.text(x, y, str(client), ha="center", va="center_baseline", zorder=4, **NUMBER)
    axes.set(xlim=(-2.1, 7.3), ylim=(-1.3, 7.4), xticks=[], yticks=[], aspect="equal")
    for spine in axes.spines.values():
        spine.set(visible=True, color=GUIDE)


def _draw_moves(axes: Axes, example: Example) -> None:
    for before, now in zip(example.before, example.now):
        if before != now:
            axes.annotate(
                "",
                xy=now,
                xytext=before,
                arrowprops={"arrowstyle": "->", "color": SOFT, "linestyle": ":", "shrinkB": 7},
            )


def _colours(clusters: Sequence[NodeId], tree: Tree, example: Example) -> dict[NodeId, str]:
    """A cluster that stays keeps its colour, and a new one takes it over if nobody else has."""
    found: dict[NodeId, str] = {}
    for cluster in sorted(clusters):
        first = tree.clients_of(cluster)[0]
        old = next(i for i, members in enumerate(example.clusters) if first in members)
        index = cluster - len(example.now) if cluster in example.tree.parent else old
        free = [COLOURS[index], *reversed(COLOURS)]
        found[cluster] = next(colour for colour in free if colour not in found.values())
    return found
