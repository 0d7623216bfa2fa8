"""Every command of docs/deploy.md, in order, with processes here as machines.

The result is that of one machine: the paper's method on MNIST, over TLS.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from machines import Machine, closing, free_port, wait_until

from sofa_fl.experiment.run.config import load_config
from sofa_fl.experiment.run.launch import run
from tests.deploy.cases import events, lines

pytest.importorskip("flwr")
PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
MACHINES = ("clinic-a", "clinic-b", "clinic-c", "clinic-d")
SMALL = {
    "seed": 3,  # in round 2 a cluster is split
    "rounds": 3,
    "warmup": 4,
    "engine": "sequential",
    "data": {
        "num_clients": 4, "num_train": 1500, "num_test": 600,
        "partition": "groups", "num_rotations": 2, "num_swaps": 1,
    },
    "model": {"name": "mlp", "hidden": 32},
    "local": {"batches": 8, "batch_size": 50, "learning_rate": 4e-3},
    "sharing": {"ratio": 0.2},
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """The commands of one block, and where they are given."""

    where: str
    text: str


def blocks() -> list[Block]:
    found = re.findall(r"<!-- on: ([\w-]+) -->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [Block(where, text.strip().replace("\\\n  ", "")) for where, text in found]


def test_no_command_is_left_out() -> None:
    fences = re.findall(r"^```(\w+)", PAGE.read_text(), re.MULTILINE)
    assert fences == ["sh"] * len(blocks())


@dataclass
class World:
    """The machines once all commands of the page have run, and the run on one machine."""

    machines: dict[str, Machine]
    reference: Path

    @property
    def run(self) -> Path:
        return self.machines["server"].folder / "clinics" / "runs" / "first"


def with_another(page: list[Block]) -> list[Block]:
    """The page's commands, and a fourth machine's: with three there is hardly a tree."""
    another = {"clinic-c": "clinic-d", "client=2": "client=3", "disclosure=0 ": "disclosure=0.5 "}
    found = []
    for block in page:
        text = block.text
        for old, new in another.items():
            text = text.replace(old, new)
        if block.where == "clinic-c":
            found += [block, Block("clinic-d", text)]
        elif "register" in text:
            found += [block, Block(block.where, text.splitlines()[-1])]
        else:
            found.append(block)
    return found


def small(machine: Machine) -> None:
    """Write a configuration, as a user does next."""
    (machine.folder / "clinics" / "clinics" / "sofa.yaml").write_text(yaml.safe_dump(SMALL))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    commands = [block for block in with_another(blocks()) if block.where != "laptop"]
    names = dict.fromkeys(block.where for block in commands)
    machines = {name: Machine(folder / name) for name in names}
    port = free_port()
    try:
        for block in commands:
            perform(block, machines, port)
        file = folder / "sofa.yaml"
        file.write_text(yaml.safe_dump(SMALL))
        out = folder / "one"
        caps = "sharing.max_disclosure={0: 0.5, 1: 0.5, 2: 0, 3: 0.5}"
        run(load_config(file, [f"out={out}", caps]))
        yield World(machines, out)
    finally:
        closing(list(machines.values()))


def perform(block: Block, machines: dict[str, Machine], port: int) -> None:
    """Run the commands of a block as they are, but for the address, in the right folder."""
    machine, server = machines[block.where], machines["server"]
    text = block.text.replace("server.example.org:8000", f"127.0.0.1:{port}")
    text = text.replace("--host 0.0.0.0 --port 8000", f"--host 127.0.0.1 --port {port}")
    commands = text.splitlines()
    first = shlex.split(commands[-1])[:3]
    if first[0] == "flower-superlink":
        machine.run("\n".join(commands[:-1]))
        small(machine)
        machine.start(f"cd clinics\n. ./env.sh\nexec {commands[-1]}", "superlink.log")
        wait_until(lambda: "Uvicorn running" in machine.log("superlink.log"), "the SuperLink")
    elif first[:2] == ["flwr", "supernode"]:
        for name in MACHINES:  # what people would send each other
            public = machines[name].folder / "keys" / f"{name}.pub"
            (server.folder / "clinics" / public.name).write_bytes(public.read_bytes())
        machine.run(f"cd clinics\n. ./env.sh\n{text}")
    elif "deploy" in first or first[0] == "flower-supernode":
        certificate = server.folder / "clinics" / "keys" / "ca.crt"
        (machine.folder / "ca.crt").write_bytes(certificate.read_bytes())
        for command in commands[:-1]:
            machine.run(command)
        machine.start(f"{commands[-1]} --port {free_port()}", "node.log")
    elif first[:2] == ["flwr", "run"]:
        command = text.replace("clients=3", "clients=4 most=4")
        assert "round 3/3" in machine.run(f"cd clinics\n. ./env.sh\n{command}")
    else:
        machine.run(text)


def test_the_result_is_that_of_one_machine(world: World) -> None:
    ours, theirs = events(world.run), events(world.reference)
    assert len(ours) == len(theirs) == 4
    for here, there in zip(ours, theirs):
        assert here["tree"] == there["tree"]
        assert here["edits"] == there["edits"]
        assert here["pools"] == there["pools"]
        assert here["disclosed"] == there["disclosed"]
        assert here["accuracies"] == pytest.approx(there["accuracies"], abs=1e-4)
        assert here["local_loss"] == pytest.approx(there["local_loss"], abs=1e-4)
    assert [[edit["edit"] for edit in event["edits"]] for event in ours] == [[], [], ["split"], []]


def test_a_deployed_run_has_its_report(world: World) -> None:
    assert (world.run / "report.html").stat().st_size > 50_000


def test_a_machine_that_may_give_nothing_gave_nothing(world: World) -> None:
    """By the bytes of its answers: scores are no arrays, so any bytes would be samples."""
    nodes = {name: node_name(world.machines[name]) for name in MACHINES}
    gave = dict.fromkeys(MACHINES, 0)
    for line in lines(world.run):
        for name, node in nodes.items():
            if line.get("exchange") == "evaluate":
                gave[name] += line["bytes_up"].get(node, 0)
    assert gave["clinic-c"] == 0
    assert all(gave[name] > 10 * 784 for name in MACHINES if name != "clinic-c")


def test_a_machine_records_what_it_disclosed(world: World) -> None:
    left = {name: list((world.machines[name].folder / "state").glob("left-*")) for name in MACHINES}
    assert [len(found) for found in left.values()] == [1, 1, 0, 1]


def test_an_unregistered_machine_is_refused(world: World) -> None:
    stranger = world.machines["stranger"]
    wait_until(lambda: stranger.running[0].poll() is not None, "the end of the stranger")
    assert "SuperNode ID" not in stranger.log("node.log")
    assert stranger.running[0].returncode != 0


def node_name(machine: Machine) -> str:
    found = re.search(r"SuperNode ID: (\d+)", machine.log("node.log"))
    assert found is not None
    return found[1]


def test_one_laptop(tmp_path: Path) -> None:
    """The simulation needs Ray, and a second machine nowhere."""
    pytest.importorskip("ray")
    (block,) = (block for block in blocks() if block.where == "laptop")
    *before, command = block.text.splitlines()
    laptop = Machine(tmp_path)
    try:
        laptop.run(before[0])
        small(laptop)
        config = tmp_path / "clinics" / ".flwr" / "config.toml"
        config.write_text(config.read_text().replace("num-supernodes = 10", "num-supernodes = 4"))
        printed = laptop.run("\n".join([*before[1:], f"{command} --run-config 'set=\"rounds=1\"'"]))
        assert "round 1/1" in printed
        assert max(events(tmp_path / "clinics" / "runs" / "first")[-1]["disclosed"]) > 0
    finally:
        laptop.close()
