"""What the fast parts of DMAC gain against the plain ones, in all situations."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from situations import SITUATIONS, gaussian, models
from timing import space_of, timed

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.fast import fast_neighbors
from sofa_fl.topology.clustering.fast.block_distances import FastSeparation
from sofa_fl.topology.clustering.fast.nearest import FastNeighbors
from sofa_fl.topology.clustering.separation import Nearness, Separation, plain_neighbors
from sofa_fl.topology.space import Floats, Neighbors, Space
from sofa_fl.topology.tree import Tree

LARGEST_REPEATED = 3000  # clients; above, plain neighbors take minutes, and once is enough
SIZES = (100, 1000, 10_000)


def only_nodes(space: Space) -> tuple[Neighbors, Separation]:
    return FastNeighbors(space), Separation(space)


def only_separation(space: Space) -> tuple[Neighbors, Separation]:
    return Neighbors(space), FastSeparation(space)


# Each fast part is compared with everything but it.
PARTS: dict[str, Nearness] = {
    "plain": plain_neighbors,
    "without FastNeighbors": only_separation,
    "without FastSeparation": only_nodes,
    "fast": fast_neighbors,
}


def build(positions: Floats, neighbors: Nearness) -> Tree:
    return dmac(space_of(positions), DmacConfig(), 0, neighbors)


def gains(
    sizes: Sequence[int], repeat: int, kinds: Sequence[str] = ("gaussian", "models")
) -> Iterator[dict[str, Any]]:
    """CPU seconds of every situation with each part, the least of all repetitions.

    The trees are equal.
    """
    for n in sizes:
        for places in kinds:
            for situation in SITUATIONS:
                make = gaussian if places == "gaussian" else models
                draw, groups = make(situation, n, np.random.default_rng(n))
                now = draw(groups)
                runs = [
                    {part: timed(partial(build, now, form)) for part, form in PARTS.items()}
                    for _ in range(repeat if n <= LARGEST_REPEATED else 1)
                ]
                trees = [tree for run in runs for _, tree in run.values()]
                assert all(tree == trees[0] for tree in trees), "another tree"
                seconds = {part: min(run[part][0] for run in runs) for part in PARTS}
                yield {
                    "clients": n, "places": places, "situation": situation, "seconds": seconds
                }  # fmt: skip


def gains_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per number of clients: the median of all situations, and their range."""
    slower = [part for part in PARTS if part != "fast"]
    heads = ["clients", "fast, s", *(f"{part}, times as long" for part in slower)]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for n in sorted({row["clients"] for row in rows}):
        seconds = [row["seconds"] for row in rows if row["clients"] == n]
        cells = [_with_range([spent["fast"] for spent in seconds])]
        cells += [
            _with_range([spent[part] / spent["fast"] for spent in seconds]) for part in slower
        ]
        lines.append(f"| {n:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _with_range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2g} ({min(values):.2g} to {max(values):.2g})"
