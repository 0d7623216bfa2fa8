"""The figure of DMAC (the paper's Figure 1): what each step joins, and the levels of the tree.

The steps and the tree are those of the paper's rule in the code; only the positions are made up.

python docs_build/dmac_picture.py    # writes docs/images/dmac.svg
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from svg import COLOURS, line, node, picture, text

from sofa_fl.topology.dmac import by_threshold
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree

IMAGES = Path(__file__).parent.parent / "docs" / "images"
GAMMA, SYMBOL = 1.5, "\N{GREEK SMALL LETTER GAMMA}"
POSITIONS = np.array(
    [
        [0.0, 0.2], [1.5, 0.0], [0.8, 1.5],
        [4.0, 0.3], [5.4, 0.9],
        [4.6, 5.0], [6.1, 5.4], [5.0, 6.6],
        [2.2, 6.4],
    ]
)  # fmt: skip
SPACE = Space(tuple(map(NodeId, range(len(POSITIONS)))), POSITIONS, np.ones(len(POSITIONS)))
WIDTH, HEIGHT, PANEL = 1000, 346, 216
Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of Algorithm 1: its nodes, the smallest distance, and the pairs that it joins."""

    places: dict[NodeId, Place]
    tau: float
    pairs: list[tuple[NodeId, NodeId, float]]
    groups: list[list[NodeId]]


def trace(tree: Tree, space: Space, gamma: float) -> list[Step]:
    """The steps of the paper's DMAC that made a tree: a cluster is made once its parts are there.

    In a step, the smallest distance and the pairs within gamma of it are those of the nodes that
    have no parent yet.
    """
    nodes, there, steps = space.locate(tree), [*tree.clients], list[Step]()
    while len(there) > 1:
        groups = [tree.children[c] for c in tree.clusters if set(tree.children[c]) <= set(there)]
        distances = nodes.distances(there, there)
        np.fill_diagonal(distances, np.inf)
        tau = float(distances.min())
        pairs = [
            (there[u], there[v], float(distances[u, v]))
            for u, v in zip(*(distances <= tau * gamma).nonzero())
            if u < v
        ]
        inside = {child: at for at, group in enumerate(groups) for child in group}
        met = {inside[node] for u, v, _ in pairs for node in (u, v) if node in inside}
        groups = [groups[at] for at in sorted(met)]
        at = dict(zip(there, (nodes.positions[row] for row in nodes.rows(there))))
        places = {node: (float(x), float(y)) for node, (x, y) in at.items()}
        steps.append(Step(places, tau, pairs, [sorted(group) for group in groups]))
        gone = {node for group in groups for node in group}
        parents = dict.fromkeys(_parent(tree, group[0]) for group in groups)
        there = [*(node for node in there if node not in gone), *sorted(parents)]
    return steps


def draw() -> str:
    tree = by_threshold(SPACE, GAMMA, len(POSITIONS))
    steps = trace(tree, SPACE, GAMMA)
    colours = _colours(tree)
    pieces: list[str] = []
    for number, step in enumerate(steps):
        left = 10 + PANEL * number
        pieces += _plane(step, left, tree, colours)
        pieces.append(text(left + PANEL / 2, 26, f"step {number + 1}", bold=True, size=14))
        words = f"τ = {step.tau:.2f}, τ · {SYMBOL} = {GAMMA * step.tau:.2f}"
        pieces.append(text(left + PANEL / 2, 306, words, "soft", size=12))
        pieces.append(line(left + PANEL, 16, left + PANEL, 312, "guide"))
    words = f"solid: the nearest pair, at τ; dotted: the other pairs within τ · {SYMBOL}"
    pieces.append(text(10 + PANEL * len(steps) / 2, 330, words, size=12))
    pieces += _levels(tree, 10 + PANEL * len(steps), colours)
    return picture(
        WIDTH, HEIGHT, "DMAC joins all pairs within tau times gamma, step by step", pieces
    )


def _colours(tree: Tree) -> dict[NodeId, str]:
    """A colour per cluster below the root; a client has that of its parent."""
    clusters = [c for c in sorted(tree.clusters) if c != tree.root]
    found = {cluster: COLOURS[at % len(COLOURS)] for at, cluster in enumerate(clusters)}
    return found | {c: found.get(_parent(tree, c), "root") for c in tree.clients}


def _parent(tree: Tree, child: NodeId) -> NodeId:
    parent = tree.parent[child]
    assert parent is not None
    return parent


def _plane(step: Step, left: float, tree: Tree, colours: dict[NodeId, str]) -> Iterator[str]:
    """The nodes where they are, and lines between those that this step joins."""
    low, high = POSITIONS.min(axis=0), POSITIONS.max(axis=0)
    scale = min((PANEL - 46) / (high - low)[0], 214 / (high - low)[1])
    middle = (low + high) / 2

    def at(place: Place) -> Place:
        x, y = (
            left + PANEL / 2 + scale * (place[0] - middle[0]),
            162 - scale * (place[1] - middle[1]),
        )
        return round(x, 1), round(y, 1)

    for client, place in zip(tree.clients, POSITIONS):
        if client not in step.places:
            x, y = at((place[0], place[1]))
            yield f'<circle class="root" opacity="0.35" cx="{x}" cy="{y}" r="4"/>'
    for a, b, distance in step.pairs:
        kind = "changed" if distance <= step.tau * (1 + 1e-9) else "moved"
        yield line(*at(step.places[a]), *at(step.places[b]), kind)
    for name, place in step.places.items():
        yield node(*at(place), str(name), colours[name], square=name not in tree.members, r=10)


def _levels(tree: Tree, left: float, colours: dict[NodeId, str]) -> Iterator[str]:
    """The tree, a line per level."""
    order = _row(tree, tree.root)
    step = 258 / (len(order) - 1)
    x = {client: left + 68 + step * at for at, client in enumerate(order)}
    y = {n: 262 - 66.0 * tree.level[n] for n in tree.parent}
    for cluster in reversed(tree.clusters):
        x[cluster] = sum(x[child] for child in tree.children[cluster]) / len(tree.children[cluster])
    yield text(left + 172, 26, "the tree", bold=True, size=14)
    for level in range(tree.depth + 1):
        height = 262 - 66.0 * level
        yield line(left + 50, height, WIDTH - 12, height, "guide")
        yield text(left + 10, height + 4, f"level {level}", "soft", size=11, anchor="start")
    for child, parent in tree.parent.items():
        if parent is not None:
            yield line(x[child], y[child], x[parent], y[parent])
    for n in tree.parent:
        fill = "root" if n == tree.root else colours[n]
        yield node(x[n], y[n], str(n), fill, square=n not in tree.members, r=10)
    yield text(left + 172, 306, "circles: clients, squares: clusters", "soft", size=12)


def _row(tree: Tree, top: NodeId) -> Sequence[NodeId]:
    """The clients below a node, from left to right."""
    if top in tree.members:
        return [top]
    rows = sorted((_row(tree, child) for child in tree.children[top]), key=min)
    return [client for row in rows for client in row]


def main() -> None:
    (IMAGES / "dmac.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
