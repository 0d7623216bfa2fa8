"""One machine against a whole run: the others go on, and the machine is set aside."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import (
    NUM_CLIENTS,
    FakeMachine,
    FakeMessenger,
    events,
    lines,
    machines_of,
    tiny,
)
from sofa_fl.errors import RunError
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.machine.machine_data import MachineData
from sofa_fl_flower.server.roster_file import load_members
from sofa_fl_flower.server.server import Server
from sofa_fl_flower.transport.message_checks import MessageError
from sofa_fl_flower.transport.wire_message import MessageBuilder, WireMessage
from test_client_machine import machine
from test_server import four, quiet, serve


def changed(answer: WireMessage, **header: Any) -> WireMessage:
    return replace(answer, header={**answer.header, **header})


def told_of(folder: Path) -> set[str]:
    return {line["set_aside"] for line in lines(folder) if "set_aside" in line}


@pytest.mark.parametrize(
    "score",
    [[0.1, 0.9, math.inf], [0.1, 0.9, 10**400], [-1.0, 0.9, 5], [0.1, 7.0, 5], [0.1, 0.9, 10**9]],
    ids=str,
)
def test_a_score_that_cannot_be(score: list[float], tmp_path: Path) -> None:
    config = tiny(rounds=2)
    machines = machines_of(config)
    machines[99].spoil = lambda asked, answer: (
        changed(answer, scores=[score] * len(asked.header["exams"]))
        if asked.header.get("exams")
        else answer
    )
    serve(config, tmp_path, machines)
    assert len(events(tmp_path)) == 3
    assert told_of(tmp_path) == {"99"}


@pytest.mark.parametrize(
    "header",
    [
        {"num_classes": 1 << 40}, {"num_train": 1 << 50}, {"input": ["uint8", 1 << 62]},
        {"num_test": 1 << 62}, {"num_test": 1_000_001}, {"scale": math.nan},
        {"number": 1 << 40}, {"cap": math.inf}, {"name": 3},
        {"name": "client 0"}, {"name": "a" * 65},
    ],
    ids=str,
)  # fmt: skip
def test_a_hello_that_cannot_be(header: dict[str, Any], tmp_path: Path) -> None:
    config = tiny(rounds=1)
    machines = machines_of(config)
    machines[99].spoil = lambda asked, answer: (
        changed(answer, **header) if asked.header.get("ask") == "hello" else answer
    )
    serve(config, tmp_path, machines, clients=3)
    assert events(tmp_path)[-1]["clients"] == [0, 1, 2]
    assert told_of(tmp_path) == {"99"}


@pytest.mark.parametrize("first", [1 << 40, 999_990])
def test_huge_ids(first: int, tmp_path: Path) -> None:
    config = tiny(rounds=1)
    machines = machines_of(config)
    ids = np.arange(len(machines[99].data.train)) + first
    machines[99].data = replace(machines[99].data, ids=ids)
    serve(config, tmp_path, machines, clients=3)
    assert told_of(tmp_path) == {"99"}


def test_whoever_is_first_does_not_say_what_samples_are(tmp_path: Path) -> None:
    """Machine 1 says hello first; formerly all others had to be like it."""
    config = tiny(rounds=1)
    machines = machines_of(config)
    data = machines[99].data
    narrow = replace(data.train, x=data.train.x[..., :5])
    first = {1: FakeMachine(MachineData(narrow, holdout=None), policy=machines[99].policy)}
    serve(config, tmp_path, {**first, **machines})
    assert events(tmp_path)[-1]["clients"] == list(range(NUM_CLIENTS))
    assert told_of(tmp_path) == {"1"}


def test_who_knows_a_clients_samples_is_not_that_client(tmp_path: Path) -> None:
    """It has the same samples, number and hash, but another key, and the client is away."""
    config = tiny(rounds=3)
    machines = machines_of(config)
    messenger = FakeMessenger(machines)
    victim = machines[99]
    hello = victim.answer(first_hello(messenger, config, tmp_path / "probe"))
    assert isinstance(hello, WireMessage)
    thief = FakeMachine(victim.data, victim.number, victim.policy)
    thief.spoil = lambda asked, answer: (
        changed(answer, fingerprint=hello.header["fingerprint"])
        if "fingerprint" in answer.header
        else answer
    )

    def swap(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            del messenger.at[99]
            messenger.at[7] = thief

    Server(messenger, config, four(tmp_path / "run"), quiet).run(observers=[swap])
    assert [event.get("absent", []) for event in events(tmp_path / "run")] == [[], [], [1], [1]]
    assert load_members(tmp_path / "run" / "nodes.json")[NodeId(1)].machine == 99


def test_a_machine_is_the_same_site_in_every_run(tmp_path: Path) -> None:
    """Formerly whoever answered a machine's hello first was its site in that run."""
    config, sites = tiny(rounds=1), tmp_path / "sites.txt"
    machines = machines_of(config)
    known = replace(four(tmp_path / "first"), sites=sites)
    Server(FakeMessenger(machines), config, known, quiet).run()
    thief = replace(machines[99], site=FakeMachine(machines[99].data).site)
    others = {**machines, 99: thief}
    again = replace(known, run=tmp_path / "second", clients=3)
    Server(FakeMessenger(others), config, again, quiet).run()
    assert len(events(again.run)[-1]["clients"]) == 3
    assert told_of(again.run) == {"99"}
    assert "it must be the same site as before" in lines(again.run)[0]["why"]
    last = replace(known, run=tmp_path / "third")
    Server(FakeMessenger(machines), config, last, quiet).run()
    assert len(events(last.run)[-1]["clients"]) == NUM_CLIENTS, "it is still welcome"
    kept = [line for line in sites.read_text().splitlines() if not line.startswith("99 ")]
    sites.write_text("\n".join(kept))
    anew = replace(known, run=tmp_path / "fourth")
    Server(FakeMessenger(others), config, anew, quiet).run()
    assert len(events(anew.run)[-1]["clients"]) == NUM_CLIENTS, "if the operator says so"


def test_a_damaged_list_of_sites_is_named(tmp_path: Path) -> None:
    sites = tmp_path / "sites.txt"
    sites.write_text("nonsense\n")
    with pytest.raises(RunError, match=r"sites\.txt must have a line with two words"):
        Server(FakeMessenger({}), tiny(), replace(four(tmp_path / "run"), sites=sites), quiet)


def test_another_site_does_not_answer_for_a_machine_in_a_run(tmp_path: Path) -> None:
    """Machine 7 has been accepted, and is not a client yet."""
    config = tiny(rounds=1)
    machines = machines_of(config)
    server = Server(FakeMessenger(machines), config, four(tmp_path), quiet)
    assert server.greet().keys() == machines.keys()
    machines[99].site = FakeMachine(machines[99].data).site
    assert server.greet().keys() == machines.keys() - {99}
    server.close()
    assert told_of(tmp_path) == {"99"}


def first_hello(messenger: FakeMessenger, config: Any, folder: Path) -> WireMessage:
    """What a server asks first."""
    server = Server(messenger, config, four(folder), quiet)
    server.greet()
    server.close()
    return messenger.log[0][2]


def test_a_copied_site_does_not_take_part_twice(tmp_path: Path) -> None:
    config = tiny(rounds=1)
    machines = machines_of(config)
    twin = FakeMachine(replace(machines[99].data, ids=None), None, machines[99].policy)
    twin.site = machines[99].site
    serve(config, tmp_path, {**machines, 7: twin}, most=9)
    assert len(events(tmp_path)[-1]["clients"]) == NUM_CLIENTS


@pytest.mark.parametrize("label", [10, -1, 1 << 40])
def test_who_gives_impossible_labels_pays_for_it(label: int, tmp_path: Path) -> None:
    """Formerly its siblings failed on them, and were set aside."""
    config = tiny(rounds=3)
    machines = machines_of(config)

    def poison(_asked: WireMessage, answer: WireMessage) -> WireMessage:
        if not len(answer.arrays.get("gave_y", ())):
            return answer
        wrong = np.full_like(answer.arrays["gave_y"], label)
        return replace(answer, arrays={**answer.arrays, "gave_y": wrong})

    machines[99].spoil = poison
    serve(config, tmp_path, machines)
    assert told_of(tmp_path) == {"99"}
    assert all(set(event.get("absent", [])) <= {1} for event in events(tmp_path))


def test_a_receiver_checks_samples_itself() -> None:
    """A server could send what it likes."""
    here, builder = machine(), MessageBuilder()
    builder.add(here.data.train.x[:2], "given_x")
    builder.add(np.array([3, 77]), "given_y")
    header = {
        "start": builder.add_model(here.learner.initial(0)),
        "given": builder.add(np.arange(2, dtype=np.int32)),
        "batches": 1, "seed": 0, "pulls": None, "prior": True,
    }  # fmt: skip
    with pytest.raises(MessageError, match="labels of shared samples must be from 0 to 9"):
        here.answer(builder.message(tasks=[header]))


def test_any_error_of_one_machine_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    """Whatever reading an answer raises: here, what nobody has foreseen."""

    class Surprise(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            if name == "outcomes":
                raise ZeroDivisionError("surprise")
            return super().get(name, default)

    config = tiny(rounds=2)
    machines = machines_of(config)
    machines[99].spoil = lambda asked, answer: (
        replace(answer, header=Surprise(answer.header)) if asked.header.get("tasks") else answer
    )
    serve(config, tmp_path, machines)
    assert told_of(tmp_path) == {"99"}
    assert all(event["absent"] == [1] for event in events(tmp_path))


def test_two_servers_in_one_run_folder_are_one_too_many(tmp_path: Path) -> None:
    """Formerly both wrote every round, and both ended well."""
    config = tiny(rounds=2)
    machines = machines_of(config)
    refused = 0

    def begin_again(event: dict[str, Any]) -> None:
        nonlocal refused
        if event["event"] == "round":
            with pytest.raises(RunError, match="another process is running in"):
                Server(FakeMessenger(machines), config, four(tmp_path), quiet)
            refused += 1

    Server(FakeMessenger(machines), config, four(tmp_path), quiet).run(observers=[begin_again])
    assert refused == 3
    assert [event["round"] for event in events(tmp_path)] == [0, 1, 2]


def test_a_server_waits_for_one_that_is_about_to_end(tmp_path: Path) -> None:
    """A SuperLink that died may be back before its ServerApp has noticed."""
    config, said = tiny(rounds=2), list[str]()
    machines = machines_of(config)
    first = Server(FakeMessenger(machines), config, four(tmp_path), quiet)

    def hear(line: str) -> None:
        said.append(line)
        first.close()

    patient = replace(four(tmp_path), patience=60.0)
    Server(FakeMessenger(machines), config, patient, hear).run()
    assert "another process is running in" in said[0]
    assert said[0].endswith("waiting up to 60 s")
    assert [event["round"] for event in events(tmp_path)] == [0, 1, 2]


def test_a_server_does_not_wait_for_ever(tmp_path: Path) -> None:
    config = tiny(rounds=2)
    machines = machines_of(config)
    first = Server(FakeMessenger(machines), config, four(tmp_path), quiet)
    with pytest.raises(RunError, match="another process is running in"):
        Server(FakeMessenger(machines), config, replace(four(tmp_path), patience=0.3), quiet)
    first.close()
