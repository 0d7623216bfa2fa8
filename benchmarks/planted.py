"""How right SOFA-FL's trees are, where the true tree is known: `python benchmarks/planted.py`.

- levels: three levels, uneven groups and a client that contradicts everybody; at round 8 six
  clients change places, at round 15 three of one group begin to contradict everybody;
- unrelated: groups of several sizes that contradict each other, in which nothing changes;
- inside: at round 5 images of three of eight clients turn, at round 10 they rename all classes;
- swap: at round 8 a third of each of four groups moves on to the next one;
- noise: clients that differ by chance only, so the true tree is flat;
- compatible: regions, and sites within them, whose images are turned and whose labels agree;
- odd: 14 clients alike, and one that calls every class otherwise;
- positions: DMAC alone, on positions that are noise: flat trees, in %.

Prints a line per case and seed, then Markdown: "3 of 5" counts seeds, a number is their mean. A
group is found if a node has exactly its clients, a tree is exact without any other cluster, and
"after 8" counts rounds from round 8 on. Only public names are used: `PYTHONPATH=<other>/src python
benchmarks/planted.py` measures another version. Seeds below 200 are for choices.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

if not os.environ.get("PYTHONPATH"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import sofa_fl

Group = frozenset[int]
Place = tuple[str, ...]  # a client's true groups, the widest first: ("A", "A1", "A1a")
Values = dict[str, Any]  # numbers, booleans and words; None is never
Samples = tuple[NDArray[np.float32], NDArray[np.int64]]


class Tree:
    """The tree after a round; accuracies in %."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        parent = {int(node): up for node, up in event["tree"].items()}
        self.accuracy = {c: 100 * s for c, s in zip(event["clients"], event["accuracies"])}
        self.edits = len(event["edits"])
        below: dict[int, set[int]] = {node: set() for node in parent}
        for client in self.accuracy:
            node: int | None = client
            while node is not None:
                below[node].add(client)
                node = parent[node]
        (root,) = (node for node, up in parent.items() if up is None)
        groups = {node: frozenset(clients) for node, clients in below.items() if node != root}
        self.nodes = {*groups.values(), frozenset(self.accuracy)}
        self.branches = {groups[node] for node in groups if parent[node] == root}
        self.clusters = [groups[node] for node in groups if node not in self.accuracy]

    def share(self, groups: Iterable[Group]) -> float:
        """How many of these groups are exactly the clients of one node."""
        return statistics.fmean(group in self.nodes for group in groups)

    def extra(self, groups: Iterable[Group]) -> int:
        """The number of clusters below the root that are no true group, or one once more."""
        return len(self.clusters) - len(set(self.clusters) & set(groups))

    def is_exactly(self, groups: Iterable[Group]) -> bool:
        """Whether these groups are there, and nothing else between the root and the clients."""
        return self.share(groups) == 1 and not self.extra(groups)


@dataclass(frozen=True)
class Case:
    """A federation, and what of its trees is looked at."""

    phases: Mapping[int, Sequence[Place]]  # the place of every client, by the first round
    concepts: Mapping[Place, sofa_fl.Concept]  # what is seen there
    samples: Samples  # clients get the next ones in turn: their size for training, others for tests
    sizes: Sequence[int]
    checked: Sequence[int]  # rounds
    watched: Sequence[Place] = ()


def federated(case: Case, tested: int = 100, holdout: float = 0.05) -> sofa_fl.FederatedData:
    """The data of a case: a client has the same samples in every place that it is ever in."""
    rows: dict[tuple[int, Place], sofa_fl.ClientData] = {}
    trains, tests, end, (x, y) = list[Samples](), list[Samples](), 0, case.samples
    cuts = np.cumsum([number for size in case.sizes for number in (size, tested)])
    dealt = iter(np.split(np.arange(len(y)), cuts))
    for client, size in enumerate(case.sizes):
        own, aside, held = next(dealt), next(dealt), round(holdout * size)
        for place in dict.fromkeys(places[client] for places in case.phases.values()):
            at, scored_on = end + np.arange(size), tested * len(tests) + np.arange(tested)
            rows[client, place] = sofa_fl.ClientData(at[held:], at[:held], scored_on)
            trains.append(case.concepts[place].apply(x[own], y[own]))
            tests.append(case.concepts[place].apply(x[aside], y[aside]))
            end += size
    number, stages = list(case.concepts).index, list[sofa_fl.Stage]()  # for the oracle
    for since, places in case.phases.items():
        clients = {client: rows[client, place] for client, place in enumerate(places)}
        stages.append(sofa_fl.Stage(since, clients, (tuple(map(number, places)),)))
    train, test = (sofa_fl.from_arrays(*map(np.concatenate, zip(*p))) for p in (trains, tests))
    first, truth = tuple(stages[0].clients.values()), stages[0].truth
    return sofa_fl.FederatedData(train, test, first, train.num_classes, truth, tuple(stages))


def images(seed: int) -> Samples:
    """Some images of MNIST at 14 × 14 pixels."""
    train = sofa_fl.federate(sofa_fl.DataConfig(num_clients=2), 0).train
    rows = np.random.default_rng([seed, 1]).choice(len(train), 12_000, replace=False)
    pixels = train.x[rows].reshape(-1, 14, 2, 14, 2).mean((2, 4), dtype=np.float32)
    return pixels / np.float32(255), train.y[rows].astype(np.int64)


def clouds(seed: int) -> Samples:
    """Eight classes, each a Gaussian in 16 dimensions."""
    rng = np.random.default_rng([seed, 2])
    centers, y = 0.9 * rng.normal(size=(8, 16)), rng.integers(0, 8, 12_000)
    return (centers[y] + rng.normal(size=(len(y), 16))).astype(np.float32), y


def contradicting(names: Iterable[Place], classes: int, seed: int) -> dict[Place, sofa_fl.Concept]:
    """Labels for every place; no two of them agree on a class."""
    order = np.random.default_rng([seed, 3]).permutation(classes)
    return {name: sofa_fl.Concept(0.0, tuple(np.roll(order, k))) for k, name in enumerate(names)}


def shuffled(sizes: Mapping[Place, int], seed: int) -> list[Place]:
    """The places of clients whose numbers say nothing about them."""
    places = [place for place, size in sizes.items() for _ in range(size)]
    return [places[k] for k in np.random.default_rng([seed, 4]).permutation(len(places))]


def moved(places: Sequence[Place], moves: Iterable[tuple[Place, Place, int]]) -> list[Place]:
    """So many clients of one place in another one, all at once."""
    found = list(places)
    for source, target, number in moves:
        staying = [c for c, place in enumerate(places) if place == found[c] == source]
        found = [target if c in staying[:number] else place for c, place in enumerate(found)]
    return found


def those(places: Sequence[Place], prefix: Place) -> Group:
    """The clients of a true group."""
    return frozenset(c for c, place in enumerate(places) if place[: len(prefix)] == prefix)


def groups_of(places: Sequence[Place]) -> set[Group]:
    """The true groups of several clients, at all levels."""
    prefixes = {place[: k + 1] for place in places for k in range(len(place))}
    return {group for prefix in prefixes if len(group := those(places, prefix)) > 1}


def wait(holds: Iterable[bool]) -> int | None:
    """How many come before the first that holds."""
    return next((k for k, it_does in enumerate(holds) if it_does), None)


def measured(case: Case, trees: Sequence[Tree]) -> Values:
    """How right the trees after the warm-up and every round are."""
    found = Values()
    for since, until in pairwise([*case.phases, len(trees)]):
        truth, phase = groups_of(case.phases[since]), trees[since:until]
        for k in sorted({*case.checked} & {*range(since, until)}):
            found[f"groups found at {k}"] = trees[k].share(truth)
            found[f"extra clusters at {k}"] = trees[k].extra(truth)
            found[f"exact at {k}"] = trees[k].is_exactly(truth)
        found[f"all groups after {since}"] = wait(tree.share(truth) == 1 for tree in phase)
        found[f"exact after {since}"] = wait(tree.is_exactly(truth) for tree in phase)
        found[f"late edits after {since}"] = sum(tree.edits for tree in phase[7:])
    for place in case.watched:
        name, known = place[-1], {k: those(places, place) for k, places in case.phases.items()}
        since, group = next((k, clients) for k, clients in known.items() if clients)
        alone = [group in tree.branches for tree in trees]
        found |= {f"{name} a branch at {k}": alone[k] for k in case.checked if k >= since}
        found[f"{name} a branch after {since}"] = wait(alone[since:])
        found[f"accuracy of {name}"] = statistics.mean(trees[-1].accuracy[c] for c in group)
    return found


def levels(seed: int) -> Case:
    cast: dict[Place, tuple[int, int, tuple[int, ...]]] = {  # clients; labels: shift, swapped pairs
        ("A", "A1", "A1a"): (5, 0, ()),
        ("A", "A1", "A1b"): (3, 0, (0,)),
        ("A", "A2", "A2a"): (4, 0, (1, 2)),
        ("A", "A2", "A2b"): (2, 0, (1, 2, 3)),
        ("B", "B1"): (6, 3, ()),
        ("B", "B2"): (3, 3, (1, 2)),
        ("lone",): (1, 6, ()),
        ("new",): (0, 8, ()),
    }
    order, concepts = np.random.default_rng([seed, 5]).permutation(10), {}
    for place, (_, shift, pairs) in cast.items():
        names = (np.argsort(order) + shift) % 10
        for k in pairs:
            names[order[[2 * k, 2 * k + 1]]] = names[order[[2 * k + 1, 2 * k]]]
        concepts[place] = sofa_fl.Concept(0.0, tuple(names))
    a, b, c, _, e, f, lone, new = cast
    begin = shuffled({place: size for place, (size, *_) in cast.items()}, seed)
    second = moved(begin, [(*ab, 1) for ab in ((a, b), (b, a), (a, c), (c, a), (e, f), (f, e))])
    phases = {0: begin, 8: second, 15: moved(second, [(a, new, 3)])}
    return Case(phases, concepts, images(seed), [360] * 24, (3, 7, 10, 14, 19, 22), (lone, new))


def unrelated(seed: int) -> Case:
    shapes = ((6, 4, 2, 1), (5, 5, 3), (9, 3, 2, 1, 1), (4, 4, 4, 2, 1), (7, 2, 1))
    sizes: dict[Place, int] = {(str(k),): n for k, n in enumerate(shapes[seed % len(shapes)])}
    places, concepts = shuffled(sizes, seed), contradicting(sizes, 8, seed)
    return Case({0: places}, concepts, clouds(seed), [120] * len(places), (3, 6, 12))


def inside(seed: int) -> Case:
    old, turned, new, other = ("old",), ("old", "turned"), ("new",), ("other",)
    concepts = contradicting([old, other, new], 10, seed)
    concepts[turned] = replace(concepts[old], degrees=35.0)
    begin = shuffled({old: 8, other: 4}, seed)
    second = moved(begin, [(old, turned, 3)])
    phases = {0: begin, 5: second, 10: moved(second, [(turned, new, 3)])}
    return Case(phases, concepts, images(seed), [150] * 12, (4, 9, 14, 16), [new])


def swap(seed: int) -> Case:
    names: list[Place] = [("A",), ("B",), ("C",), ("D",)]
    begin, concepts = shuffled(dict.fromkeys(names, 6), seed), contradicting(names, 8, seed)
    second = moved(begin, [(name, names[(k + 1) % 4], 2) for k, name in enumerate(names)])
    return Case({0: begin, 8: second}, concepts, clouds(seed), [120] * 24, (7, 10, 16))


def noise(seed: int) -> Case:
    rng, here = np.random.default_rng([seed, 6]), ("all",)  # one group, so exact is flat
    sizes: list[int] = rng.integers(30, 150, 16).tolist() if seed % 2 else [80] * 16
    return Case({0: [here] * 16}, {here: sofa_fl.Concept()}, images(seed), sizes, (0, 6, 12))


def compatible(seed: int) -> Case:
    turns = [45.0 * region + 15.0 * site for region in range(4) for site in range(2)]
    places: list[Place] = [(f"region {by // 45:g}", f"site {by:g}") for by in turns]
    concepts = dict(zip(places, map(sofa_fl.Concept, turns)))
    phases = {0: shuffled(dict.fromkeys(places, 3), seed)}
    return Case(phases, concepts, images(seed), [100] * 24, (3, 12))


def odd(seed: int) -> Case:
    sizes: dict[Place, int] = {("alike",): 14, ("odd",): 1}
    phases, concepts = {0: shuffled(sizes, seed)}, contradicting(sizes, 10, seed)
    return Case(phases, concepts, images(seed), [60] * 15, (3, 12), [("odd",)])


CASES = {case.__name__: case for case in (levels, unrelated, inside, swap, noise, compatible, odd)}


def ran(case: Case, method: str, seed: int) -> list[Tree]:
    """The trees after the warm-up and every round."""
    sizes = (data := federated(case)).train.x[0].size, 48, data.num_outputs
    local: Values = {"batches": 10, "batch_size": 25, "learning_rate": 2e-3}
    if hasattr(sofa_fl.LocalConfig(), "final_rate"):
        local["final_rate"] = 1.0

    def network() -> nn.Module:
        hidden, last = (nn.Linear(*ends) for ends in pairwise(sizes))
        return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), last)

    plain: Values = {"rounds": case.checked[-1], "warmup": 25, "engine": "sequential"}
    plain |= {"local": sofa_fl.LocalConfig(**local), "sharing": sofa_fl.SharingConfig(ratio=0)}
    with tempfile.TemporaryDirectory() as out:
        config = sofa_fl.Config(method=method, seed=seed, save_every=0, out=f"{out}/run", **plain)
        sofa_fl.run(config, data=data, network=network, progress=False)
        events = map(json.loads, Path(out, "run", "events.jsonl").read_text().splitlines())
        return [Tree(event) for event in events if event["event"] == "round"]


def scored(name: str, method: str, seed: int) -> Values:
    """What a run of a case measures; of another method than SOFA-FL, accuracies only."""
    began, case = time.process_time(), CASES[name](seed)
    trees = ran(case, method, seed)
    found = measured(case, trees) if method == "sofa" else {}
    scores = trees[-1].accuracy.values()
    found |= {"mean accuracy": statistics.mean(scores), "worst accuracy": min(scores)}
    found["edits by round"] = " ".join(str(tree.edits) for tree in trees)
    return found | {"CPU seconds": time.process_time() - began}


def is_flat_on(positions: NDArray[np.float64]) -> bool:
    """Whether the DMAC of the default method makes no cluster of clients at these positions."""
    clients, weights = tuple(map(sofa_fl.NodeId, range(len(positions)))), np.ones(len(positions))
    space = sofa_fl.Space(clients, positions, weights, linkage="average")
    return sofa_fl.dmac(space, sofa_fl.DmacConfig()).depth == 1


def on_noise(seed: int) -> Values:
    """Flat trees on Gaussian noise, in % by the numbers of clients and dimensions."""
    rng, found = np.random.default_rng([seed, 7]), Values()
    for clients, draws in ((20, 60), (100, 30), (300, 10), (1000, 2)):
        for inputs in (20, 100, 1000):
            flat = [is_flat_on(rng.normal(size=(clients, inputs))) for _ in range(draws)]
            found[f"{clients:,} clients, {inputs:,} dimensions"] = 100 * statistics.mean(flat)
    return found


def summary(key: str, values: Sequence[Any]) -> str:
    """All seeds in one cell: how many, or the mean."""
    if all(isinstance(value, bool) for value in values):
        return f"{sum(values)} of {len(values)}"
    numbers = [value for value in values if value is not None]
    mean = f"{statistics.mean(numbers):.4g}" if numbers else ""
    if key.startswith("groups found"):
        return f"{mean} (all: {values.count(1)} of {len(values)})"
    return f"{mean} (never: {values.count(None)})" if None in values else mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*CASES, "positions"]
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(names))
    parser.add_argument("--seeds", type=int, nargs="+", default=[200, 201, 202])
    parser.add_argument("--method", default="sofa")
    parser.add_argument("--json", type=Path, help="also write all values into this file")
    asked = parser.parse_args()
    if unknown := set(asked.cases) - set(names):
        parser.error(f"cases are {', '.join(names)}, got {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    results: dict[str, dict[int, Values]] = {name: {} for name in asked.cases or names}
    for name, by_seed in results.items():
        for seed in asked.seeds:
            found = scored(name, asked.method, seed) if name in CASES else on_noise(seed)
            words = (f"{k}: {v:.4g}" if type(v) is float else f"{k}: {v}" for k, v in found.items())
            print(f"{name} {seed}: {', '.join(words)}", flush=True)
            by_seed[seed] = found
            if asked.json:
                asked.json.write_text(json.dumps(results, indent=1) + "\n")
    for name, by_seed in results.items():
        print(f"\n| {name} | seeds {' '.join(map(str, by_seed))} |\n|---|---:|")
        for key in next(iter(by_seed.values())):
            if key != "edits by round":
                print(f"| {key} | {summary(key, [found[key] for found in by_seed.values()])} |")


if __name__ == "__main__":
    main()
