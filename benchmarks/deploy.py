"""What a deployment costs beside training: nodes on loopback, with TLS and keys.

    python benchmarks/deploy.py [--nodes 4] [--rounds 6] [--model mlp] [--node flower-supernode]
    python benchmarks/deploy.py --nodes 4 --secure-aggregation 3  # and 0, to compare

A round's overhead is its seconds less those of the slowest node's training. On a busy machine these
say little; the processor time of every kind of process does not hang on what else is running.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from machines import Machine, at_home, free_port, wait_until

CONFIG: dict[str, Any] = {
    "method": "sofa",
    "warmup": 5,
    "data": {"num_train": 4000, "num_test": 800},
    "model": {"name": "cnn"},
    "local": {"batches": 5, "batch_size": 50},
    "sharing": {"ratio": 0.05},
}
Line = dict[str, Any]
KINDS = {
    "flower-superlink": "SuperLink",
    "flwr-serverapp": "ServerApp",
    "sofa_fl_flower.flower.app_process": "nodes, training and scoring",
    "flwr-clientapp": "nodes, training and scoring",
    "flower-superexec": "SuperExec",
    "sofa-fl": "nodes, carrying",
    "flower-supernode": "nodes, carrying",
}


def deploy(folder: Path, options: argparse.Namespace) -> list[Line]:
    """Set up, run, and return what the server wrote of its messages."""
    machine, port, app = Machine(folder), free_port(), folder / "bench"
    ready = "cd bench\n. ./env.sh\n"
    try:
        machine.run("sofa-fl deploy new bench")
        config = {**CONFIG, "rounds": options.rounds}
        config["model"] = {"name": options.model}
        keys = ""
        if options.secure_aggregation is not None:
            config |= {
                "sofa": {"evidence": "models", "pull_siblings": 0},
                "sharing": {"ratio": 0.0},
            }
            keys = f" --run-config 'secure_aggregation={options.secure_aggregation}'"
        config["data"] = {**CONFIG["data"], "num_clients": options.nodes}
        (app / "bench" / "sofa.yaml").write_text(yaml.safe_dump(config))
        here = f"127.0.0.1:{port}"
        machine.run(f"{ready}python keys.py --server {here} --link {here} --nodes {options.nodes}")
        files = "--ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.pem"
        machine.start(
            f"{ready}exec flower-superlink --host 127.0.0.1 --port {port} {files} "
            f"--ssl-keyfile keys/server.key --enable-supernode-auth --database {options.database}",
            "link.log",
        )
        wait_until(lambda: "Uvicorn running" in machine.log("link.log"), "the SuperLink")
        for i in range(options.nodes):
            machine.run(f"{ready}flwr supernode register keys/node-{i}.pub deployed")
            machine.run(f"{ready}sofa-fl deploy site site-{i} --app .")
            policy = app / f"site-{i}" / "policy.toml"
            text = policy.read_text().replace('"cnn"', f'"{options.model}"')
            text = text.replace("max_disclosure = 0.0", "max_disclosure = 1.0")
            policy.write_text(text.replace("max_received = 0.0", "max_received = 1.0"))
            ours = f" --policy {policy}" if "deploy node" in options.node else ""
            machine.start(
                f"{ready}exec {options.node}{ours} --superlink {here} --port {free_port()} "
                f"--root-certificates keys/ca.crt --auth-supernode-private-key keys/node-{i} "
                f"--node-config 'client={i} policy=\"{policy}\"'",
                f"node-{i}.log",
            )
        machine.run(f"{ready}flwr run . deployed{keys}")
        run = app / "runs" / "first"
        wait_until(lambda: _num_rounds(run) > 1, "the first round", 600)
        begin, before = _num_rounds(run), processor_seconds(folder)
        wait_until(lambda: _num_rounds(run) > options.rounds, "the last round", 1800)
        num, after = _num_rounds(run) - begin, processor_seconds(folder)
        print("processor seconds a round:")
        for kind, seconds in sorted(after.items()):
            print(f"  {kind:38}{(seconds - before.get(kind, 0)) / num:8.2f}")
        text = (run / "exchanges.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]
    finally:
        machine.close()


def _num_rounds(run: Path) -> int:
    file = run / "events.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def processor_seconds(folder: Path) -> dict[str, float]:
    """Of all processes that were started from here and their children that have ended, by kind."""
    found: dict[str, float] = {}
    for pid in at_home(folder):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        kind = next((kind for kind in KINDS if any(kind in word for word in words)), "other")
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = sum(map(int, fields[11:15]))
        found[KINDS.get(kind, kind)] = found.get(KINDS.get(kind, kind), 0) + ticks / 100
    return found


def rounds_of(lines: list[Line]) -> list[list[Line]]:
    """The exchanges of every round but the warm-up, its own line last."""
    rounds: list[list[Line]] = [[]]
    for line in lines:
        rounds[-1].append(line)
        if "round" in line:
            rounds.append([])
    return rounds[1:-1]


def profile(round: list[Line]) -> dict[str, float]:
    """Where a round's seconds went."""
    *exchanges, end = [line for line in round if "exchange" in line or "round" in line]
    worked = {id(line): max(line["worked"].values(), default=0.0) for line in exchanges}
    trained = sum(worked[id(line)] for line in exchanges if line["exchange"] == "train")
    found = {
        "round": end["seconds"],
        "slowest training": trained,
        "overhead": end["seconds"] - trained,
        "exchanges": float(len(exchanges)),
        "server computes and writes": end["seconds"] - sum(line["seconds"] for line in exchanges),
        "server hands messages to Flower": sum(line["sending"] for line in exchanges),
        "slowest evaluation": sum(worked.values()) - trained,
        "nodes prepare": sum(max(line["prepared"].values(), default=0.0) for line in exchanges),
    }
    rest = found["overhead"] - sum(list(found.values())[4:])
    return {**found, "Flower: carrying, polling, starting": rest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--database", default=".flwr/state.db", help="of the SuperLink")
    parser.add_argument("--secure-aggregation", type=int, help="go by models alone, in such sums")
    parser.add_argument("--node", default="sofa-fl deploy node")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = rounds_of(deploy(Path(folder), options))
    profiles = [profile(round) for round in rounds]
    print(f"{options.node}, {options.model}, {options.nodes} nodes, {len(rounds)} rounds")
    print("medians in seconds:")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name in profiles[0]:
        print(f"  {name:38}{median(found[name] for found in profiles):8.2f}")
    sizes = [(line["bytes_down"], line["bytes_up"]) for *_, line in rounds]
    down, up = (median(size[k] for size in sizes) / 1e6 for k in (0, 1))
    print(f"  megabytes a round, all nodes: {down:.1f} down, {up:.1f} up")


if __name__ == "__main__":
    main()
