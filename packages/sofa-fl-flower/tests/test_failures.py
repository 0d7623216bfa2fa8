"""What happens when Flower's real processes die, hang or answer wrongly."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import pytest
import yaml
from flwr.app import Message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.task_identity import TaskIdentity
from machines import Machine, free_port, wait_until

from cases import events, lines
from federation import command, reply_to, tree_of
from hostile import Hostile
from sofa_fl_flower.machine.site import create_site

TIMEOUT = 12.0  # longer than any answer takes on a busy machine
CONFIG = {
    "method": "fedavg",
    "rounds": 500,
    "warmup": 1,
    "data": {"num_clients": 3, "num_train": 300, "num_test": 90, "partition": "iid"},
    "model": {"name": "mlp", "hidden": 8},
    "local": {"batches": 1, "batch_size": 20},
    "sharing": {"ratio": 0},
}
# A ClientApp that hangs or answers wrongly as long as a file lies beside its state.
CLIENT_APP = """
import time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from clinics.data import load_data
from sofa_fl_flower.flower.client_app import client_app

inner = client_app(load_data)
app = ClientApp()

def answer(message, context):
    here = Path(context.node_config["state"])
    if (here / "hang").exists():
        (here / "hanging").touch()
        while (here / "hang").exists():
            time.sleep(0.1)
    if (here / "babble").exists() and message.metadata.message_type == "train":
        nonsense = ConfigRecord({"json": "[1, 2", "data": b"x"})
        return Message(RecordDict({"sofa": nonsense}), reply_to=message)
    return inner(message, context)

for kind in (app.train, app.evaluate, app.query):
    kind()(answer)
"""


class Clinics:
    """A server and three SuperNodes, and what can be done to them."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder)
        self.port = free_port()
        self.ports = [free_port() for _ in range(3)]
        self.app = folder / "clinics"
        self.machine.run("sofa-fl deploy new clinics")
        (self.app / "clinics" / "sofa.yaml").write_text(yaml.safe_dump(CONFIG))
        (self.app / "clinics" / "client_app.py").write_text(CLIENT_APP)
        address = f"127.0.0.1:{self.port}"
        self.here(f"python keys.py --server {address} --link {address} --nodes 4")
        self.link = self.start_link()
        for i in range(3):
            self.here(f"flwr supernode register keys/node-{i}.pub deployed")
            self.state(i).mkdir(parents=True)
            policy = create_site(folder / f"site-{i}", self.app) / "policy.toml"
            text = policy.read_text().replace('name = "cnn"', 'name = "mlp"\nhidden = 8')
            policy.write_text(text.replace("min_rows = 20", "min_rows = 5"))
        self.here("flwr supernode register keys/node-3.pub deployed")
        self.nodes = [self.start_node(i) for i in range(3)]

    def here(self, command: str) -> str:
        return self.machine.run(f"cd clinics\n. ./env.sh\n{command}")

    def start_link(self) -> Popen[bytes]:
        log = self.machine.folder / "link.log"
        log.unlink(missing_ok=True)
        link = self.machine.start(
            f"cd clinics\n. ./env.sh\nexec sofa-fl deploy link --port {self.port}", log.name
        )
        wait_until(lambda: "Uvicorn running" in self.machine.log(log.name), "the SuperLink")
        return link

    def state(self, i: int) -> Path:
        return self.machine.folder / "state" / str(i)

    def start_node(self, i: int) -> Popen[bytes]:
        return self.machine.start(
            f"sofa-fl deploy node --policy site-{i}/policy.toml "
            f"--superlink 127.0.0.1:{self.port} --port {self.ports[i]} "
            f"--root-certificates clinics/keys/ca.crt "
            f"--auth-supernode-private-key clinics/keys/node-{i} "
            f"--node-config 'client={i} state=\"{self.state(i)}\"'",
            f"node-{i}.log",
        )

    def start_run(self) -> None:
        self.here(f"flwr run . deployed --run-config 'timeout={TIMEOUT} leave=0'")

    @property
    def run(self) -> Path:
        return self.app / "runs" / "first"

    def rounds(self) -> list[dict[str, Any]]:
        return events(self.run) if (self.run / "events.jsonl").exists() else []

    def wait_for(self, is_so: Callable[[dict[str, Any]], bool], what: str, since: int = 0) -> int:
        """Wait for a round of this kind; the number of the last round then."""
        try:
            wait_until(lambda: any(is_so(e) for e in self.rounds()[since:]), what, 120)
        except AssertionError as error:
            names = ["link.log", *(f"node-{i}.log" for i in range(3))]
            tails = [f"== {name}\n{self.machine.log(name)[-4000:]}" for name in names]
            raise AssertionError("\n".join([str(error), *tails])) from None
        return len(self.rounds()) - 1

    def name(self, i: int) -> str:
        """Flower's id of a SuperNode."""
        found = re.search(r"SuperNode ID: (\d+)", self.machine.log(f"node-{i}.log"))
        assert found is not None
        return found[1]


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinics]:
    found = Clinics(tmp_path_factory.mktemp("clinics"))
    try:
        found.start_run()
        found.wait_for(lambda event: event["round"] >= 1, "the first round")
        yield found
    finally:
        found.machine.close()


def without(client: int) -> Callable[[dict[str, Any]], bool]:
    return lambda event: client in event.get("absent", [])


def complete(event: dict[str, Any]) -> bool:
    return "absent" not in event


def test_a_hostile_machine_costs_the_others_nothing(clinics: Clinics) -> None:
    """Formerly the run stood still for a time-out with each message that it announced."""
    folder = clinics.app / "keys"
    hostile = Hostile(f"127.0.0.1:{clinics.port}", folder / "ca.crt", folder / "node-3")
    try:
        hello = hostile.receive()
        run, victim = hello.metadata.run_id, int(clinics.name(0))
        for forged in (command(run, victim), command(run, SUPERLINK_NODE_ID)):
            with pytest.raises(httpx.HTTPStatusError, match="400"):
                hostile.announce(forged, get_object_tree(forged))
        answer = as_reply(hello)
        many = tree_of(answer.metadata.message_id, range(300))
        with pytest.raises(httpx.HTTPStatusError, match="400"):
            hostile.announce(answer, many)
        began, rounds = time.monotonic(), len(clinics.rounds())
        hostile.announce(answer, get_object_tree(answer))  # and never sends it
        wait_until(lambda: len(clinics.rounds()) >= rounds + 2, "two more rounds")
        assert time.monotonic() - began < TIMEOUT
    finally:
        hostile.client.close()
    assert "not send its own" in clinics.machine.log("link.log")
    assert "must be encrypted" not in clinics.machine.log("node-0.log"), "nothing got that far"


def as_reply(asked: Message) -> Message:
    with pytest.MonkeyPatch.context() as patch:  # what Flower sets in a ClientApp's process
        for name, value in (("_run_id", asked.metadata.run_id), ("_node_id", 1), ("_task_id", 1)):
            patch.setattr(TaskIdentity, name, value)
        return reply_to(asked)


def test_a_round_ends_without_a_machine_killed_in_it(clinics: Clinics) -> None:
    (clinics.state(1) / "hang").touch()
    wait_until((clinics.state(1) / "hanging").exists, "a message that machine 1 works on")
    clinics.machine.kill(clinics.nodes[1])
    last = clinics.wait_for(without(1), "a round without machine 1")
    clinics.wait_for(without(1), "another one", last)
    (clinics.state(1) / "hang").unlink()
    clinics.nodes[1] = clinics.start_node(1)  # for a minute the server refuses it


def test_a_machine_that_never_answers_costs_one_time_out(clinics: Clinics) -> None:
    begin = len(clinics.rounds())
    os.killpg(clinics.nodes[0].pid, signal.SIGSTOP)
    try:
        last = clinics.wait_for(without(0), "a round without machine 0", begin)
        clinics.wait_for(without(0), "another one", last + 1)
    finally:
        os.killpg(clinics.nodes[0].pid, signal.SIGCONT)
    waited = [
        line["failed"] for line in lines(clinics.run) if clinics.name(0) in line.get("failed", ())
    ]
    assert len(waited) == 1


def test_a_machine_that_answers_wrongly_is_set_aside(clinics: Clinics) -> None:
    begin = len(clinics.rounds())
    (clinics.state(2) / "babble").touch()
    clinics.wait_for(without(2), "a round without machine 2", begin)
    (clinics.state(2) / "babble").unlink()
    said = [line["why"] for line in lines(clinics.run) if line.get("client") == 2]
    assert said
    assert "cannot be read" in said[0]


def test_a_killed_server_goes_on_from_the_last_round(clinics: Clinics) -> None:
    clinics.machine.kill(clinics.link)  # and with it the ServerApp
    before = clinics.rounds()
    clinics.link = clinics.start_link()
    clinics.start_run()
    clinics.wait_for(lambda event: event["round"] > before[-1]["round"] + 1, "a later round")
    assert [event["round"] for event in clinics.rounds()] == list(range(len(clinics.rounds())))
    done = len(before) - 2  # the last ones may have run again
    assert clinics.rounds()[:done] == before[:done]


def test_all_come_back_as_the_clients_they_were(clinics: Clinics) -> None:
    """Last, since it must wait for that minute."""
    clinics.wait_for(complete, "a round with all", len(clinics.rounds()))
    assert all(event["clients"] == [0, 1, 2] for event in clinics.rounds())
