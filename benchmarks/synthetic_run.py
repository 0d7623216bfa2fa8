"""Run folders of any size, made without training: a tree in groups that a few edits reshape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sofa_fl.experiment.storage.events import edit_to_json
from sofa_fl.topology.edits import Edit, Graft, Merge, Prune, Split, apply_all
from sofa_fl.topology.tree import NodeId, Tree

CONFIG = {"method": "sofa", "seed": 0, "data": {"name": "mnist"}, "sharing": {"ratio": 0.1}}


def write_synthetic(
    folder: Path,
    num_clients: int,
    rounds: int = 20,
    *,
    seed: int = 0,
    recorded: int | None = None,
    config: dict[str, Any] | None = None,
    extra: dict[str, Any] | None = None,
) -> Path:
    """A run of which `recorded` rounds have ended (default: all, and the run)."""
    folder.mkdir(parents=True)
    settings = {**CONFIG, "rounds": rounds, "seed": seed, **(config or {})}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    last = rounds if recorded is None else recorded
    lines = [json.dumps(e) + "\n" for e in events(num_clients, rounds, seed, extra)[: last + 1]]
    (folder / "events.jsonl").write_text("".join(lines))
    if recorded is None:
        (folder / "summary.json").write_text(json.dumps({"method": "sofa", "rounds": rounds}))
    return folder


def events(
    num_clients: int, rounds: int, seed: int = 0, extra: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """One event per round, as a run writes them."""
    rng = np.random.default_rng(seed)
    tree = first_tree(num_clients, max(2, min(24, num_clients // 8)))
    samples = rng.integers(80, 900, num_clients)
    talent = rng.normal(0, 0.6, num_clients)
    centres = {cluster: rng.normal(0, 3, 2) for cluster in tree.clusters}
    positions = {c: centres[up] + rng.normal(0, 0.7, 2) for c, up in groups_of(tree).items()}
    found = []
    for round in range(rounds + 1):
        edits: list[Edit] = []
        if round:
            for _ in range(rng.integers(0, 3 + num_clients // 100)):
                edits += reshape(tree, rng)
                for edit in edits[-1:]:
                    tree = apply_all(tree, [edit])
            while (lone := prunable(tree)) is not None:
                edits.append(Prune(lone))
                tree = apply_all(tree, [edits[-1]])
        error = np.exp(-1.2 - 0.12 * round + talent + rng.normal(0, 0.1, num_clients))
        accuracy = np.clip(1 - error, 0.05, 1.0)
        for client in positions:
            positions[client] = positions[client] * 1.03 + rng.normal(0, 0.1, 2)
        found.append(
            event(tree, round, rounds, edits, accuracy, samples, positions) | (extra or {})
        )
    return found


def event(
    tree: Tree,
    round: int,
    rounds: int,
    edits: list[Edit],
    accuracy: Any,
    samples: Any,
    positions: dict[NodeId, Any],
) -> dict[str, Any]:
    worst_first = np.sort(accuracy)
    path_loss, shared = {}, {}
    for client in tree.clients:
        path = tree.path(client)
        own = 2 * (1 - accuracy[client])
        path_loss[str(client)] = {
            str(node): own * (1 + 0.3 * abs(tree.level[node] - 1)) for node in path
        }
        given = [int(samples[client] * 0.1**k) for k in range(1, len(path))]
        shared[str(client)] = [count for count in given if count]
    return {
        "event": "round",
        "round": round,
        "rounds": rounds,
        "client": {
            "mean": float(accuracy.mean()),
            "std": float(accuracy.std()),
            "min": float(worst_first[0]),
            "gap": float(worst_first[-1] - worst_first[0]),
            "jain": float(accuracy.sum() ** 2 / (len(accuracy) * (accuracy**2).sum())),
            "bottom10": float(worst_first[: max(1, len(accuracy) // 10)].mean()),
        },
        "accuracies": accuracy.tolist(),
        "samples": samples.tolist(),
        "local_loss": [0.5, 0.4],
        "path_loss": path_loss,
        "tree": {str(node): up for node, up in tree.parent.items()},
        "edits": [edit_to_json(edit) for edit in edits],
        "pools": {str(c): 10 * len(tree.clients_of(c)) for c in tree.clusters},
        "shared": shared,
        "disclosed": [1 - 0.9 ** (1 + round + client % 3) for client in tree.clients],
        "positions": {str(c): [round_to(x) for x in place] for c, place in positions.items()},
        "samples_trained": 1000 * (round + 1),
        "bytes_down": 5_000_000 * (round + 1),
        "bytes_up": 2_000_000 * (round + 1),
        "seconds": 3.2 * (round + 1) + 0.3 * (round % 4),
    }


def first_tree(num_clients: int, num_groups: int) -> Tree:
    """Clients in groups, groups by four or so in larger ones, and a root."""
    parent: dict[NodeId, NodeId | None] = {}
    groups = [NodeId(num_clients + i) for i in range(num_groups)]
    num_larger = max(1, num_groups // 4)
    larger = [NodeId(num_clients + num_groups + i) for i in range(num_larger)]
    root = NodeId(num_clients + num_groups + num_larger)
    for client in range(num_clients):
        parent[NodeId(client)] = groups[client * num_groups // num_clients]
    for i, group in enumerate(groups):
        parent[group] = larger[i * num_larger // num_groups] if num_larger > 1 else root
    if num_larger > 1:
        parent |= dict.fromkeys(larger, root)
    parent[root] = None
    clients = tuple(NodeId(client) for client in range(num_clients))
    return Tree(parent, clients, root + 1)


def groups_of(tree: Tree) -> dict[NodeId, NodeId]:
    return {client: up for client in tree.clients if (up := tree.parent[client]) is not None}


def reshape(tree: Tree, rng: np.random.Generator) -> list[Edit]:
    """One edit that this tree allows, mostly a graft."""
    low = [c for c in tree.clusters if all(n in tree.members for n in tree.children[c])]
    kind = rng.random()
    if kind < 0.15 and (wide := [c for c in low if len(tree.children[c]) >= 6]):
        node = wide[rng.integers(len(wide))]
        below, new = tree.children[node], NodeId(tree.next_id)
        half = len(below) // 2
        return [Split(node, (new, NodeId(new + 1)), (below[:half], below[half:]))]
    if kind < 0.3:
        node = low[rng.integers(len(low))]
        beside = [c for c in tree.siblings(node) if c in low]
        if beside and len(low) > 2:
            return [Merge((node, beside[0]), NodeId(tree.next_id))]
    client = tree.clients[rng.integers(len(tree.clients))]
    others = [c for c in low if c != tree.parent[client]]
    return [Graft(client, others[rng.integers(len(others))])] if others else []


def prunable(tree: Tree) -> NodeId | None:
    return next((c for c in tree.clusters if len(tree.children[c]) < 2), None)


def round_to(value: float) -> float:
    return float(f"{value:.4g}")
