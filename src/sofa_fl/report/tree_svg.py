"""The tree of a round as one self-contained SVG picture: no scripts, no fonts, no network.

Top-down: the root above, clients in a row below, coloured by their scores. Colour never stands
alone: every client that has room for it bears its number and its score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, sqrt
from xml.sax.saxutils import escape

from sofa_fl.errors import printable
from sofa_fl.experiment.storage.events import score_name
from sofa_fl.report.history import Round
from sofa_fl.report.words import name_of, number, score
from sofa_fl.topology.tree import NodeId, Tree

# Viridis: even in lightness, and the same to the colour-blind.
PALETTE = ("440154", "46327e", "365c8d", "277f8e", "1fa187", "4ac16d", "a0da39", "fde725")
INK, SOFT, LINE, GUIDE = "#1e293b", "#64748b", "#cbd5e1", "#e8edf3"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
LEFT, RIGHT, TOP, ROW, BOTTOM = 96, 56, 152, 88, 64
MIN_WIDTH = 820
MAX_NAME = 40


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything goes: `x` and `y` of the nodes, `step` between neighbouring clients."""

    width: float
    height: float
    step: float
    x: Mapping[NodeId, float]
    y: Mapping[NodeId, float]

    @property
    def has_labels(self) -> bool:
        """Whether there is room to write at the clients."""
        return self.step >= 26

    @property
    def is_wide(self) -> bool:
        """Whether there is room to write across, and at the clusters."""
        return self.step >= 40


def tree_svg(round: Round) -> str:
    """Draw the tree of `round`."""
    layout = lay_out(round.tree)
    scale = _scale(round)
    parts = [
        _title(round),
        _legend(scale, round.metric),
        _guides(round.tree, layout),
        *(_edge(node, round.tree, layout) for node in round.tree.walk()),
        *(_cluster(node, round, layout) for node in round.tree.clusters),
        *(_client(node, round, layout, scale) for node in round.tree.clients),
    ]
    size = f"{layout.width:g} {layout.height:g}"
    box = f'width="{layout.width - 1:g}" height="{layout.height - 1:g}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{layout.width:g}" '
        f'height="{layout.height:g}" font-family="{FONT}" font-size="12" fill="{INK}" role="img" '
        f'aria-label="{_text(_headline(round), quote=True)}">'
    )
    frame = f'<rect x="0.5" y="0.5" {box} rx="12" fill="#ffffff" stroke="{GUIDE}"/>'
    return "\n".join([head, frame, *(part for part in parts if part), "</svg>"]) + "\n"


def lay_out(tree: Tree) -> Layout:
    """Clients side by side in the order of the tree, clusters over the middle of their children."""
    clients = [node for node in tree.walk() if node in tree.members]
    n = len(clients)
    room = (MIN_WIDTH - LEFT - RIGHT) / n
    step = min(88.0, max(48.0, room)) if n <= 24 else 30.0 if n <= 60 else max(5.0, 1800 / n)
    width = max(MIN_WIDTH, LEFT + RIGHT + n * step)
    first = LEFT + (width - LEFT - RIGHT - (n - 1) * step) / 2
    x = {client: first + i * step for i, client in enumerate(clients)}
    for node in reversed(tree.clusters):
        below = [x[child] for child in tree.children[node]]
        x[node] = (min(below) + max(below)) / 2
    y = {node: TOP + ROW * (tree.depth - level) for node, level in tree.level.items()}
    return Layout(width, TOP + ROW * tree.depth + BOTTOM, step, x, y)


def colour(share: float) -> str:
    """The palette at `share`, between 0 and 1."""
    place = min(max(share, 0.0), 1.0) * (len(PALETTE) - 1)
    low = min(int(place), len(PALETTE) - 2)
    mixed = (
        round(int(PALETTE[low][i : i + 2], 16) * (1 - (place - low)))
        + round(int(PALETTE[low + 1][i : i + 2], 16) * (place - low))
        for i in (0, 2, 4)
    )
    return "#" + "".join(f"{min(value, 255):02x}" for value in mixed)


def _scale(round: Round) -> tuple[float, float]:
    """The range of the colours: from the worst client to the best, in whole hundredths."""
    values = [accuracy for accuracy in round.accuracy.values() if accuracy is not None]
    low, high = floor(100 * min(values) + 1e-9), ceil(100 * max(values) - 1e-9)
    return low / 100, max(high, low + 1) / 100


def _headline(round: Round) -> str:
    data = round.data if len(round.data) <= MAX_NAME else round.data[: MAX_NAME - 1] + "…"
    when = f"round {round.round} of {round.rounds}" if round.round else "the warm-up"
    return f"{round.title} on {data}, after {when}"


def _title(round: Round) -> str:
    size = number(len(round.tree.clients), "client")
    if round.tree.clusters:
        size += f" in {number(len(round.tree.clusters), 'cluster')}"
    mean, worst = (score(value, round.metric) for value in (round.mean, round.worst))
    scores = f"{score_name(round.metric)} {mean} on average, {worst} for the worst"
    return (
        f'<text x="28" y="44" font-size="20" font-weight="600">{_text(_headline(round))}</text>\n'
        f'<text x="28" y="68" font-size="13.5" fill="{SOFT}">{size} · client {scores}</text>'
    )


def _legend(scale: tuple[float, float], metric: str) -> str:
    """The colours and the circles, in one line under the title."""
    stops = "".join(
        f'<stop offset="{i / (len(PALETTE) - 1):.0%}" stop-color="#{code}"/>'
        for i, code in enumerate(PALETTE)
    )
    low, high = (score(value, metric, 0) for value in scale)
    return (
        f'<defs><linearGradient id="score">{stops}</linearGradient></defs>\n'
        f'<g transform="translate(28 98)" fill="{SOFT}" dominant-baseline="central">'
        f'<circle cx="9" cy="0" r="9" fill="{colour(0.3)}"/>'
        '<text x="9" y="0" font-size="10" fill="#ffffff" text-anchor="middle">i</text>'
        f'<text x="25" y="0">client i, by {score_name(metric)}</text>'
        f'<text x="194" y="0" text-anchor="end">{low}</text>'
        '<rect x="200" y="-5" width="110" height="10" rx="5" fill="url(#score)"/>'
        f'<text x="316" y="0">{high}</text>'
        f'<circle cx="377" cy="0" r="9" fill="{INK}"/>'
        '<text x="377" y="0" font-size="10" fill="#ffffff" text-anchor="middle">n</text>'
        '<text x="393" y="0">cluster of n clients</text></g>'
    )


def _guides(tree: Tree, layout: Layout) -> str:
    """A faint line per level, and its name."""
    lines = []
    for level in range(tree.depth + 1):
        y = TOP + ROW * (tree.depth - level)
        name = "clients" if level == 0 else f"level {level}"
        lines.append(
            f'<path d="M{LEFT - 12} {y:g}H{layout.width - 28:g}" stroke="{GUIDE}"/>'
            f'<text x="28" y="{y:g}" font-size="11.5" fill="{SOFT}" '
            f'dominant-baseline="central">{name}</text>'
        )
    return "\n".join(lines)


def _edge(node: NodeId, tree: Tree, layout: Layout) -> str:
    """From a node up to its parent, the wider the more clients it stands for."""
    up = tree.parent[node]
    if up is None:
        return ""
    x, y, to_x, to_y = layout.x[node], layout.y[node], layout.x[up], layout.y[up]
    bend = to_y + ROW * 0.55  # leave the parent at once, then go straight down
    width = 1.5 + 7 * (len(tree.clients_of(node)) - 1) / len(tree.clients)
    return (
        f'<path d="M{to_x:.1f} {to_y:.1f}C{to_x:.1f} {bend:.1f} {x:.1f} {to_y + ROW * 0.45:.1f} '
        f'{x:.1f} {min(to_y + ROW, y):.1f}V{y:.1f}" fill="none" stroke="{LINE}" '
        f'stroke-width="{width:.1f}" stroke-linecap="round"/>'
    )


def _cluster(node: NodeId, round: Round, layout: Layout) -> str:
    tree = round.tree
    size = len(tree.clients_of(node))
    smallest = min(11.0, 0.8 * layout.step)
    radius = smallest + 15 * sqrt(size / len(tree.clients)) * min(1.0, layout.step / 26)
    x, y = layout.x[node], layout.y[node]
    about = [name_of(node, tree), number(size, "client")]
    if below := round.accuracies_below(node):
        about.append(f"{score_name(round.metric)} {score(sum(below) / len(below), round.metric)}")
    if node in round.loss:
        about.append(f"held-out loss {round.loss[node]:.3f}")
    font = min(15.0, 1.7 * radius / max(2, len(str(size))))
    inside = (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{font:.1f}" fill="#ffffff" '
        f'font-weight="600" text-anchor="middle" dominant-baseline="central">{size}</text>'
    )
    beside = (
        f'<text x="{x + radius + 7:.1f}" y="{y - 8:.1f}" font-size="11" fill="{SOFT}">'
        f"{name_of(node, tree)}</text>"
    )
    return (
        f"<g><title>{', '.join(about)}</title>"
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{INK}" stroke="#ffffff" '
        f'stroke-width="2"/>{inside if radius >= 8.5 else ""}'
        f"{beside if layout.is_wide else ''}</g>"
    )


def _client(node: NodeId, round: Round, layout: Layout, scale: tuple[float, float]) -> str:
    x, y, accuracy = layout.x[node], layout.y[node], round.accuracy[node]
    radius = min(16.0, 0.42 * layout.step)
    low, high = scale
    share = 0.0 if accuracy is None else (accuracy - low) / (high - low)
    fill = "#ffffff" if accuracy is None else colour(share)
    ink = "#ffffff" if accuracy is not None and share < 0.6 else INK
    rim = SOFT if accuracy is None or share > 0.85 else "#ffffff"  # pale on white needs an edge
    dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" stroke="{rim}"/>'
    named = f"{score_name(round.metric)} {score(accuracy, round.metric)}"
    about = f"{_text(name_of(node, round.tree, round.names))}, {named}"
    if not layout.has_labels:
        return f"<g><title>{about}</title>{dot}</g>"
    weight = 700 if accuracy == round.worst else 400
    size = 12.5 if layout.is_wide else 10.5
    turn = "" if layout.is_wide else f' transform="rotate(-55 {x:.1f} {y + 32:.1f})"'
    label = score(accuracy, round.metric, 1)
    called = ""
    if layout.is_wide and node in round.names:
        called = (
            f'<text x="{x:.1f}" y="{y + 48:.1f}" font-size="10.5" fill="{SOFT}" '
            f'text-anchor="middle">{_text(_short(round.names[node], layout.step))}</text>'
        )
    return (
        f"<g><title>{about}</title>{dot}"
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="600" fill="{ink}" '
        f'text-anchor="middle" dominant-baseline="central">{node}</text>'
        f'<text x="{x:.1f}" y="{y + 32:.1f}" font-size="{size - 1}" font-weight="{weight}" '
        f'text-anchor="middle"{turn}>{label}</text>{called}</g>'
    )


def _short(name: str, step: float) -> str:
    """A name in the room between two clients."""
    most = max(4, int(step / 5.6))
    return name if len(name) <= most else name[: most - 1] + "…"


def _text(text: str, *, quote: bool = False) -> str:
    return escape(printable(text), {'"': "&quot;"} if quote else {})
