"""The tree of the languages, each in the colour of its family."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D

from sofa_fl.data.natural.languages import read_languages
from sofa_fl.jobs.plotting import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    SOFT,
    VERMILION,
    drawing,
)
from sofa_fl.topology.tree import NodeId, Tree

# In the order of the groups' numbers.
FAMILIES = {
    "Austronesian": INK,
    "Germanic": BLUE,
    "Niger-Congo": ORANGE,
    "Romance": GREEN,
    "Siouan": SOFT,
    "Turkic": VERMILION,
    "Uralic": PURPLE,
}
COLOURS = tuple(FAMILIES.values())
BRANCH = SKY


def draw_languages(piece: Mapping[str, Any], path: Path) -> None:
    """Languages from top to bottom in the order of the tree, which grows from left to right."""
    parent = {NodeId(int(node)): up for node, up in piece["tree"].items()}
    names = dict(enumerate(piece["names"]))
    tree = Tree(parent, tuple(NodeId(client) for client in names), 1 + max(parent))
    family = dict(zip(read_languages().names, read_languages().truth[0]))
    leaves = [node for node in tree.walk() if node in tree.members]
    depth = max(len(tree.path(leaf)) for leaf in leaves)
    at = {leaf: (float(depth - 1), -float(row)) for row, leaf in enumerate(leaves)}
    for cluster in reversed(tree.clusters):
        below = [at[child][1] for child in tree.children[cluster]]
        at[cluster] = (float(len(tree.path(cluster)) - 1), sum(below) / len(below))
    with drawing(path, 7.2, 0.19 * len(leaves) + 1.0) as figure:
        axes = figure.add_subplot()
        axes.axis("off")
        for node, (x, y) in at.items():
            above = tree.parent[node]
            colour = COLOURS[family[names[node]]] if node in tree.members else BRANCH
            if above is not None:
                x_above, y_above = at[above]
                axes.plot([x_above, x_above, x], [y_above, y, y], color=colour, linewidth=1.2)
            if node in tree.members:
                axes.text(x + 0.04, y, names[node], color=colour, va="center", fontsize=8.5)
            else:
                axes.plot(x, y, "s", color=BRANCH, markersize=5)
        axes.set_xlim(-0.1, depth - 0.5)
        marks = [Line2D([], [], color=colour, label=name) for name, colour in FAMILIES.items()]
        figure.legend(handles=marks, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
