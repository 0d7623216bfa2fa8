"""One figure per edit: where the clients are, the tree before it, the tree after it.

Nothing is drawn by hand but the positions: the edits come out of SHAPE, `find_joins` and
`find_leaves`, and the sentences are the report's.

python docs_build/edit_pictures.py    # writes docs/images/edit-*.svg
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edit_examples import EXAMPLES, LEFT, RIGHT, Example, Place
from svg import COLOURS, line, node, picture, ring, text

from sofa_fl.report.words import tell
from sofa_fl.topology.edits import Edit, Graft, Join, Leave, Merge, Prune, Split, apply_all
from sofa_fl.topology.shape import find_joins, find_leaves
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WIDTH, HEIGHT = 900, 320
Positions = Mapping[NodeId, Place]
Colours = Mapping[NodeId, str]


@dataclass(frozen=True, slots=True)
class Story:
    """What happened to a tree, and why."""

    name: str
    before: Tree
    edits: Sequence[Edit]
    was: Positions
    now: Positions

    @property
    def after(self) -> Tree:
        return apply_all(self.before, self.edits)


def stories() -> Iterator[Story]:
    """SHAPE's four, and a client that comes, and one that goes."""
    for example in EXAMPLES:
        was, now = (_numbered(positions) for positions in (example.before, example.now))
        yield Story(example.title.lower(), example.tree, example.shaped(example.now)[1], was, now)
    home = Example("Join", ((0, 1, 2), (3, 4, 5)), LEFT + RIGHT, LEFT + RIGHT)
    tree, positions = home.tree, _numbered(home.now)
    new = {NodeId(9): (4.3, 1.4)}
    everybody = positions | new
    at = np.array(list(everybody.values()))
    space = Space(tuple(everybody), at, np.ones(len(at)), linkage="average")
    yield Story("join", tree, find_joins(tree, space), everybody, everybody)
    small = Example("Leave", ((0, 1, 2), (3, 4)), LEFT + RIGHT[:2], LEFT + RIGHT[:2])
    stay = [client for client in small.tree.clients if client != 4]
    yield Story(
        "leave",
        small.tree,
        find_leaves(small.tree, stay),
        _numbered(small.before),
        _numbered(small.now),
    )


def draw(story: Story) -> str:
    """Three panels and a sentence."""
    changed = _changed(story.edits)
    colours = _colours(story)
    pieces = [
        text(150, 26, "positions of the clients", bold=True),
        text(440, 26, "the tree before", bold=True),
        text(745, 26, "the tree after", bold=True),
        *_plane(story, colours, changed),
        line(292, 16, 292, 270, "guide"),
        line(594, 16, 594, 270, "guide"),
        *_tree(story.before, 306, colours, changed),
        *_tree(story.after, 608, colours, changed),
        text(WIDTH / 2, 302, "; ".join(tell(story.edits, story.before)), size=14),
    ]
    return picture(WIDTH, HEIGHT, f"{story.name.capitalize()}: before and after", pieces)


def _numbered(positions: Sequence[Place]) -> dict[NodeId, Place]:
    return {NodeId(client): place for client, place in enumerate(positions)}


def _changed(edits: Sequence[Edit]) -> set[NodeId]:
    """The nodes that an edit is about."""
    found: set[NodeId] = set()
    for edit in edits:
        match edit:
            case Graft(node_) | Prune(node_) | Leave(node_) | Join(node_):
                found.add(node_)
            case Merge(nodes, into):
                found |= {*nodes, into}
            case Split(node_, into, _):
                found |= {node_, *into}
    return found


def _colours(story: Story) -> dict[NodeId, str]:
    """Of every cluster but the roots; what takes the place of one has its colour, if it is free."""
    found: dict[NodeId, str] = {}
    before, after = story.before, story.after
    for cluster in sorted(c for c in before.clusters if c != before.root):
        found[cluster] = COLOURS[len(found)]
    for cluster in sorted(c for c in after.clusters if c != after.root and c not in found):
        first = after.clients_of(cluster)[0]
        old = found.get(before.path(first)[-2], COLOURS[-1]) if first in before.members else ""
        taken = {found[c] for c in found if c in after.parent}
        found[cluster] = old if old not in taken else COLOURS[-1]
    return found


def _colour(client: NodeId, tree: Tree, colours: Colours) -> str:
    parent = tree.parent.get(client)
    return colours.get(parent, "root") if parent is not None else "root"


def _plane(story: Story, colours: Colours, changed: set[NodeId]) -> Iterator[str]:
    """The clients where they are, in the clusters they have before the edit."""
    spots = [*story.was.values(), *story.now.values()]
    xs, ys = [x for x, _ in spots], [y for _, y in spots]
    scale = min(200 / (max(xs) - min(xs)), 170 / max(max(ys) - min(ys), 1.0))

    def at(place: Place) -> tuple[float, float]:
        middle = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
        return 148 + scale * (place[0] - middle[0]), 158 - scale * (place[1] - middle[1])

    tree = story.before
    for cluster in tree.clusters:
        if cluster == tree.root:
            continue
        points = np.array([at(story.was[client]) for client in tree.clients_of(cluster)])
        low, high = points.min(axis=0) - 22, points.max(axis=0) + 22
        paint = f'fill="{colours[cluster]}" stroke="{colours[cluster]}"'
        yield (
            f'<rect class="hull" {paint} x="{low[0]:.1f}" y="{low[1]:.1f}" rx="24" '
            f'width="{high[0] - low[0]:.1f}" height="{high[1] - low[1]:.1f}"/>'
        )
    for client, place in story.now.items():
        if story.was[client] != place:
            (x1, y1), (x2, y2) = at(story.was[client]), at(place)
            short = 1 - 16 / float(np.hypot(x2 - x1, y2 - y1))
            end = round(x1 + short * (x2 - x1), 1), round(y1 + short * (y2 - y1), 1)
            yield line(x1, y1, *end, "moved", tip=True)
    for client, place in story.now.items():
        x, y = (round(value, 1) for value in at(place))
        yield node(x, y, str(client), _colour(client, tree, colours))
        if client in changed:
            yield ring(x, y)


def _tree(tree: Tree, left: float, colours: Colours, changed: set[NodeId]) -> Iterator[str]:
    """Clients in a row below their clusters, the root above."""
    order = _row(tree, tree.root)
    step = min(36.0, 270 / len(order))
    start = left + 139 - step * (len(order) - 1) / 2
    x = {client: start + step * at for at, client in enumerate(order)}
    y = {n: 240 - 84.0 * tree.level[n] for n in tree.parent}
    for cluster in reversed(tree.clusters):
        x[cluster] = sum(x[child] for child in tree.children[cluster]) / len(tree.children[cluster])
    for child, parent in tree.parent.items():
        if parent is not None:
            yield line(x[child], y[child], x[parent], y[parent])
    for n in tree.parent:
        fill = colours.get(n, "root") if n not in tree.members else _colour(n, tree, colours)
        yield node(x[n], y[n], str(n), fill, square=n not in tree.members)
        if n in changed:
            yield ring(x[n], y[n], 17 if n in tree.members else 19)


def _row(tree: Tree, top: NodeId) -> list[NodeId]:
    """The clients below a node from left to right: siblings by their smallest client."""
    if top in tree.members:
        return [top]
    rows = sorted((_row(tree, child) for child in tree.children[top]), key=min)
    return [client for row in rows for client in row]


def main() -> None:
    for story in stories():
        (IMAGES / f"edit-{story.name}.svg").write_text(draw(story), encoding="utf-8")


if __name__ == "__main__":
    main()
