"""What each fast part of the clustering gains: the same pass with and without it.

A part is one method of `FastCandidates`; without it, the rules look at all candidates. DMAC is
timed with and without `neighbors`, a SHAPE pass with and without the others, in all situations.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from situations import SITUATIONS, gaussian, models, moved
from timing import space_of, timed

from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.config import DmacConfig, ShapeConfig
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.fast import FastCandidates
from sofa_fl.topology.clustering.shape import default_tree_rules, shape
from sofa_fl.topology.geometry.space import Floats
from sofa_fl.topology.tree import Tree
from sofa_fl.topology.tree.edits import Edit

PARTS = {
    "neighbors": "DMAC: nearest neighbors kept up to date",
    "merges": "SHAPE: merges by mean distances",
    "splits": "SHAPE: numbers of parts by bounds",
}
LARGEST_MATRIX = 3000  # clients of which the plain DMAC is timed: it needs all pairs at once
LARGEST_PLAIN = 60.0  # seconds that a pass without a part may take, by what it took before
SIZES = (100, 1000, 10_000)


def without(part: str) -> FastCandidates:
    """The fast candidates but for one part."""
    kind = type("Without", (FastCandidates,), {part: getattr(Candidates, part)})
    return kind()  # type: ignore[no-any-return]


def build(positions: Floats, candidates: Candidates) -> Tree:
    return dmac(space_of(positions), DmacConfig(), 0, candidates)


def reshape(tree: Tree, positions: Floats, candidates: Candidates) -> tuple[Tree, list[Edit]]:
    return shape(tree, space_of(positions), ShapeConfig(), default_tree_rules(candidates))


def gains(sizes: Sequence[int], repeat: int) -> Iterator[dict[str, Any]]:
    """Seconds of every situation, with all parts and without each; the results must be the same."""
    before: dict[tuple[str, str, str], float] = {}  # seconds without a part, with fewer clients
    for n in sizes:
        for places, make in (("gaussian", gaussian), ("models", models)):
            for kind, events in SITUATIONS.items():
                rng = np.random.default_rng(n)
                draw, groups = make(kind, n, rng)
                first = draw(groups)
                rested, _ = reshape(build(first, FastCandidates()), first, FastCandidates())
                for name, share in events:
                    now = draw(moved(groups, share, rng))
                    for part in PARTS:
                        if part == "neighbors":
                            job: Callable[[Candidates], object] = partial(build, now)
                            much = n > LARGEST_MATRIX
                        else:
                            job = partial(reshape, rested, now)
                            much = 100 * before.get((part, places, name), 0) > LARGEST_PLAIN
                        if much:
                            continue
                        fast, plain = (
                            [timed(partial(job, candidates)) for _ in range(repeat)]
                            for candidates in (FastCandidates(), without(part))
                        )
                        assert fast[0][1] == plain[0][1], f"{part} changes the result"
                        seconds = [min(spent for spent, _ in runs) for runs in (fast, plain)]
                        before[part, places, name] = seconds[1]
                        yield {
                            "part": part,
                            "clients": n,
                            "places": places,
                            "situation": name,
                            "seconds": seconds,
                        }


def gains_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per part: the largest gain in any situation, and the median."""
    sizes = sorted({row["clients"] for row in rows})
    lines = [
        "| fast part | " + " | ".join(f"{n:,} clients: largest (median)" for n in sizes) + " |",
        "|---" * (1 + len(sizes)) + "|",
    ]
    for part, title in PARTS.items():
        cells = []
        for n in sizes:
            ratios = [
                row["seconds"][1] / row["seconds"][0]
                for row in rows
                if row["part"] == part and row["clients"] == n
            ]
            few = f", {len(ratios)} of 12" if 0 < len(ratios) < 12 else ""
            gain = f"{max(ratios):.1f} ({statistics.median(ratios):.1f}{few})" if ratios else ""
            cells.append(gain or "not run")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)
