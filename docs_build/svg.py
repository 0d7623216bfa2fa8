"""Pieces of SVG that figures are made of; they follow the reader's light or dark theme."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

# Okabe and Ito's colours, which the colour-blind tell apart.
COLOURS = ("#0072b2", "#c77700", "#008a63", "#b0568a")
STYLE = """
  .card { fill: #ffffff; }
  .ink { fill: #1e293b; }
  .soft { fill: #526077; }
  .line { stroke: #94a3b8; fill: none; stroke-width: 1.6; }
  .guide { stroke: #e2e8f0; fill: none; }
  .hull { fill-opacity: 0.14; stroke-opacity: 0.55; }
  .root { fill: #64748b; }
  .changed { stroke: #d55e00; fill: none; stroke-width: 2.6; }
  .moved { stroke: #d55e00; fill: none; stroke-width: 2; stroke-dasharray: 3 4; }
  .tip { fill: #d55e00; }
  .number { fill: #ffffff; font-weight: 700; font-size: 12px; }
  text { font-family: system-ui, "DejaVu Sans", "Segoe UI", Helvetica, Arial, sans-serif; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #1e2129; }
    .ink { fill: #e2e8f0; }
    .soft { fill: #a3b1c6; }
    .line { stroke: #64748b; }
    .guide { stroke: #39404f; }
    .hull { fill-opacity: 0.3; stroke-opacity: 0.9; }
    .changed, .moved { stroke: #ff8a3d; }
    .tip { fill: #ff8a3d; }
  }
"""


def picture(width: int, height: int, title: str, pieces: Iterable[str]) -> str:
    """A whole file."""
    inner = "\n".join(pieces)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="10" '
        'markerHeight="10" markerUnits="userSpaceOnUse" orient="auto-start-reverse">'
        '<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f'<rect class="card" width="{width}" height="{height}" rx="10"/>\n{inner}\n</svg>\n'
    )


def text(
    x: float, y: float, words: str, kind: str = "ink", *, size: int = 13, anchor: str = "middle",
    bold: bool = False,
) -> str:  # fmt: skip
    weight = ' font-weight="700"' if bold else ""
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}" font-size="{size}" '
        f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
    )


def node(x: float, y: float, name: str, fill: str, *, square: bool = False, r: float = 12) -> str:
    """A client is a circle, a cluster a square with round corners."""
    paint = f'class="{fill}"' if fill == "root" else f'fill="{fill}"'
    shape = (
        f'<rect {paint} x="{x - r:g}" y="{y - r:g}" width="{2 * r:g}" height="{2 * r:g}" rx="5"/>'
        if square
        else f'<circle {paint} cx="{x:g}" cy="{y:g}" r="{r:g}"/>'
    )
    size = ' style="font-size: 10.5px"' if len(name) > 1 else ""
    label = (
        f'<text class="number" x="{x:g}" y="{y + 4.2:g}" text-anchor="middle"{size}>{name}</text>'
    )
    return shape + label


def line(
    x1: float, y1: float, x2: float, y2: float, kind: str = "line", *, tip: bool = False
) -> str:
    end = ' marker-end="url(#tip)"' if tip else ""
    return f'<path class="{kind}" d="M{x1:g} {y1:g} {x2:g} {y2:g}"{end}/>'


def ring(x: float, y: float, r: float = 17) -> str:
    return f'<circle class="changed" cx="{x:g}" cy="{y:g}" r="{r:g}"/>'
