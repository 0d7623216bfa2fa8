"""The figure of a round: five steps, each on the same small tree.

python docs_build/round_picture.py    # writes docs/images/round.svg
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from svg import COLOURS, line, node, picture, ring, text

IMAGES = Path(__file__).parent.parent / "docs" / "images"
STEP = 196
SPOTS = {
    "r": (90, 92), "a": (50, 160), "b": (130, 160),
    "0": (20, 228), "1": (50, 228), "2": (80, 228), "3": (112, 228), "4": (148, 228),
}  # fmt: skip
LINES = ("ar", "br", "0a", "1a", "2a", "3b", "4b")
STEPS = (
    ("1  Local update", "clients train, starting from", "the models they serve"),
    ("2  Cluster update", "a cluster is the mean", "of its clients"),
    ("3  Compare losses", "each client tests its path", "on held-out samples"),
    ("4  SHAPE", "the tree follows what", "clients have learned"),
    ("5  Partial data sharing", "pools gather upward and are", "handed down"),
)


def draw() -> str:
    pieces: list[str] = []
    for number, (title, *words) in enumerate(STEPS):
        inner = [*_tree(number), text(84, 34, title, size=14, bold=True)]
        inner += [text(84, 272 + 18 * row, part, "soft", size=12) for row, part in enumerate(words)]
        pieces.append(f'<g transform="translate({14 + STEP * number} 0)">{"".join(inner)}</g>')
        if number:
            x = STEP * number + 2
            pieces.append(line(x, 24, x, 292, "guide"))
    return picture(STEP * len(STEPS) + 4, 306, "A round in five steps", pieces)


def _tree(step: int) -> Iterator[str]:
    gone = {"2a"} if step == 3 else set[str]()
    for pair in LINES:
        (x1, y1), (x2, y2) = (SPOTS[name] for name in pair)
        if pair in gone:
            yield line(x1, y1, x2, y2, "moved")
        else:
            yield line(x1, y1, x2, y2)
    yield from _arrows(step)
    for name, (x, y) in SPOTS.items():
        is_cluster = not name.isdigit()
        in_a = name in ("a", "0", "1") or (name == "2" and step != 3)
        fill = "root" if name == "r" else COLOURS[0] if in_a else COLOURS[1]
        yield node(x, y, name if not is_cluster else "", fill, square=is_cluster, r=11)
    if step == 0:
        yield from (ring(*SPOTS[name], 14.5) for name in "01234")
    if step == 1:
        yield from (ring(*SPOTS[name], 17) for name in "rab")
    if step == 2:
        yield from (ring(*SPOTS[name], 16) for name in ("r", "b", "4"))
        for name, loss in (("r", 34), ("b", 14), ("4", 20)):
            x, y = SPOTS[name]
            size = f'width="{loss * 0.6:g}" height="10" rx="2"'
            yield f'<rect class="tip" x="{x + 19}" y="{y - 5}" {size}/>'
    if step == 3:
        yield ring(*SPOTS["2"], 14.5)
    if step == 4:
        yield from _pools()


def _arrows(step: int) -> Iterator[str]:
    """Down the path before training, up after it; a client on its way."""
    if step == 0:
        for x1, y1, x2, y2 in ((78, 110, 62, 138), (44, 182, 28, 206), (134, 182, 142, 206)):
            yield line(x1, y1, x2, y2, "changed", tip=True)
    if step == 1:
        for x1, y1, x2, y2 in ((26, 206, 40, 184), (146, 206, 136, 184), (122, 138, 106, 112)):
            yield line(x1, y1, x2, y2, "changed", tip=True)
    if step == 3:
        yield line(86, 210, 116, 180, "changed", tip=True)


def _pools() -> Iterator[str]:
    """Many samples in the pools below, few at the root."""
    for name, many in (("a", 5), ("b", 5), ("r", 2)):
        x, y = SPOTS[name]
        for dot in range(many):
            left = x + 20 + 7 * (dot % 3) if name != "a" else x - 20 - 7 * (dot % 3)
            yield f'<circle cx="{left}" cy="{y - 4 + 8 * (dot // 3)}" r="2.8" class="tip"/>'
    yield line(122, 138, 106, 112, "changed", tip=True)
    yield line(78, 110, 62, 138, "changed", tip=True)
    yield line(28, 208, 42, 184, "changed", tip=True)
    yield line(134, 184, 142, 207, "changed", tip=True)


def main() -> None:
    (IMAGES / "round.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
