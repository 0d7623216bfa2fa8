"""Every command of docs/deploy.md, in order, with processes here as machines.

The result is that of one machine: the paper's method on MNIST, over TLS, behind nginx, under a
server's name. Then a second run of the same machines, private and in sums.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from machines import Machine, closing, free_port, interrupt, wait_until

from cases import events, lines
from nginx import require_nginx
from sofa_fl.api.runs import run
from sofa_fl.experiment.run.config import load_config
from sofa_fl_flower.machine.machine_data import example_data
from sofa_fl_flower.machine.policy import load_policy
from sofa_fl_flower.machine.privacy import Budget, SitePrivacy
from sofa_fl_flower.machine.site import open_site

PAGE = Path(__file__).parents[3] / "docs" / "deploy.md"
MACHINES = ("clinic-a", "clinic-b", "clinic-c", "clinic-d")
SEED = 1
SMALL = {
    "seed": SEED,
    "rounds": 1,
    "warmup": 2,  # too short to see both groups, so that the root is split in round 1
    "engine": "sequential",
    "data": {
        "num_clients": 4, "num_train": 1500, "num_test": 600,
        "partition": "groups", "num_rotations": 2, "num_swaps": 1,
    },
    "model": {"name": "mlp", "hidden": 32},
    "local": {"batches": 8, "batch_size": 50, "learning_rate": 4e-3},
    "sharing": {"ratio": 0.2, "max_disclosure": 1},  # the sites' own caps are lower
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """The commands of one block, and where they are given."""

    where: str
    text: str


def blocks() -> list[Block]:
    found = re.findall(r"<!-- on: ([\w -]+) -->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [
        Block(where, text.strip().replace("\\\n  ", ""))
        for names, text in found
        for where in names.split()
    ]


def test_no_command_is_left_out() -> None:
    fences = re.findall(r"^```(\w+)", PAGE.read_text(), re.MULTILINE)
    texts = {block.text for block in blocks()}
    assert fences.count("sh") == len(re.findall("<!-- on: ", PAGE.read_text())) == len(texts)
    assert set(fences) == {"sh", "toml", "text", "ini"}


def test_the_service_starts_what_the_page_does() -> None:
    (unit,) = re.findall(r"^```ini\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (command,) = re.findall(r"^ExecStart=(.*)$", unit.replace("\\\n  ", ""), re.MULTILINE)
    texts = [block.text for block in blocks() if block.where == "clinic-a"]
    (node,) = [text for text in texts if text.startswith("sofa-fl deploy node")]
    assert shlex.split(command.removeprefix("/srv/sofa/venv/bin/")) == shlex.split(node)


def test_the_policy_on_the_page_can_be_used(tmp_path: Path) -> None:
    texts = re.findall(r"^```toml\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    private, summed = (text.replace("...", "0" * 60) for text in texts)
    file = tmp_path / "policy.toml"
    file.write_text(f"state = '/srv/site/state'\n{private}\n{summed}")
    policy = load_policy(file)
    assert policy.privacy == SitePrivacy(epsilon=8.0)
    assert len(policy.secure_aggregation.peers) == 2
    assert policy.secure_aggregation.max_clear_models == 1


@dataclass(frozen=True)
class Ports:
    """The server's: the one that all can reach, and that of the SuperLink."""

    front: int
    link: int


@dataclass
class World:
    """The machines once all commands of the page have run, and the run on one machine."""

    machines: dict[str, Machine]
    reference: Path
    audits: dict[str, str]  # what `sofa-fl deploy audit` said at each site

    @property
    def run(self) -> Path:
        return self.machines["server"].folder / "clinics" / "runs" / "first"

    @property
    def private_run(self) -> Path:
        return self.run.with_name("private")


AGAIN = re.compile("max_clear_models|deploy audit")  # what only the page's three do: a second run


def with_another(page: list[Block]) -> list[Block]:
    """The page's commands, and a fourth machine's: with three there is hardly a tree.

    It stops before the second run, for which three are enough.
    """
    found = []
    for block in page:
        text = block.text.replace("clinic-b", "clinic-d").replace("client=1", "client=3")
        if block.where == "clinic-b" and not AGAIN.search(text):
            found += [block, Block("clinic-d", text)]
        elif "register" in text:
            found += [block, Block(block.where, text.splitlines()[1])]
        else:
            found.append(block)
    return found


def small(machine: Machine) -> None:
    """Write a configuration, as a user does next."""
    (machine.folder / "clinics" / "clinics" / "sofa.yaml").write_text(yaml.safe_dump(SMALL))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_nginx()
    folder = tmp_path_factory.mktemp("world")
    commands = [block for block in with_another(blocks()) if block.where != "laptop"]
    names = dict.fromkeys(block.where for block in commands)
    machines = {name: Machine(folder / name) for name in names}
    ports = Ports(free_port(), free_port())
    nodes: dict[str, str] = {}  # the command that starts each
    audits: dict[str, str] = {}
    try:
        for block in commands:
            if block.text.startswith("sofa-fl deploy node"):
                nodes[block.where] = block.text
            if "deploy audit" in block.text:
                audits[block.where] = machines[block.where].run(block.text)
            elif "max_clear_models" in block.text:
                if block.where == MACHINES[0]:
                    interrupt([machines[name].running[0] for name in MACHINES])
                    exchange_keys([machines[name] for name in MACHINES[:3]])
                machines[block.where].run(block.text)
                perform(Block(block.where, nodes[block.where]), machines, ports)
            else:
                perform(block, machines, ports)
        file = folder / "sofa.yaml"
        file.write_text(yaml.safe_dump(SMALL))
        out = folder / "one"
        caps = "sharing.max_disclosure={0: 0.5, 1: 0.5, 2: 0, 3: 0.5}"
        run(load_config(file, [f"out={out}", caps]))
        yield World(machines, out, audits)
    finally:
        closing(list(machines.values()))


HOST = socket.gethostname()  # a name, not an address: the certificate must cover it


def perform(block: Block, machines: dict[str, Machine], ports: Ports) -> None:
    """Run the commands of a block as they are, but for the address, in the right folder."""
    machine, server = machines[block.where], machines["server"]
    app = server.folder / "clinics"
    text = block.text.replace("server.example.org:8000", f"{HOST}:{ports.front}")
    text = text.replace("deploy link", f"deploy link --port {ports.link}")
    text = text.replace("python keys.py", f"python keys.py --link 127.0.0.1:{ports.link}")
    commands = text.splitlines()
    first = shlex.split(commands[-1])[:3]
    if first[1:] == ["deploy", "link"]:
        machine.run("\n".join(commands[:-1]))
        small(machine)
        machine.start(f"cd clinics\n. ./env.sh\nexec {commands[-1]}", "superlink.log")
        wait_until(lambda: "Uvicorn running" in machine.log("superlink.log"), "the SuperLink")
    elif first[0] == "nginx":
        machine.start(text, "nginx.log")
        wait_until(lambda: is_open(ports.front), "nginx")
    elif first[:2] == ["flwr", "supernode"]:
        for name in MACHINES:  # what people would send each other
            public = machines[name].folder / "keys" / f"{name}.pub"
            (app / public.name).write_bytes(public.read_bytes())
        machine.run(f"cd clinics\n. ./env.sh\n{text}")
    elif first[1:] == ["deploy", "node"] or first[0] == "flower-supernode":
        (machine.folder / "ca.crt").write_bytes((app / "keys" / "ca.crt").read_bytes())
        for command in commands[:-1]:
            machine.run(command)
        machine.start(f"{commands[-1]} --port {free_port()}", "node.log")
    elif first[:2] == ["flwr", "run"]:
        command = text if "private" in text else text.replace("clients=3", "clients=4 most=4")
        assert "round 1/1" in machine.run(f"cd clinics\n. ./env.sh\n{command}")
    else:
        secret = shutil.ignore_patterns("keys", ".flwr", "runs")
        shutil.copytree(app, machine.folder / "clinics", ignore=secret)
        machine.run(text)
        policy = machine.folder / "site" / "policy.toml"  # as its operator edits it next
        lines = policy.read_text().replace('name = "cnn"', 'name = "mlp"\nhidden = 32')
        lines = lines.replace("min_rows = 20", "min_rows = 10")
        # The server's batches, so that the result can be compared with that of one machine.
        lines = lines.replace("own_batches = true", "own_batches = false")
        policy.write_text(lines.replace("coarse_scores = true", "coarse_scores = false"))


def exchange_keys(machines: list[Machine]) -> None:
    """Copy what operators send each other."""
    for to in machines:
        for machine in machines:
            if machine is not to:
                public = machine.folder / "site" / "sum.pub"
                (to.folder / f"{machine.folder.name}.sum.pub").write_bytes(public.read_bytes())


def is_open(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def test_the_result_is_that_of_one_machine(world: World) -> None:
    ours, theirs = events(world.run), events(world.reference)
    assert len(ours) == len(theirs) == 2
    assert [edit["edit"] for edit in ours[1]["edits"]] == ["split"]
    assert ours[-1]["names"] == list(MACHINES), "sites are called as their policies say"
    for here, there in zip(ours, theirs):
        assert here["tree"] == there["tree"]
        assert here["edits"] == there["edits"]
        assert here["pools"] == there["pools"]
        assert here["disclosed"] == there["disclosed"]
        assert here["accuracies"] == pytest.approx(there["accuracies"], abs=1e-4)
        assert here["local_loss"] == pytest.approx(there["local_loss"], abs=1e-4)


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
    for name in MACHINES:
        state = world.machines[name].folder / "site" / "state"
        number = len(open_site(state).ledger.read())
        entries = [json.loads(line) for line in (state / "audit.jsonl").read_text().splitlines()]
        first = entries[0]["run"]
        entries = [entry for entry in entries if entry["run"] == first]
        given = [entry.get("left", {}).get("samples", 0) for entry in entries]
        assert (number > 10) == (sum(given) > 10) == (name != "clinic-c")
        assert max(given) <= number
        assert not [entry for entry in entries if "refused" in entry]
        assert sum(entry.get("left", {}).get("models", 0) for entry in entries) == 2


def test_a_private_run_in_sums_says_what_left_each_site(world: World) -> None:
    assert [event["round"] for event in events(world.private_run)] == [0, 1]
    found = lines(world.private_run)
    assert not [line for line in found if "set_aside" in line or "no_sum" in line]
    left = json.loads((world.private_run / "left.json").read_text())
    assert left.keys() == {"0", "1", "2"}
    for name in MACHINES[:3]:
        policy = load_policy(world.machines[name].folder / "site" / "policy.toml")
        assert len(policy.secure_aggregation.peers) == 2
    for counts in left.values():
        assert (counts["models"], counts["masked_models"], counts["unmasked_sums"]) == (1, 1, 1)
        assert "samples" not in counts
        assert 0 < counts["epsilon"]["train"] <= 8
        assert 0 < counts["epsilon"]["test"] <= 8
    page = (world.private_run / "report.html").read_text()
    assert '"masked_models":1' in page.replace(" ", "")


@pytest.mark.parametrize("name", MACHINES[:3])
def test_a_site_says_what_left_it_in_all_runs(name: str, world: World) -> None:
    said = world.audits[name].splitlines()
    assert said[0].endswith("of 2 runs, 0 refused")
    assert {"3 models in the clear", "1 masked model", "1 sum unmasked"} <= set(said)
    samples = next(int(line.split()[0]) for line in said if line.endswith("different samples"))
    assert (samples > 10) == (name != "clinic-c"), "the first run's"
    state = world.machines[name].folder / "site" / "state"
    spent = Budget(SitePrivacy(epsilon=8.0), open_site(state).spent).spent()
    told = ", ".join(f"{part} {epsilon:.2f}" for part, epsilon in sorted(spent.items()))
    assert said[-2:] == [
        f"epsilon spent of 8: {told}",
        "models outside a sum: 1 of at most 1",
    ]


def test_no_sample_lies_in_flowers_database(world: World) -> None:
    """Nor a model; samples did leave, and passed through it."""
    folder = world.machines["server"].folder / "clinics" / ".flwr"
    database = b"".join(path.read_bytes() for path in folder.glob("state.db*"))
    assert len(database) > 100_000
    data = example_data(load_config(SMALL).data, SEED, 0)
    images = [image.tobytes() for image in data.train.x]
    assert not [image for image in images if image[200:600] in database]
    for name in (b"fingerprint", b"outcomes", b"given_x", b"worked"):
        assert name not in database, "headers cannot be read either"


def test_what_the_processes_write_is_private(world: World) -> None:
    app = world.machines["server"].folder / "clinics"
    for path in [app / ".flwr" / "state.db", world.run, *world.run.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    for path in (world.machines["clinic-a"].folder / "site").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


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
