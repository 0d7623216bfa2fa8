"""How right SOFA-FL's trees are, on federations with a known tree: `python benchmarks/planted.py`.

- levels: three levels, uneven groups and a client that contradicts everybody; at round 8 six clients
  change places, at round 15 three of one group become a group that contradicts everybody;
- unrelated: groups of different sizes that contradict each other, in which nothing changes;
- inside: at round 5 images of three of eight clients turn, at round 10 they rename all classes;
- swap: at round 8 a third of every one of four groups moves on to the next group;
- noise: clients that differ by chance only;
- compatible: regions and sites within them, whose images are turned and whose labels agree;
- odd: 14 clients alike, and one that calls every class otherwise;
- positions: no training; DMAC on positions that are pure noise.

Prints a line per case and seed, and tables in Markdown. In these, "3 of 5" counts seeds and a number
is their mean. A change of round 8 is first in the tree of round 8: a delay of 0. Only public names
are used, so the same file measures other versions: `PYTHONPATH=<other>/src python ...`. With
`--method`, another method is scored on the same data, to see what can be learned. Seeds below 200 are
for choices.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

if not os.environ.get("PYTHONPATH"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import sofa_fl

Group = frozenset[int]
Place = tuple[str, ...]  # a client's true groups, the widest first: ("A", "A1", "A1a")
Value = bool | float | str | None  # None: never
Values = dict[str, Value]
Draws = Callable[[int, np.random.Generator], tuple[NDArray[np.float32], NDArray[np.int64]]]
HOLDOUT = 0.05


@dataclass(frozen=True)
class Tree:
    """The tree after a round: the clients of every cluster, and who is right below the root."""

    clusters: Mapping[int, Group]
    root: int
    top: Mapping[int, Group]
    edits: int
    accuracy: Mapping[int, float]

    @classmethod
    def of(cls, event: Mapping[str, object]) -> Tree:
        """What the event of a round says."""
        record = json.loads(json.dumps(event))
        parent = {int(node): up for node, up in record["tree"].items()}
        clients: list[int] = record.get("clients", list(range(len(record["accuracies"]))))
        below: dict[int, set[int]] = {node: set() for node in parent}
        for client in clients:
            node: int | None = client
            while node is not None:
                below[node].add(client)
                node = parent[node]
        groups = {node: frozenset(found) for node, found in below.items()}
        root = next(node for node, up in parent.items() if up is None)
        return cls(
            {node: group for node, group in groups.items() if node not in clients},
            root,
            {node: group for node, group in groups.items() if parent[node] == root},
            len(record["edits"]),
            dict(zip(clients, record["accuracies"])),
        )

    def found(self, groups: Iterable[Group]) -> float:
        """The share of these groups that are exactly the clients of one node."""
        nodes = {*self.clusters.values(), *(frozenset([client]) for client in self.accuracy)}
        return statistics.mean(group in nodes for group in groups)

    def extra(self, groups: Iterable[Group]) -> int:
        """The number of clusters below the root that are no true group, or one a second time."""
        inner = [group for node, group in self.clusters.items() if node != self.root]
        return len(inner) - len(set(inner) & set(groups))

    def is_exactly(self, groups: Iterable[Group]) -> bool:
        """Whether these groups, the root and the clients are all that there is."""
        return self.found(groups) == 1 and not self.extra(groups)

    def is_branch(self, group: Iterable[int]) -> bool:
        """Whether a node right below the root has exactly these clients."""
        return frozenset(group) in self.top.values()

    @property
    def is_flat(self) -> bool:
        return len(self.clusters) == 1

    def mean(self, clients: Iterable[int] | None = None) -> float:
        """The mean accuracy of some clients or all, in %."""
        chosen = self.accuracy if clients is None else clients
        return 100 * statistics.mean(self.accuracy[client] for client in chosen)


Trees = Sequence[Tree]
Measure = Callable[[Trees], Values]


@dataclass(frozen=True)
class Case:
    data: sofa_fl.FederatedData
    network: Callable[[], nn.Module]
    rounds: int
    measure: Measure
    batch_size: int = 25
    learning_rate: float = 2e-3


def groups_of(places: Sequence[Place]) -> set[Group]:
    """The true groups of several clients, at every level."""
    prefixes = {place[:depth] for place in places for depth in range(1, 1 + len(place))}
    found = (
        frozenset(c for c, place in enumerate(places) if place[: len(prefix)] == prefix)
        for prefix in prefixes
    )
    return {group for group in found if len(group) > 1}


def delay(trees: Trees, since: int, holds: Callable[[Tree], bool]) -> int | None:
    """Rounds from a change to the first tree for which something holds."""
    return next((k for k, tree in enumerate(trees[since:]) if holds(tree)), None)


def planted(
    phases: Mapping[int, Sequence[Place]],
    concepts: Mapping[Place, sofa_fl.Concept],
    draw: Draws,
    sizes: Sequence[int],
    seed: int,
    tested: int = 100,
) -> sofa_fl.FederatedData:
    """Clients with samples of their own, seen as the concept of their place has them.

    `phases` has the place of every client by the round from which it holds. A client has the same
    samples in every place, and the places are known to the oracle.
    """
    rng, starts = np.random.default_rng([seed, 7]), dict[bool, int]()
    rows: dict[tuple[int, Place], sofa_fl.ClientData] = {}
    parts: dict[bool, list[tuple[NDArray[np.float32], NDArray[np.int64]]]] = {True: [], False: []}
    for client, size in enumerate(sizes):
        samples = {True: draw(size, rng), False: draw(tested, rng)}  # True: for training
        for place in dict.fromkeys(places[client] for places in phases.values()):
            at: dict[bool, NDArray[np.int64]] = {}
            for kind, (x, y) in samples.items():
                seen = concepts[place].apply(x, y)
                parts[kind].append(seen)
                at[kind] = np.arange(len(y)) + starts.get(kind, 0)
                starts[kind] = starts.get(kind, 0) + len(y)
            held = max(1, round(HOLDOUT * size))
            rows[client, place] = sofa_fl.ClientData(at[True][held:], at[True][:held], at[False])
    train, test = (
        sofa_fl.from_arrays(*(np.concatenate(arrays) for arrays in zip(*parts[kind])))
        for kind in (True, False)
    )
    names = {place: number for number, place in enumerate(concepts)}
    stages = tuple(
        sofa_fl.Stage(
            since,
            {client: rows[client, place] for client, place in enumerate(places)},
            (tuple(names[place] for place in places),),
        )
        for since, places in phases.items()
    )
    first = tuple(stages[0].clients.values())
    outputs = 1 + int(max(train.y.max(), test.y.max()))
    return sofa_fl.FederatedData(train, test, first, outputs, stages[0].truth, stages)


@cache
def mnist() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The images of MNIST for training, at 14 × 14 pixels."""
    train = sofa_fl.federate(sofa_fl.DataConfig(num_clients=2), 0).train
    pixels = train.x.reshape(-1, 14, 2, 14, 2).mean((2, 4), dtype=np.float32)
    return pixels / np.float32(255), train.y.astype(np.int64)


def images(seed: int) -> Draws:
    """Draws images that nobody else has."""
    x, y = mnist()
    order = iter(np.random.default_rng([seed, 8]).permutation(len(y)).tolist())

    def draw(size: int, _: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        rows = [next(order) for _ in range(size)]
        return x[rows], y[rows]

    return draw


def clouds(seed: int, classes: int = 8, inputs: int = 16, apart: float = 0.9) -> Draws:
    """Draws from one Gaussian per class."""
    centers = apart * np.random.default_rng([seed, 9]).normal(size=(classes, inputs))

    def draw(size: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        y = rng.integers(0, classes, size)
        return (centers[y] + rng.normal(size=(size, inputs))).astype(np.float32), y

    return draw


def mlp(inputs: int, outputs: int, hidden: int = 48) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


def labelled(labels: Iterable[int], degrees: float = 0.0) -> sofa_fl.Concept:
    return sofa_fl.Concept(degrees, tuple(int(label) for label in labels))


def contradicting(names: Iterable[Place], classes: int, seed: int) -> dict[Place, sofa_fl.Concept]:
    """Labels for every place, on no class of which two of them agree."""
    order = np.random.default_rng([seed, 10]).permutation(classes)
    return {name: labelled(np.roll(order, k)) for k, name in enumerate(names)}


def shuffled(places: Sequence[Place], seed: int) -> list[Place]:
    """The same places for other clients: a client's number says nothing."""
    return [places[k] for k in np.random.default_rng([seed, 11]).permutation(len(places))]


def moved(places: Sequence[Place], moves: Sequence[tuple[Place, Place, int]]) -> list[Place]:
    """So many clients (the first) of one place go to another one, all at once."""
    found = list(places)
    for source, target, number in moves:
        free = [c for c, place in enumerate(places) if place == source and found[c] == source]
        for client in free[:number]:
            found[client] = target
    return found


def levels(seed: int) -> Case:
    sizes: dict[Place, int] = {
        ("A", "A1", "A1a"): 5,
        ("A", "A1", "A1b"): 3,
        ("A", "A2", "A2a"): 4,
        ("A", "A2", "A2b"): 2,
        ("B", "B1"): 6,
        ("B", "B2"): 3,
        ("lone",): 1,
    }
    a, b, c, d, e, top, side, alone = [*sizes, ("new",)]
    new, lone = alone, side
    order = np.random.default_rng([seed, 12]).permutation(10)

    def labels(shift: int, *pairs: int) -> sofa_fl.Concept:
        """All labels moved on; then pairs of them exchanged."""
        names = (np.argsort(order) + shift) % 10
        for pair in pairs:
            names[order[[2 * pair, 2 * pair + 1]]] = names[order[[2 * pair + 1, 2 * pair]]]
        return labelled(names)

    concepts = {
        a: labels(0),
        b: labels(0, 0),
        c: labels(0, 1, 2),
        d: labels(0, 1, 2, 3),
        e: labels(3),
        top: labels(3, 1, 2),
        lone: labels(6),
        new: labels(8),
    }
    first = shuffled([place for place, size in sizes.items() for _ in range(size)], seed)
    exchange = [(a, b, 1), (b, a, 1), (a, c, 1), (c, a, 1), (e, top, 1), (top, e, 1)]
    second = moved(first, exchange)
    third = moved(second, [(a, new, 3)])
    at = first.index(lone)
    newcomers = [client for client, place in enumerate(third) if place == new]
    data = planted({0: first, 8: second, 15: third}, concepts, images(seed), [360] * 24, seed)

    def measure(trees: Trees) -> Values:
        before, after, last = map(groups_of, (first, second, third))
        return {
            "all groups at 3": trees[3].found(before) == 1,
            "share of groups at 3": trees[3].found(before),
            "lone alone at 3": trees[3].is_branch([at]),
            "lone alone at 8": trees[8].is_branch([at]),
            "all groups at 10": trees[10].found(after) == 1,
            "share of groups at 10": trees[10].found(after),
            "new branch by 19": any(tree.is_branch(newcomers) for tree in trees[15:20]),
            "share of groups at end": trees[-1].found(last),
            "extra clusters at end": trees[-1].extra(last),
            "accuracy of new": trees[-1].mean(newcomers),
            "accuracy of lone": trees[-1].mean([at]),
        }

    return Case(data, mlp(196, 10), 22, measure)


def unrelated(seed: int) -> Case:
    shapes = [(6, 4, 2, 1), (5, 5, 3), (9, 3, 2, 1, 1), (4, 4, 4, 2, 1), (7, 2, 1)]
    sizes = shapes[seed % len(shapes)]
    places = shuffled([(str(g),) for g, size in enumerate(sizes) for _ in range(size)], seed)
    concepts = contradicting(((str(g),) for g in range(len(sizes))), 8, seed)
    data = planted({0: places}, concepts, clouds(seed), [120] * len(places), seed)
    truth = groups_of(places)

    def measure(trees: Trees) -> Values:
        return {
            "exact at 3": trees[3].is_exactly(truth),
            "exact at 12": trees[12].is_exactly(truth),
            "share of groups at 12": trees[12].found(truth),
            "extra clusters at 12": trees[12].extra(truth),
            "edits after 6": sum(tree.edits for tree in trees[7:]),
        }

    return Case(data, mlp(16, 8, 32), 12, measure)


def inside(seed: int) -> Case:
    old, turned, new, other = ("old",), ("old", "turned"), ("new",), ("other",)
    concepts = contradicting([old, other, new], 10, seed)
    concepts[turned] = labelled(concepts[old].labels or (), 35.0)
    first = shuffled([old] * 8 + [other] * 4, seed)
    second = moved(first, [(old, turned, 3)])
    third = moved(second, [(turned, new, 3)])
    data = planted({0: first, 5: second, 10: third}, concepts, images(seed), [150] * 12, seed)
    inner = [client for client, place in enumerate(third) if place == new]

    def measure(trees: Trees) -> Values:
        return {
            "exact at 4": trees[4].is_exactly(groups_of(first)),
            "turned is a node at 9": trees[9].found([frozenset(inner)]) == 1,
            "new branch by 14": any(tree.is_branch(inner) for tree in trees[10:15]),
            "delay of new": delay(trees, 10, lambda tree: tree.is_branch(inner)),
            "exact at end": trees[-1].is_exactly(groups_of(third)),
            "accuracy of new": trees[-1].mean(inner),
        }

    return Case(data, mlp(196, 10), 16, measure)


def swap(seed: int) -> Case:
    names: list[Place] = [(letter,) for letter in "ABCD"]
    first = shuffled([name for name in names for _ in range(6)], seed)
    second = moved(first, [(name, names[(k + 1) % 4], 2) for k, name in enumerate(names)])
    concepts = contradicting(names, 8, seed)
    data = planted({0: first, 8: second}, concepts, clouds(seed), [120] * 24, seed)
    truth = groups_of(second)

    def measure(trees: Trees) -> Values:
        return {
            "exact at 7": trees[7].is_exactly(groups_of(first)),
            "delay of groups": delay(trees, 8, lambda tree: tree.found(truth) == 1),
            "delay of exact": delay(trees, 8, lambda tree: tree.is_exactly(truth)),
            "exact at end": trees[-1].is_exactly(truth),
        }

    return Case(data, mlp(16, 8, 32), 16, measure)


def noise(seed: int) -> Case:
    rng = np.random.default_rng([seed, 13])
    sizes = rng.integers(30, 150, 16).tolist() if seed % 2 else [80] * 16  # every other: uneven
    here: Place = ("all",)
    concepts = {here: sofa_fl.Concept()}
    data = planted({0: [here] * 16}, concepts, images(seed), sizes, seed)

    def measure(trees: Trees) -> Values:
        flat: Values = {f"flat at {k}": trees[k].is_flat for k in (0, 6, 12)}
        return {**flat, "rounds not flat": sum(not tree.is_flat for tree in trees)}

    return Case(data, mlp(196, 10), 12, measure)


def compatible(seed: int) -> Case:
    names: list[Place] = [(str(r), f"{r}.{s}") for r in range(4) for s in range(2)]
    places = shuffled([name for name in names for _ in range(3)], seed)
    concepts = {
        name: sofa_fl.Concept(45.0 * (k // 2) + 15.0 * (k % 2)) for k, name in enumerate(names)
    }
    data = planted({0: places}, concepts, images(seed), [100] * 24, seed)
    regions = groups_of([place[:1] for place in places])
    sites = groups_of(places) - regions

    def measure(trees: Trees) -> Values:
        found: Values = {
            f"share of {name} at {k}": trees[k].found(groups)
            for k in (3, 12)
            for name, groups in (("regions", regions), ("sites", sites))
        }
        return {
            "exact at 12": trees[12].is_exactly(regions | sites),
            **found,
            "extra clusters at 12": trees[12].extra(regions | sites),
        }

    return Case(data, mlp(196, 10), 12, measure)


def odd(seed: int) -> Case:
    names: list[Place] = [("alike",), ("odd",)]
    places = shuffled([names[0]] * 14 + [names[1]], seed)
    data = planted(
        {0: places}, contradicting(names, 10, seed), images(seed), [60] * len(places), seed
    )
    at = places.index(names[1])

    def measure(trees: Trees) -> Values:
        return {
            "alone at 3": trees[3].is_branch([at]),
            "alone at 12": trees[12].is_branch([at]),
            "exact at 12": trees[12].is_exactly(groups_of(places)),
            "extra clusters at 12": trees[12].extra(groups_of(places)),
            "accuracy of odd": trees[-1].mean([at]),
        }

    return Case(data, mlp(196, 10), 12, measure)


CASES: dict[str, Callable[[int], Case]] = {
    "levels": levels,
    "unrelated": unrelated,
    "inside": inside,
    "swap": swap,
    "noise": noise,
    "compatible": compatible,
    "odd": odd,
}


def ran(case: Case, method: str, seed: int) -> Trees:
    """The tree after the warm-up and every round."""
    local: dict[str, float] = {}
    if "final_rate" in {field.name for field in fields(sofa_fl.LocalConfig)}:
        local["final_rate"] = 1.0
    with tempfile.TemporaryDirectory() as folder:
        config = sofa_fl.Config(
            method=method,
            seed=seed,
            rounds=case.rounds,
            warmup=25,
            engine="sequential",
            save_every=0,
            local=sofa_fl.LocalConfig(
                batches=10, batch_size=case.batch_size, learning_rate=case.learning_rate, **local
            ),
            sharing=sofa_fl.SharingConfig(ratio=0),
            out=f"{folder}/run",
        )
        sofa_fl.run(config, data=case.data, network=case.network, progress=False)
        lines = (Path(folder) / "run" / "events.jsonl").read_text().splitlines()
    return [Tree.of(event) for event in map(json.loads, lines) if event["event"] == "round"]


def scored(name: str, method: str, seed: int) -> Values:
    """What a run of a case measures."""
    began, case = time.process_time(), CASES[name](seed)
    trees = ran(case, method, seed)
    found: Values = {} if method != "sofa" else case.measure(trees)
    found |= {"mean accuracy": trees[-1].mean(), "worst": 100 * min(trees[-1].accuracy.values())}
    if method == "sofa":
        found["edits"] = sum(tree.edits for tree in trees)
        found["edits by round"] = " ".join(str(tree.edits) for tree in trees)
    return found | {"seconds": time.process_time() - began}


def is_flat_on(positions: NDArray[np.float64]) -> bool:
    """Whether the default method's DMAC makes one cluster of clients with these positions."""
    num = len(positions)
    clients = tuple(sofa_fl.NodeId(client) for client in range(num))
    space = sofa_fl.Space(clients, positions, np.ones(num), linkage="average")
    return sofa_fl.dmac(space, sofa_fl.DmacConfig()).depth == 1


def on_noise(seed: int) -> Values:
    """The share of flat trees on Gaussian noise, by the number of clients."""
    rng, found = np.random.default_rng([seed, 14]), Values()
    for clients, draws in ((20, 60), (100, 30), (300, 10), (1000, 2)):
        flat = [
            is_flat_on(rng.normal(size=(clients, inputs)))
            for inputs in (20, 100, 1000)
            for _ in range(draws)
        ]
        found[f"{clients:,} clients: % flat"] = 100 * statistics.mean(flat)
    return found


def shown(value: Value) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "never"}[value]
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def summary(values: Sequence[Value]) -> str:
    """One cell for all seeds."""
    if all(isinstance(value, bool) for value in values):
        return f"{sum(map(bool, values))} of {len(values)}"
    numbers = [float(value) for value in values if value is not None]
    never = f" ({len(values) - len(numbers)} never)" if len(numbers) < len(values) else ""
    return (f"{statistics.mean(numbers):.4g}" if numbers else "-") + never


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [*CASES, "positions"]
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(names))
    parser.add_argument("--seeds", type=int, nargs="+", default=[200, 201, 202])
    parser.add_argument("--method", default="sofa")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if unknown := set(asked.cases) - set(names):
        parser.error(f"unknown cases {sorted(unknown)}, known: {', '.join(names)}")
    torch.set_num_threads(1)
    print(f"measuring {sofa_fl.__file__}", file=sys.stderr)
    results: dict[str, dict[int, Values]] = {}
    for name in asked.cases or names:
        for seed in asked.seeds:
            found = on_noise(seed) if name == "positions" else scored(name, asked.method, seed)
            results.setdefault(name, {})[seed] = found
            words = ", ".join(f"{key}: {shown(value)}" for key, value in found.items())
            print(f"{name} {seed}: {words}", flush=True)
            if asked.json:
                asked.json.write_text(json.dumps(results, indent=1) + "\n")
    for name, by_seed in results.items():
        print(f"\n| {name} | {len(by_seed)} seeds |\n|---|---:|")
        for key, value in next(iter(by_seed.values())).items():
            if not isinstance(value, str):
                print(f"| {key} | {summary([found[key] for found in by_seed.values()])} |")


if __name__ == "__main__":
    main()
