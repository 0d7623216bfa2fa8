"""How far SHAPE mends a wrong first tree: `python benchmarks/healing.py [S4-100-mlp ...]`.

Each run begins with another tree in place of DMAC's: none but the root, one true group of all, true
groups two by two, a fifth of the clients in a wrong group, or groups at random. The rest is the
default method. Prints how often the last tree has the true groups, and the accuracy of the mean
client, as Markdown. Seeds below 200 are for choices; nothing was chosen on those from 400 on.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of study

import argparse
import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import torch

from sofa_fl.data.federate import dealt_out
from sofa_fl.experiment.run.launch import run as launch
from sofa_fl.experiment.run.loop import Own
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.averages import Models
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from study.design.contenders import CONTENDERS
from study.design.drift_settings import EVERY
from study.design.run_plan import Scope, make_entry

Groups = list[list[NodeId]]


def moved(groups: Groups, rng: random.Random) -> Groups:
    """A fifth of all clients in another group than their own."""
    parts = [list(group) for group in groups]
    clients = [client for group in groups for client in group]
    for client in rng.sample(clients, max(1, len(clients) // 5)):
        own = next(part for part in parts if client in part)
        own.remove(client)
        rng.choice([part for part in parts if part is not own]).append(client)
    return [part for part in parts if part]


def at_random(groups: Groups, rng: random.Random) -> Groups:
    """As many groups as there are, of clients at random."""
    clients = [client for group in groups for client in group]
    rng.shuffle(clients)
    return [clients[k :: len(groups)] for k in range(len(groups))]


FIRST: dict[str, Callable[[Groups, random.Random], Groups]] = {
    "true groups": lambda groups, _: groups,
    "the root only": lambda groups, _: [],
    "one true group": lambda groups, _: groups[:1],
    "groups two by two": lambda groups, _: [
        list(chain(*groups[k : k + 2])) for k in range(0, len(groups), 2)
    ],
    "a fifth misplaced": moved,
    "random groups": at_random,
}


def tree_of(parts: Sequence[Sequence[NodeId]], clients: Sequence[NodeId], first: int) -> Tree:
    """Parts of several clients below the root; whoever is in none is below the root, too."""
    root = NodeId(max(first, 1 + max(clients)))
    parent: dict[NodeId, NodeId | None] = {root: None}
    parent |= dict.fromkeys(clients, root)
    several = [part for part in parts if len(part) > 1]
    for k, part in enumerate(several, 1):
        parent[NodeId(root + k)] = root
        parent |= dict.fromkeys(part, NodeId(root + k))
    return Tree(parent, tuple(clients), root + 1 + len(several))


def run(setting: str, start: str, seed: int, rounds: int) -> tuple[bool, float]:
    """Whether the last tree has the true groups, and the accuracy of the mean client."""
    scope = Scope(settings=(setting,), seeds=(seed,))
    config = make_entry(scope, setting, CONTENDERS["sofa"], 0.0, seed, {}).config
    truth = dealt_out(config.data, config.seed, None).truth[0]
    groups = [[NodeId(c) for c, at in enumerate(truth) if at == g] for g in sorted(set(truth))]
    parts = FIRST[start](groups, random.Random(seed))

    class Given(Sofa):
        def grow(self, space: Space, learned: Models, fed: Federation) -> Tree:
            return tree_of(parts, space.clients, fed.first_id)

    method = Given(config.sofa, config.sharing)
    with tempfile.TemporaryDirectory() as folder:
        config = replace(
            config, engine="sequential", rounds=rounds, save_every=0, out=folder + "/r"
        )
        result = launch(config, Own(method=method))
    found = {frozenset(result.tree.clients_of(cluster)) for cluster in result.tree.clusters}
    return {frozenset(group) for group in groups} <= found, result.summary["client"]["mean"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", metavar="setting")
    parser.add_argument("--seeds", type=int, nargs="+", default=[400, 401, 402])
    parser.add_argument("--rounds", type=int, default=12)
    asked = parser.parse_args()
    for setting in asked.settings or ["S4-100-mlp"]:
        print(f"\n{EVERY[setting].title}, after {asked.rounds} rounds:\n")
        print("| first tree | has all true groups | mean client |\n|---|---:|---:|")
        for start in FIRST:
            runs = [run(setting, start, seed, asked.rounds) for seed in asked.seeds]
            exact, accuracies = zip(*runs)
            mean = 100 * statistics.mean(accuracies)
            print(f"| {start} | {sum(exact)} of {len(runs)} | {mean:.1f}% |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
