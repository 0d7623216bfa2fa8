"""What a SHAPE pass costs against DMAC anew, by what has happened since the last round.

Places are as a run has them: random numbers, or models of clients in groups whose noise is most of
what tells them apart, reduced as `methods/rules/positions.py` does. Every round has its own noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from timing import shape_at, space_of, timed

from sofa_fl.experiment.storage.events import count_edits
from sofa_fl.methods.rules.positions import NUM_EXACT, coordinates, sketch_size, sketched
from sofa_fl.models.sketch import Sketch
from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.space import Floats
from sofa_fl.topology.tree import Tree

WEIGHTS = 5000  # of a model
DIMENSIONS = 64  # of other places
MOST_MODELS = 1000  # clients; models of more take minutes to draw
ROOM = 1 << 24  # numbers of all sketches: the default of `sofa.sketch`
SITUATIONS = {
    "groups": (("groups, nothing changed", 0.0), ("1 % moved", 0.01), ("10 % moved", 0.1)),
    "nested": (("nested groups, nothing changed", 0.0), ("nested, 1 % moved", 0.01)),
    "noise": (("noise without groups", 0.0),),
}
Groups = NDArray[np.intp]
Draw = Callable[[Groups], Floats]


def gaussian(kind: str, n: int, rng: np.random.Generator) -> tuple[Draw, Groups]:
    """Groups of noise 0.5, at distances of about √2 from each other per dimension."""
    if kind == "noise":
        return lambda groups: rng.normal(size=(n, DIMENSIONS)), np.zeros(n, dtype=np.intp)
    outer, inner = (8, 4) if kind == "nested" else (16, 1)
    far = rng.normal(size=(outer, DIMENSIONS)) * (2 if inner > 1 else 1)
    near = rng.normal(size=(outer * inner, DIMENSIONS)) * (inner > 1)
    centres = np.repeat(far, inner, axis=0) + near
    groups = np.arange(n) * len(centres) // n
    return lambda groups: centres[groups] + 0.5 * rng.normal(size=(n, DIMENSIONS)), groups


def models(kind: str, n: int, rng: np.random.Generator) -> tuple[Draw, Groups]:
    """Squared distances as measured on MNIST: 68 within a group, 127 between groups of groups."""
    outer, inner = {"noise": (1, 1), "groups": (16, 1), "nested": (8, 4)}[kind]
    between, within = (27.0, 32.0) if kind == "nested" else (59.0, 0.0)
    centres = np.repeat(_blobs(between, outer, rng), inner, axis=0)
    centres += _blobs(within, outer * inner, rng)
    sketch = Sketch(sketch_size(ROOM, n), WEIGHTS, 0)

    def draw(groups: Groups) -> Floats:
        vectors = centres[groups] + _blobs(68, n, rng)
        if n <= NUM_EXACT:
            return coordinates(vectors @ vectors.T)
        return sketched(list(torch.from_numpy(vectors.astype(np.float32))), sketch)

    return draw, np.arange(n) * len(centres) // n


def _blobs(square: float, num: int, rng: np.random.Generator) -> Floats:
    drawn = rng.normal(size=(num, WEIGHTS))
    drawn *= (square / 2) ** 0.5 / np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn


def moved(groups: Groups, share: float, rng: np.random.Generator) -> Groups:
    """So many of the clients in a group drawn at random."""
    after = groups.copy()
    who = rng.choice(len(groups), round(share * len(groups)), replace=False)
    after[who] = groups[rng.choice(len(groups), len(who))]
    return after


def built(places: Floats) -> Tree:
    return dmac(space_of(places), DmacConfig())


def compare(n: int, repeat: int) -> Iterator[dict[str, Any]]:
    """A row for every situation and kind of places; DMAC as often as SHAPE, up to 1,000 clients."""
    for places, make in (("gaussian", gaussian), ("models", models)):
        if places == "models" and n > MOST_MODELS:
            continue
        for kind, events in SITUATIONS.items():
            rng = np.random.default_rng(n)
            draw, groups = make(kind, n, rng)
            before = draw(groups)
            rested, _ = shape_at(built(before), before)
            for name, share in events:
                now = draw(moved(groups, share, rng))
                seconds: dict[str, list[float]] = {"dmac": [], "shape": []}
                for again in range(repeat):
                    if n <= 1000 or not again:
                        spent, tree = timed(partial(built, now))
                        seconds["dmac"].append(spent)
                    spent, (after, edits) = timed(partial(shape_at, rested, now))
                    seconds["shape"].append(spent)
                yield {
                    "places": places,
                    "situation": name,
                    "clients": n,
                    "dimensions": now.shape[1],
                    "clusters": [len(tree.clusters), len(after.clusters)],
                    "edits": dict(count_edits(edits)),
                    "seconds": seconds,
                }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "| clients | places | situation | DMAC, s | SHAPE, s | SHAPE / DMAC | edits |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        dmac_s, shape_s = (statistics.median(row["seconds"][name]) for name in ("dmac", "shape"))
        edits = ", ".join(f"{num} {name}" for name, num in row["edits"].items() if num) or "none"
        lines.append(
            f"| {row['clients']:,} | {row['places']}, {row['dimensions']:,} | {row['situation']} | "
            f"{dmac_s:.3g} | {shape_s:.3g} | {shape_s / dmac_s:.3f} | {edits} |"
        )
    return "\n".join(lines)
