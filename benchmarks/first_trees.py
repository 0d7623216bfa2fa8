"""How much of the true groups DMAC finds after the warm-up: `python benchmarks/first_trees.py S4`.

Only the warm-up is run, so a setting of the study takes seconds or minutes on a CPU. Seeds from 100
to 199 are for choices, and no table uses them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of study

import argparse
from dataclasses import replace

import torch

from sofa_fl.experiment.run.loop import Experiment, Own
from sofa_fl.methods.sofa.local import warm_up
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.topology.tree import NodeId
from study.design.contenders import CONTENDERS
from study.design.drift_settings import EVERY
from study.design.run_plan import Scope, make_entry

Group = frozenset[NodeId]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="+", choices=EVERY, metavar="setting")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 105)))
    parser.add_argument("--data-dir")
    asked = parser.parse_args()
    print("| | seed | true groups | found | other clusters |")
    print("|---|---:|---:|---:|---:|")
    for name in asked.settings:
        exact = 0
        for seed in asked.seeds:
            true, found = first_tree(name, seed, asked.data_dir)
            exact += true == found
            counts = f"{len(true)} | {len(true & found)} | {len(found - true)}"
            print(f"| {name} | {seed} | {counts} |", flush=True)
        print(f"{name}: exact in {exact} of {len(asked.seeds)}")


def first_tree(name: str, seed: int, data_dir: str | None) -> tuple[set[Group], set[Group]]:
    """The true groups on all levels, and the clusters of the first tree, the root left out."""
    scope = Scope(settings=(name,), seeds=(seed,), data_dir=data_dir)
    config = make_entry(scope, name, CONTENDERS["sofa"], 0.0, seed, {}).config
    with Experiment(replace(config, engine="sequential"), Own()) as experiment:
        fed, method = experiment.fed, experiment.method
        assert isinstance(method, Sofa)
        tree = method.grow(method.positions(warm_up(fed), {}, fed), {}, fed)
        true = {
            frozenset(c for c in fed.clients if level[c] == group)
            for level in fed.stage.truth
            for group in set(level)
        }
    some = {group for group in true if 1 < len(group) < len(fed.clients)}
    return some, {frozenset(tree.clients_of(cluster)) for cluster in tree.clusters[1:]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
