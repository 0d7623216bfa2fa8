"""How long it takes to build a tree and to keep it, against the number of clients.

Clients in groups of groups. DMAC builds the tree; SHAPE passes over it once; then it passes over
the result on the same positions, and on positions where one client in 100 has gone to another
group. Losses are squared distances, and all clients look around in every pass.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy
import sklearn

from sofa_fl.experiment.storage.events import count_edits
from sofa_fl.topology.config import DmacConfig, ShapeConfig
from sofa_fl.topology.dmac import dmac
from sofa_fl.topology.edits import Edit, apply_all
from sofa_fl.topology.shape import Answer, Blend, Proposer, decide, edits_of, find_prunes
from sofa_fl.topology.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree

SIZES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
TIMED = ("dmac", "still", "moved")
T = TypeVar("T")


def timed(job: Callable[[], T]) -> tuple[float, T]:
    """Of this process: all is one thread, and others on the machine are to make no difference."""
    start = time.process_time()
    result = job()
    return time.process_time() - start, result


def space_of(places: Floats) -> Space:
    n = len(places)
    return Space(tuple(map(NodeId, range(n))), places, np.ones(n), "euclidean", "average")


def shape_at(tree: Tree, places: Floats) -> tuple[Tree, list[Edit]]:
    """A pass on places that are new to it, where all look around; losses are squared distances.

    So what is timed is the search for edits, and the questions cost next to nothing: in a run
    each is an evaluation on a client.
    """
    space, config, edits = space_of(places), ShapeConfig(every=1), list[Edit]()
    proposals = Proposer(tree, space, config).all()
    nodes, models = space.locate(tree), dict[Blend, Floats]()

    def loss(client: NodeId, blend: Blend) -> float:
        if blend not in models:
            parts = nodes.rows([node for node, _ in blend])
            weights = np.array([weight for _, weight in blend])
            models[blend] = weights @ nodes.positions[parts] / weights.sum()
        return float(np.square(places[client] - models[blend]).sum())

    answers = {
        claim: Answer(loss(claim.client, claim.new), loss(claim.client, claim.old), 100)
        for proposal in proposals
        for claim in proposal.claims
    }
    chosen = decide(tree, proposals, answers, 2 * space.scale**2, config)
    for new in (edits_of(tree, chosen, name) for name in ("graft", "merge", "split")):
        tree, edits = apply_all(tree, new), [*edits, *new]
    prunes = find_prunes(tree)
    return apply_all(tree, prunes), [*edits, *prunes]


def group_places(n: int, dimensions: int, rng: np.random.Generator) -> Floats:
    """Eight groups, of parts of about twenty clients to a hundred, each with noise of its own."""
    num_parts = max(2, int(n**0.5) // 2)
    groups = 3 * rng.normal(size=(8, dimensions))
    parts = groups[rng.integers(0, 8, num_parts)] + rng.normal(size=(num_parts, dimensions))
    return parts[rng.integers(0, num_parts, n)] + 0.3 * rng.normal(size=(n, dimensions))


def move_some(positions: Floats, rng: np.random.Generator) -> Floats:
    """One client in a hundred beside another, drawn at random."""
    moved = positions.copy()
    who = rng.choice(len(positions), max(1, len(positions) // 100), replace=False)
    moved[who] = positions[rng.choice(len(positions), len(who))]
    moved[who] += 0.1 * rng.normal(size=(len(who), positions.shape[1]))
    return moved


def measure(positions: Floats, repeat: int, rng: np.random.Generator) -> dict[str, Any]:
    """Seconds of everything, and what the tree and the edits were like."""
    seconds: dict[str, list[float]] = {"dmac": [], "rest": [], "still": [], "moved": []}
    for _ in range(repeat):
        spent, tree = timed(lambda: dmac(space_of(positions), DmacConfig()))
        seconds["dmac"].append(spent)
    spent, (rested, first) = timed(partial(shape_at, tree, positions))
    seconds["rest"].append(spent)
    moved = move_some(positions, rng)
    for _ in range(repeat):
        for name, now in (("still", positions), ("moved", moved)):
            spent, (_, edits) = timed(partial(shape_at, rested, now))
            seconds[name].append(spent)
    return {
        "clients": len(positions),
        "dimensions": positions.shape[1],
        "clusters": [len(tree.clusters), len(rested.clusters)],
        "depth": [tree.depth, rested.depth],
        "edits_to_rest": count_edits(first),
        "edits_moved": count_edits(edits),
        "seconds": seconds,
    }


def exponent(rows: Sequence[Mapping[str, Any]], name: str, above: int = 1000) -> float:
    """The power of the number of clients that the time grows by, of a thousand and more."""
    points = [(r["clients"], statistics.median(r["seconds"][name])) for r in rows]
    points = [point for point in points if point[0] >= above] or points
    if len(points) < 2:
        return float("nan")
    x, y = np.log(np.array(points, dtype=np.float64)).T
    return float(np.polyfit(x, y, 1)[0])


def machine() -> dict[str, object]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "| clients | dimensions | DMAC, s | first pass, s | nothing moved, s | 1 % moved, s | "
        "DMAC / still | DMAC / moved |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        median = {name: statistics.median(spent) for name, spent in row["seconds"].items()}
        cells = [_with_range(row["seconds"][name]) for name in ("dmac", "rest", "still", "moved")]
        ratios = [f"{median['dmac'] / median[name]:.0f}" for name in ("still", "moved")]
        lines.append(f"| {row['clients']:,} | {row['dimensions']} | {' | '.join(cells + ratios)} |")
    return "\n".join(lines)


def _with_range(seconds: Sequence[float]) -> str:
    median = f"{statistics.median(seconds):.3g}"
    return median if len(seconds) < 2 else f"{median} ({min(seconds):.3g}-{max(seconds):.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: few clients, once")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="the most clients")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder to write to")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sizes = SIZES[:2] if options.quick else [n for n in SIZES if n <= options.largest]
    rows = []
    for n in sizes:
        rng = np.random.default_rng(n)
        repeat = 1 if options.quick or n > 10_000 else 5
        rows.append(measure(group_places(n, 16, rng), repeat, rng))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    about = machine()
    print(f"\n{', '.join(f'{name} {value}' for name, value in about.items())}\n\n{table(rows)}")
    powers = {name: exponent(rows, name) for name in TIMED}
    print("\ntime grows as clients to the power of", {n: round(p, 2) for n, p in powers.items()})
    record = {"machine": about, "exponents": powers, "rows": rows}
    (options.out / "topology.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
