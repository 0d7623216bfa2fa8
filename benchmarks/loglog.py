"""A small log-log plot as one self-contained SVG picture: no scripts, no fonts, no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10
from xml.sax.saxutils import escape

INK, SOFT, GUIDE = "#1e293b", "#64748b", "#e8edf3"
COLOURS = ("#365c8d", "#1fa187", "#b45309", "#7c3aed")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 520, 84, 220, 96, 64


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name, a remark below it, and its points with the range of each."""

    name: str
    remark: str
    points: Sequence[tuple[float, float, float, float]]  # x, y, lowest y, highest y


def log_log_svg(
    title: str, subtitle: str, x_name: str, y_name: str, lines: Sequence[Series]
) -> str:
    """Draw `lines`, each named at its end."""
    xs = [point[0] for line in lines for point in line.points]
    ys = [y for line in lines for point in line.points for y in point[1:]]
    x_range = log10(min(xs)), max(log10(max(xs)), log10(min(xs)) + 1)
    y_range = floor(log10(min(ys))), max(ceil(log10(max(ys))), floor(log10(min(ys))) + 1)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - x_range[0]) / (x_range[1] - x_range[0])
        up = (log10(y) - y_range[0]) / (y_range[1] - y_range[0])
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="{FONT}" font-size="12" fill="{INK}" role="img" '
        f'aria-label="{escape(title)}">',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="12" fill="#ffffff" '
        f'stroke="{GUIDE}"/>',
        f'<text x="28" y="40" font-size="20" font-weight="600">{escape(title)}</text>',
        f'<text x="28" y="64" font-size="13" fill="{SOFT}">{escape(subtitle)}</text>',
        f'<text x="28" y="{TOP - 12}" fill="{SOFT}">{escape(y_name)}</text>',
    ]
    for power in range(int(y_range[0]), int(y_range[1]) + 1):
        _, y = at(min(xs), 10.0**power)
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GUIDE}"/>'
            f'<text x="{LEFT - 8}" y="{y:.1f}" fill="{SOFT}" text-anchor="end" '
            f'dominant-baseline="central">{_number(power)}</text>'
        )
    for size in sorted(set(xs)):
        x, _ = at(size, 10.0 ** y_range[0])
        parts.append(
            f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="{GUIDE}"/>'
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" fill="{SOFT}" '
            f'text-anchor="middle">{size:,.0f}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle:g}" y="{HEIGHT - 18}" fill="{SOFT}" '
        f'text-anchor="middle">{escape(x_name)}</text>'
    )
    labels = _spaced([at(line.points[-1][0], line.points[-1][1])[1] for line in lines], 36)
    for line, colour, label in zip(lines, COLOURS, labels):
        spots = [(at(x, y), at(x, low)[1], at(x, high)[1]) for x, y, low, high in line.points]
        way = "L".join(f"{x:.1f} {y:.1f}" for (x, y), _, _ in spots)
        parts.append(f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        for (x, y), low, high in spots:
            parts.append(
                f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" stroke-width="1.5"/>'
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" stroke="#ffffff"/>'
            )
        parts.append(
            f'<text x="{spots[-1][0][0] + 12:.1f}" y="{label:.1f}" fill="{colour}" '
            f'font-weight="600">{escape(line.name)}</text>'
            f'<text x="{spots[-1][0][0] + 12:.1f}" y="{label + 15:.1f}" font-size="11" '
            f'fill="{SOFT}">{escape(line.remark)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _number(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:.{-power}f}"


def _spaced(heights: Sequence[float], gap: float) -> list[float]:
    """The heights, moved down where they would be nearer than `gap`."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = list(heights)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    return moved
