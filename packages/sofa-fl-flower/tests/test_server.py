"""A whole run between a server and machines, without Flower: the same rounds, whoever fails."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from cases import (
    MNIST,
    NUM_CLIENTS,
    OPEN,
    FakeMachine,
    FakeMessenger,
    Spoil,
    events,
    lines,
    machines_of,
    tiny,
)
from sofa_fl.api.runs import run
from sofa_fl.errors import ConfigError, RunError
from sofa_fl.experiment.run.config import Config, load_config
from sofa_fl.experiment.run.loop import Own, RunResult
from sofa_fl.experiment.serving.newcomers import assign
from sofa_fl.methods.registry import built_in_methods
from sofa_fl.models.networks import network_factory
from sofa_fl_flower.server import roster
from sofa_fl_flower.server.deployed_experiment import DeployedExperiment
from sofa_fl_flower.server.exchange import Answer
from sofa_fl_flower.server.roster_file import load_members
from sofa_fl_flower.server.server import Server, ServerConfig
from sofa_fl_flower.transport.wire_message import UNREADABLE, VERSION, WireMessage

METHODS = [name for name in built_in_methods() if name != "oracle"]  # it must know true groups
# How long it took; what only somebody knows who has all data, or their class mix.
UNLIKE = {"seconds", "groups", "training"}


MODEL_SIZE = 784 * 16 + 16 + 16 * 10 + 10


def quiet(_line: str) -> None:
    """Print nothing."""


def four(out: Path) -> ServerConfig:
    return ServerConfig(run=out, expected=MNIST, clients=NUM_CLIENTS, most=NUM_CLIENTS, timeout=0.4)


def serve(config: Config, out: Path, machines: dict[int, FakeMachine], **options: Any) -> RunResult:
    server_config = replace(four(out), **options)
    return Server(FakeMessenger(machines), config, server_config, quiet).run()


def alike(here: Path, there: Path) -> None:
    """The rounds of two runs are the same, to the bit."""
    for ours, theirs in zip(events(here), events(there), strict=True):
        for key in ours.keys() - UNLIKE:
            assert ours[key] == theirs[key], key


def reference(config: Config, out: Path) -> None:
    run(replace(config, out=str(out)))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_does_what_it_does_on_one_machine(method: str, tmp_path: Path) -> None:
    optimizer = {"optimizer": "sgd"} if method == "scaffold" else {}  # it takes no other
    config = tiny(method=method, local={"batches": 3, "batch_size": 20, **optimizer})
    reference(config, tmp_path / "one")
    serve(config, tmp_path / "many", machines_of(config))
    alike(tmp_path / "one", tmp_path / "many")


def test_own_metrics_need_samples_which_a_server_has_not(tmp_path: Path) -> None:
    own, engine = Own(metrics={"one": lambda _outputs, _targets: 1.0}), cast(Any, None)
    with pytest.raises(
        ConfigError, match="not available in a deployment, because samples stay on the"
    ):
        DeployedExperiment(tiny(out=str(tmp_path)), own, engine, dict)


def test_a_server_keeps_no_inputs_so_newcomers_need_labels(tmp_path: Path) -> None:
    config = tiny(rounds=1)
    machines = machines_of(config)
    serve(config, tmp_path / "run", machines)
    train = next(iter(machines.values())).data.train
    x, y = train.x[:30], train.y[:30]
    network = network_factory(config.model, x.shape[1:], 10)
    with pytest.raises(
        RunError, match="stored no mean inputs of its clients, because it is a deploy"
    ):
        assign(tmp_path / "run", x, network=network)
    assert assign(tmp_path / "run", x, y, network=network).clients


def test_a_deployment_records_that_its_data_are_the_machines(tmp_path: Path) -> None:
    config = tiny(rounds=1)
    serve(config, tmp_path / "run", machines_of(config))
    recorded = load_config(tmp_path / "run" / "config.yaml")
    assert recorded.title == "SOFA-FL"
    assert recorded.data.name == recorded.data.partition == "own"
    assert recorded.data.num_clients == NUM_CLIENTS
    assert recorded.own == ("data", "engine")
    assert recorded.model == config.model, "the configuration made the network"


@pytest.mark.parametrize(
    "settings",
    [
        {"sofa": {"propagation": "cascade"}},
        {"sofa": {"eta": 0.5}},
        {"local": {"batches": 3, "batch_size": 20, "prior": False}},
        {"sharing": {"ratio": 0.2, "mode": "fixed", "max_disclosure": {"1": 0.1}}},
        {"data": {"num_clients": NUM_CLIENTS, "num_train": 400, "num_test": 99, "holdout": 0}},
    ],
)
def test_settings_mean_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    config = tiny(**settings)
    reference(config, tmp_path / "one")
    serve(config, tmp_path / "many", machines_of(config))
    alike(tmp_path / "one", tmp_path / "many")


def test_what_a_machine_has_does_not_travel_again(tmp_path: Path) -> None:
    """Its own model, where it starts and what it serves: made of what it trained and was sent."""
    config = tiny()
    reference(config, tmp_path / "one")
    machines = machines_of(config)
    serve(config, tmp_path / "forgets", machines_of(config))
    for machine in machines.values():
        machine.is_resident = True
    serve(config, tmp_path / "keeps", machines)
    alike(tmp_path / "one", tmp_path / "keeps")
    sent = [
        [line["bytes_down"] for line in lines(tmp_path / name) if "round" in line][-1]
        for name in ("forgets", "keeps")
    ]
    assert sent[0] - sent[1] == 7 * NUM_CLIENTS * 4 * MODEL_SIZE


def test_a_machine_that_has_forgotten_its_models_is_not_scored_once(tmp_path: Path) -> None:
    config = tiny(rounds=4)
    machines = machines_of(config)
    for machine in machines.values():
        machine.is_resident = True
    is_now = in_training(2)

    def forget(asked: WireMessage, answer: WireMessage) -> WireMessage:
        if is_now(asked):
            machines[99].forget()
        return answer

    machines[99].spoil = forget
    serve(config, tmp_path, machines)
    said = [line["why"] for line in lines(tmp_path) if "set_aside" in line]
    assert len(said) == 1
    assert "must contain the array" in said[0]
    scored = [event["accuracies"][1] is not None for event in events(tmp_path)]
    assert scored == [True, True, False, True, True]


def test_a_task_pulled_to_where_it_starts_carries_one_model(tmp_path: Path) -> None:
    config = tiny(method="fedprox", sharing={"ratio": 0})
    messenger = FakeMessenger(machines_of(config))
    Server(messenger, config, four(tmp_path), quiet).run()
    trained = [message for _, kind, message, _ in messenger.log if kind == "train"]
    assert [header["pulls"] is not None for header in trained[-1].header["tasks"]] == [True]
    assert sum(len(array) == MODEL_SIZE for array in trained[-1].arrays.values()) == 1


def test_latent_places_are_nearly_the_same(tmp_path: Path) -> None:
    """Features are averaged machine by machine, which rounds differently."""
    config = tiny(sofa={"position": "latent"})
    reference(config, tmp_path / "one")
    serve(config, tmp_path / "many", machines_of(config))
    last, other = events(tmp_path / "one")[-1], events(tmp_path / "many")[-1]
    assert last["tree"] == other["tree"]


def test_models_travel_in_half_the_bytes(tmp_path: Path) -> None:
    config = tiny(sharing={"ratio": 0})
    whole = serve(config, tmp_path / "whole", machines_of(config))
    half = serve(config, tmp_path / "half", machines_of(config), transport="float16")
    sent, less = (
        sum(line["bytes_down"] for line in lines(tmp_path / name) if "round" in line)
        for name in ("whole", "half")
    )
    assert less / sent == 0.5
    means = [result.summary["client"]["mean"] for result in (whole, half)]
    assert means[0] == pytest.approx(means[1], abs=0.05)


def failing(when: Callable[[WireMessage], bool], what: Any) -> Spoil:
    return lambda asked, answer: what if when(asked) else answer


def in_training(number: int) -> Callable[[WireMessage], bool]:
    """True for one training message, the warm-up being number 0."""
    seen = [0]

    def now(asked: WireMessage) -> bool:
        seen[0] += bool(asked.header.get("tasks"))
        return bool(asked.header.get("tasks")) and seen[0] == number + 1

    return now


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "ClientAppRaisedException",
        WireMessage({UNREADABLE: "a message cannot be read"}),
        WireMessage({"version": VERSION, "outcomes": [], "worked": 0.0}),
        WireMessage({"version": VERSION, "outcomes": [{"params": "x", "losses": "y"}]}),
        WireMessage(
            {"version": VERSION, "outcomes": [{"params": "x", "losses": "y"}]},
            {"x": np.zeros(3, np.float32), "y": np.zeros(3, np.float32)},
        ),
    ],
    ids=["silence", "error", "unreadable", "nothing", "no arrays", "a small model"],
)
def test_a_machine_that_fails_once_misses_a_round(answer: Answer | None, tmp_path: Path) -> None:
    config = tiny(rounds=3)
    machines = machines_of(config)
    machines[99].spoil = failing(in_training(2), answer)
    serve(config, tmp_path, machines)
    assert [event.get("absent", []) for event in events(tmp_path)] == [[], [], [1], []]
    assert [event["clients"] for event in events(tmp_path)] == [[0, 1, 2, 3]] * 4


def test_a_machine_that_never_answers_costs_one_time_out(tmp_path: Path) -> None:
    config = tiny(rounds=3)
    machines = machines_of(config)
    is_silent = iter([False])  # it answers the first hello, and nothing else
    machines[99].spoil = failing(lambda _asked: next(is_silent, True), None)
    serve(config, tmp_path, machines)
    assert [event["absent"] for event in events(tmp_path)] == [[1]] * 4
    waited = [line for line in lines(tmp_path) if line.get("failed")]
    assert [line["failed"] for line in waited] == [{"99": "no answer within 0.4 s"}]


def test_a_machine_that_hangs_at_work_is_asked_ever_less(tmp_path: Path) -> None:
    """It says hello whenever it is asked to, and never anything else."""
    config = tiny(rounds=9, model={"name": "mlp", "hidden": 4})
    machines = machines_of(config)
    machines[99].spoil = failing(lambda asked: "tasks" in asked.header, None)
    serve(config, tmp_path, machines, timeout=0.2)
    assert [event["absent"] for event in events(tmp_path)] == [[1]] * 10
    waited = [bool(line["failed"]) for line in lines(tmp_path) if line.get("exchange") == "train"]
    assert [round for round, failed in enumerate(waited) if failed] == [0, 1, 4]


def test_a_machine_that_works_again_is_asked_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "FORGIVE_AFTER", 1)
    config = tiny(rounds=7, model={"name": "mlp", "hidden": 4})
    machines = machines_of(config)
    is_bad = [in_training(number) for number in (1, 2, 4)]  # of the trainings that it is asked for
    machines[99].spoil = failing(lambda asked: True in [bad(asked) for bad in is_bad], "error")
    serve(config, tmp_path, machines)
    absent = [round for round, e in enumerate(events(tmp_path)) if e.get("absent")]
    assert absent == [1, 2, 3, 4, 6]


def test_a_machine_that_works_and_hangs_in_turn_is_asked_ever_less(tmp_path: Path) -> None:
    """Formerly it cost a time-out every other round, for ever."""
    config = tiny(rounds=9, model={"name": "mlp", "hidden": 4})
    machines = machines_of(config)
    turn = itertools.count()
    machines[99].spoil = failing(lambda a: "tasks" in a.header and next(turn) % 2 == 1, "error")
    serve(config, tmp_path, machines)
    absent = [round for round, e in enumerate(events(tmp_path)) if e.get("absent")]
    assert absent == [1, 3, 4, 5, 7, 8, 9]


def test_who_answers_wrongly_is_in_the_end_not_asked(tmp_path: Path) -> None:
    config = tiny(rounds=5)
    machines = machines_of(config)
    messenger = FakeMessenger(machines)
    machines[99].spoil = failing(lambda asked: "tasks" in asked.header, WireMessage({"version": 9}))
    Server(messenger, config, four(tmp_path), quiet).run()
    assert (
        sum("tasks" in asked.header for machine, _, asked, _ in messenger.log if machine == 99) == 3
    )
    assert [event["absent"] for event in events(tmp_path)] == [[1]] * 6


def test_a_client_whose_cap_is_zero_sends_no_sample(tmp_path: Path) -> None:
    """Told by what it sent, though it is asked for samples all the time."""
    config = tiny(rounds=3)
    machines = machines_of(config)
    machines[99].policy = replace(OPEN, max_disclosure=0.0)
    messenger = FakeMessenger(machines)
    server = Server(messenger, config, four(tmp_path), quiet)
    machines[99].spoil = lambda asked, answer: (  # says that it would give all
        replace(answer, header={**answer.header, "cap": 1.0}) if "cap" in answer.header else answer
    )
    server.run()
    sent: dict[int, bytes] = dict.fromkeys(machines, b"")
    asked_for: dict[int, int] = dict.fromkeys(machines, 0)
    for machine, _, asked, answer in messenger.log:
        assert isinstance(answer, WireMessage)
        sent[machine] += b"".join(array.tobytes() for array in answer.arrays.values())
        asked_for[machine] += len(asked.arrays.get("give", ()))
    images = {
        machine: [image.tobytes() for image in own.data.train.x]
        for machine, own in machines.items()
    }
    found = {
        machine: sum(image in sent[machine] for image in images[machine]) for machine in machines
    }
    assert min(asked_for.values()) > 10
    assert found.pop(99) == 0
    assert min(found.values()) > 10, "the others do share, and it can be seen"


def test_who_was_refused_samples_trains_on_the_rest(tmp_path: Path) -> None:
    config = tiny(rounds=2)
    machines = machines_of(config)
    for machine in machines.values():
        machine.spoil = lambda asked, answer: replace(
            answer,
            arrays={
                name: array[:0] if name.startswith("gave") else array
                for name, array in answer.arrays.items()
            },
        )
    serve(config, tmp_path / "refused", machines)
    alone = tiny(rounds=2, sharing={"ratio": 0})
    serve(alone, tmp_path / "alone", machines_of(alone))
    for ours, theirs in zip(events(tmp_path / "refused"), events(tmp_path / "alone"), strict=True):
        assert ours["accuracies"] == theirs["accuracies"]


def test_a_machine_that_comes_later_joins_the_tree(tmp_path: Path) -> None:
    config = tiny(rounds=3)
    machines = machines_of(config)
    late = {97: machines.pop(97)}
    messenger = FakeMessenger(machines)

    def arrive(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            messenger.at |= late

    server_config = replace(four(tmp_path), clients=3, most=4)
    Server(messenger, config, server_config, quiet).run(observers=[arrive])
    assert [event["clients"] for event in events(tmp_path)] == [[0, 1, 2]] * 2 + [[0, 1, 2, 3]] * 2
    assert [edit["edit"] for edit in events(tmp_path)[2]["edits"]] == ["join"]
    assert events(tmp_path)[3]["disclosed"][3] > 0


def test_who_is_long_gone_leaves_and_joins_when_it_is_back(tmp_path: Path) -> None:
    config = tiny(rounds=8)
    machines = machines_of(config)
    messenger, gone = FakeMessenger(machines), {99: machines[99]}

    def go_and_come(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            del messenger.at[99]
        if event["event"] == "round" and event["round"] == 5:
            messenger.at |= gone

    server_config = replace(four(tmp_path), leave=2)
    Server(messenger, config, server_config, quiet).run(observers=[go_and_come])
    found = events(tmp_path)
    assert [1 in event["clients"] for event in found] == [True] * 5 + [False] + [True] * 3
    assert [event.get("absent", []) for event in found] == [[], [], [1], [1], [1], [], [], [], []]
    edits = [[edit["edit"] for edit in event["edits"]] for event in found]
    assert "leave" in edits[5]
    assert "join" in edits[6]
    members = load_members(tmp_path / "nodes.json")
    assert [member.absences for member in members.values()] == [(), ((5, 6),), (), ()]


def test_a_restarted_server_knows_who_has_left(tmp_path: Path) -> None:
    config = tiny(rounds=6)
    machines = machines_of(config)
    messenger = FakeMessenger(machines)

    def go(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            del messenger.at[99]

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 4:
            raise KeyboardInterrupt

    server_config = replace(four(tmp_path), leave=1)
    with pytest.raises(KeyboardInterrupt):
        Server(messenger, config, server_config, quiet).run(observers=[go, stop])
    assert [1 in event["clients"] for event in events(tmp_path)] == [True] * 4 + [False]
    began = time.monotonic()
    Server(messenger, config, replace(server_config, timeout=60), quiet).run()
    assert time.monotonic() - began < 50, "nobody waits for who has left"
    assert [1 in event["clients"] for event in events(tmp_path)] == [True] * 4 + [False] * 3


class KilledError(Exception):
    """Stands for the end of the process."""


def killing(when: Callable[[WireMessage], bool]) -> Spoil:
    def spoil(asked: WireMessage, answer: WireMessage) -> WireMessage:
        if when(asked):
            raise KilledError
        return answer

    return spoil


def test_a_restarted_server_goes_on_where_it_was(tmp_path: Path) -> None:
    """Also if the machines have other names then: who they are, their samples tell."""
    config = tiny(rounds=4)
    reference(config, tmp_path / "one")

    machines, server_config = (
        machines_of(config),
        four(tmp_path / "many"),
    )
    machines[99].spoil = killing(in_training(3))
    with pytest.raises(KilledError):
        Server(FakeMessenger(machines), config, server_config, quiet).run()
    renamed = {500 + machine: own for machine, own in machines.items()}
    Server(FakeMessenger(renamed), config, server_config, quiet).run()
    alike(tmp_path / "one", tmp_path / "many")
    with pytest.raises(RunError, match="has ended"):
        Server(FakeMessenger(renamed), config, server_config, quiet)


def test_a_restarted_server_does_not_wait_forever_for_all(tmp_path: Path) -> None:
    config = tiny(rounds=2)

    machines, server_config = (
        machines_of(config),
        four(tmp_path),
    )
    machines[99].spoil = killing(in_training(2))
    with pytest.raises(KilledError):
        Server(FakeMessenger(machines), config, server_config, quiet).run()
    del machines[100]
    Server(FakeMessenger(machines), config, server_config, quiet).run()
    assert events(tmp_path)[-1]["absent"] == [0]


def test_machines_that_do_not_fit_are_turned_away(tmp_path: Path) -> None:
    config = tiny(rounds=1)
    machines = machines_of(config)
    other = machines_of(tiny(seed=1))[100].data
    machines[7] = FakeMachine(replace(other, train=replace(other.train, scale=7.0), ids=None))
    serve(config, tmp_path, machines)
    assert events(tmp_path)[-1]["clients"] == [0, 1, 2, 3]
    assert {line["set_aside"] for line in lines(tmp_path) if "set_aside" in line} == {"7"}


def test_a_run_waits_when_nobody_is_left(tmp_path: Path) -> None:
    config = tiny(rounds=2)
    machines = machines_of(config)
    for machine in machines.values():
        machine.spoil = failing(in_training(1), None)
    serve(config, tmp_path, machines)
    assert [event.get("absent", []) for event in events(tmp_path)] == [[], [0, 1, 2, 3], []]
