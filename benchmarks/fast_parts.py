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

LARGEST_REPEATED = 3000  # clients; above, plain neighbors take minutes, and once is enough
SIZES = (100, 1000, 10_000)


def build(positions: Floats, neighbors: Nearness) -> Tree:
    return dmac(space_of(positions), DmacConfig(), 0, neighbors)


def gains(sizes: Sequence[int], repeat: int) -> Iterator[dict[str, Any]]:
    """CPU seconds of every situation, fast and plain, the least of all repetitions.

    The trees are equal.
    """
    for n in sizes:
        for places, make in (("gaussian", gaussian), ("models", models)):
            for kind in SITUATIONS:
                draw, groups = make(kind, n, np.random.default_rng(n))
                now = draw(groups)
                runs = [
                    [
                        timed(partial(build, now, neighbors))
                        for neighbors in (FastNeighbors, Neighbors)
                    ]
                    for _ in range(repeat if n <= LARGEST_REPEATED else 1)
                ]
                assert all(fast == plain for (_, fast), (_, plain) in runs), "another tree"
                seconds = [min(run[at][0] for run in runs) for at in (0, 1)]
                yield {"clients": n, "places": places, "situation": kind, "seconds": seconds}


def gains_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per number of clients."""
    lines = [
        "| clients | DMAC with fast neighbors, s | plain, s | times as fast |",
        "|---|---|---|---|",
    ]
    for n in sorted({row["clients"] for row in rows}):
        fast, plain = zip(*(row["seconds"] for row in rows if row["clients"] == n))
        gain = [slow / quick for quick, slow in zip(fast, plain)]
        cells = [
            f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"
            for values in (fast, plain, gain)
        ]
        lines.append(f"| {n:,} | {' | '.join(cells)} |")
    return "\n".join(lines)
