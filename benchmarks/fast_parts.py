"""What fast neighbors gain: DMAC with and without them, in all situations."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from situations import SITUATIONS, gaussian, models
from timing import space_of, timed

from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.dmac import Nearness, Neighbors, dmac
from sofa_fl.topology.clustering.fast import FastNeighbors
from sofa_fl.topology.geometry.space import Floats
from sofa_fl.topology.tree import Tree

LARGEST_PLAIN = 3000  # clients; above, a matrix of all pairs in every step takes minutes to hours
SIZES = (100, 1000, 10_000)


def build(positions: Floats, neighbors: Nearness) -> Tree:
    return dmac(space_of(positions), DmacConfig(), 0, neighbors)


def gains(sizes: Sequence[int], repeat: int) -> Iterator[dict[str, Any]]:
    """Seconds of every situation, fast and plain (None where it was not run); trees are equal."""
    for n in sizes:
        for places, make in (("gaussian", gaussian), ("models", models)):
            for kind in SITUATIONS:
                draw, groups = make(kind, n, np.random.default_rng(n))
                now = draw(groups)
                times = repeat if n <= LARGEST_PLAIN else 1
                fast = [timed(partial(build, now, FastNeighbors)) for _ in range(times)]
                plain = (
                    [timed(partial(build, now, Neighbors)) for _ in range(times)]
                    if n <= LARGEST_PLAIN
                    else []
                )
                assert all(tree == fast[0][1] for _, tree in plain), "another tree"
                seconds = [min((s for s, _ in runs), default=None) for runs in (fast, plain)]
                yield {"clients": n, "places": places, "situation": kind, "seconds": seconds}


def gains_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per number of clients."""
    lines = [
        "| clients | DMAC with fast neighbors, s: median (largest) | plain, s | gain: median |",
        "|---|---|---|---|",
    ]
    for n in sorted({row["clients"] for row in rows}):
        fast, plain = zip(*(row["seconds"] for row in rows if row["clients"] == n))
        cells = [f"{statistics.median(fast):.3g} ({max(fast):.3g})", "not run: too slow", ""]
        if None not in plain:
            gain = statistics.median(p / f for f, p in zip(fast, plain))
            cells[1:] = [f"{statistics.median(plain):.3g} ({max(plain):.3g})", f"{gain:.1f}"]
        lines.append(f"| {n:,} | {' | '.join(cells)} |")
    return "\n".join(lines)
