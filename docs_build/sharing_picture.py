"""The figure of partial data sharing: pools gather upward, and are distributed downward.

Which samples are where is what `share` and `foreign` say; only the tree is made up.

python docs_build/sharing_picture.py    # writes docs/images/sharing.svg
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from svg import COLOURS, line, node, picture, text

from sofa_fl.sharing import Owned, Pools, Shared, SharingConfig, foreign, share
from sofa_fl.topology.tree import NodeId, Tree

IMAGES = Path(__file__).parent.parent / "docs" / "images"
RATIO, SAMPLES = 0.5, 8  # of every client
ROOT, LEFT, RIGHT = NodeId(6), NodeId(4), NodeId(5)
TREE = Tree(
    {ROOT: None, LEFT: ROOT, RIGHT: ROOT, **{NodeId(c): (LEFT, RIGHT)[c // 2] for c in range(4)}},
    tuple(map(NodeId, range(4))),
    ROOT + 1,
)
OWNED: Owned = {c: np.arange(SAMPLES) + SAMPLES * c for c in TREE.clients}
PLACES = {
    ROOT: (220, 74), LEFT: (118, 150), RIGHT: (322, 150),
    **{NodeId(c): (58 + 108 * c, 232) for c in range(4)},
}  # fmt: skip
PANEL, HEIGHT = 440, 356
GAP, ROW = 10, 4  # between dots, and dots in a row


def shared_pools() -> Pools:
    return share(TREE, OWNED, Shared(), SharingConfig(ratio=RATIO), seed=0, round=1).pools


def draw() -> str:
    """Gather on the left, distribute on the right."""
    pools = shared_pools()
    pieces = [line(PANEL, 16, PANEL, HEIGHT - 16, "guide")]
    for title, words, left, inner in (
        ("Gather, upward", f"a pool takes {RATIO:g} of what each child holds", 0, _gather(pools)),
        (
            "Distribute, downward",
            "a client trains on its own samples and on the pools of its path",
            PANEL,
            _distribute(pools),
        ),
    ):
        head = [
            text(PANEL / 2, 28, title, size=14, bold=True),
            text(PANEL / 2, HEIGHT - 14, words, "soft", size=12),
        ]
        body = "".join([*head, *inner])
        pieces.append(f'<g transform="translate({left} 0)">{body}</g>')
    return picture(2 * PANEL, HEIGHT, "Partial data sharing up and down the tree", pieces)


def _gather(pools: Pools) -> Iterator[str]:
    """What every client owns, full where its parent took it, and what every pool holds."""
    yield from _edges(upward=True)
    for cluster, rows in pools.items():
        yield from _pool(cluster, rows.tolist())
    for client, rows in OWNED.items():
        parent = TREE.parent[client]
        assert parent is not None
        taken = set(pools[parent].tolist())
        x, y = PLACES[client]
        yield from _dots(x, y + 26, rows.tolist(), {row for row in rows.tolist() if row in taken})
    yield from _nodes()


def _distribute(pools: Pools) -> Iterator[str]:
    """What every client trains on: its own samples, and below a line those it was given."""
    yield from _edges(upward=False)
    for cluster, rows in pools.items():
        yield from _pool(cluster, rows.tolist())
    for client, rows in foreign(TREE, pools, OWNED).items():
        x, y = PLACES[client]
        yield from _dots(x, y + 26, OWNED[client].tolist(), set(OWNED[client].tolist()))
        yield line(x - 22, y + 46, x + 22, y + 46)
        yield from _dots(x, y + 56, rows.tolist(), set(rows.tolist()))
    yield from _nodes()


def _edges(*, upward: bool) -> Iterator[str]:
    for child, parent in TREE.parent.items():
        if parent is None:
            continue
        (x1, y1), (x2, y2) = (PLACES[child], PLACES[parent]) if upward else (
            PLACES[parent], PLACES[child]
        )  # fmt: skip
        near, far = 18 / np.hypot(x2 - x1, y2 - y1), 1 - 18 / np.hypot(x2 - x1, y2 - y1)
        points = [
            round(float(a + t * (b - a)), 1) for t in (near, far) for a, b in ((x1, x2), (y1, y2))
        ]
        yield line(points[0], points[1], points[2], points[3], "changed", tip=True)


def _nodes() -> Iterator[str]:
    for name, (x, y) in PLACES.items():
        is_client = name in TREE.members
        fill = COLOURS[name] if is_client else "root"
        yield node(x, y, str(name), fill, square=not is_client)


def _pool(cluster: NodeId, rows: list[int]) -> Iterator[str]:
    """The samples of a pool beside its cluster, outside the tree."""
    x, y = PLACES[cluster]
    side = -46 if cluster == LEFT else 46
    yield from _dots(x + side, y - 5, rows, set(rows))
    yield text(x + side, y - 14, "pool", "soft", size=11)


def _dots(x: float, y: float, rows: list[int], full: set[int]) -> Iterator[str]:
    """Samples in their owner's colour around `x`, from `y` down; hollow unless `full`."""
    for at, row in enumerate(rows):
        cx = x + GAP * (at % ROW - (ROW - 1) / 2)
        cy = y + GAP * (at // ROW)
        colour = COLOURS[row // SAMPLES]
        fill = colour if row in full else "none"
        paint = f'fill="{fill}" stroke="{colour}" stroke-width="1.3"'
        yield f'<circle cx="{cx:g}" cy="{cy:g}" r="3.2" {paint}/>'


def main() -> None:
    (IMAGES / "sharing.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
