"""A whole run between a server and nodes, without Flower: the same rounds, whoever fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sofa_fl.deploy.server.roster_file import load_members
from sofa_fl.deploy.server.serve import Server, Terms
from sofa_fl.deploy.transport.wire import VERSION, Parcel
from sofa_fl.errors import RunError
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.launch import run
from sofa_fl.experiment.run.loop import Result
from sofa_fl.methods.registry import built_in_methods
from tests.deploy.cases import NUM_CLIENTS, FakePost, Node, events, lines, nodes_of, tiny

METHODS = [name for name in built_in_methods() if name != "oracle"]  # it must know true groups
UNLIKE = {"seconds", "groups"}  # how long it took; what only somebody who has all data knows


def quiet(_line: str) -> None:
    """Say nothing."""


def serve(config: Config, out: Path, nodes: dict[int, Node], **terms: Any) -> Result:
    given = {"clients": NUM_CLIENTS, "most": NUM_CLIENTS, "timeout": 0.4, **terms}
    return Server(FakePost(nodes), config, Terms(run=out, **given), quiet).run()


def alike(here: Path, there: Path) -> None:
    """The rounds of two runs are the same, to the bit."""
    for ours, theirs in zip(events(here), events(there), strict=True):
        for key in ours.keys() - UNLIKE:
            assert ours[key] == theirs[key], key


def reference(config: Config, out: Path) -> None:
    run(replace(config, out=str(out)))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_does_what_it_does_on_one_machine(method: str, tmp_path: Path) -> None:
    config = tiny(method=method)
    reference(config, tmp_path / "one")
    serve(config, tmp_path / "many", nodes_of(config))
    alike(tmp_path / "one", tmp_path / "many")


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
    serve(config, tmp_path / "many", nodes_of(config))
    alike(tmp_path / "one", tmp_path / "many")


def test_what_a_node_has_does_not_travel_again(tmp_path: Path) -> None:
    """Its own model, where it starts and what it serves: made of what it trained and was sent."""
    config = tiny()
    reference(config, tmp_path / "one")
    nodes = nodes_of(config)
    serve(config, tmp_path / "forgets", nodes_of(config))
    for node in nodes.values():
        node.keeps = True
    serve(config, tmp_path / "keeps", nodes)
    alike(tmp_path / "one", tmp_path / "keeps")
    sent = [
        [line["bytes_down"] for line in lines(tmp_path / name) if "round" in line][-1]
        for name in ("forgets", "keeps")
    ]
    model = 4 * (784 * 16 + 16 + 16 * 10 + 10)
    assert sent[0] - sent[1] == 3 * NUM_CLIENTS * model


def test_a_node_that_has_forgotten_its_models_is_not_scored_once(tmp_path: Path) -> None:
    config = tiny(rounds=4)
    nodes = nodes_of(config)
    for node in nodes.values():
        node.keeps = True
    is_now = in_training(2)

    def forget(asked: Parcel, answer: Parcel) -> Parcel:
        if is_now(asked):
            nodes[99].forget()
        return answer

    nodes[99].spoil = forget
    serve(config, tmp_path, nodes)
    said = [line["why"] for line in lines(tmp_path) if "set_aside" in line]
    assert len(said) == 1
    assert "there is no array" in said[0]
    scored = [event["accuracies"][1] is not None for event in events(tmp_path)]
    assert scored == [True, True, False, True, True]


def test_latent_places_are_nearly_the_same(tmp_path: Path) -> None:
    """Features are averaged node by node, which rounds differently."""
    config = tiny(sofa={"position": "latent"})
    reference(config, tmp_path / "one")
    serve(config, tmp_path / "many", nodes_of(config))
    last, other = events(tmp_path / "one")[-1], events(tmp_path / "many")[-1]
    assert last["tree"] == other["tree"]


def test_models_travel_in_half_the_bytes(tmp_path: Path) -> None:
    config = tiny(sharing={"ratio": 0})
    whole = serve(config, tmp_path / "whole", nodes_of(config))
    half = serve(config, tmp_path / "half", nodes_of(config), transport="float16")
    sent, less = (
        sum(line["bytes_down"] for line in lines(tmp_path / name) if "round" in line)
        for name in ("whole", "half")
    )
    assert 0.5 < less / sent < 0.56
    means = [result.summary["client"]["mean"] for result in (whole, half)]
    assert means[0] == pytest.approx(means[1], abs=0.05)


def failing(when: Callable[[Parcel], bool], what: Any) -> Callable[[Parcel, Parcel], Any]:
    return lambda asked, answer: what if when(asked) else answer


def in_training(number: int) -> Callable[[Parcel], bool]:
    """True for one training message, the warm-up being number 0."""
    seen = [0]

    def now(asked: Parcel) -> bool:
        seen[0] += bool(asked.header.get("tasks"))
        return bool(asked.header.get("tasks")) and seen[0] == number + 1

    return now


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "ClientAppRaisedException",
        Parcel({"garbage": "it cannot be read"}),
        Parcel({"version": VERSION, "outcomes": [], "worked": 0.0}),
        Parcel({"version": VERSION, "outcomes": [{"params": "x", "losses": "y"}]}),
        Parcel(
            {"version": VERSION, "outcomes": [{"params": "x", "losses": "y"}]},
            {"x": np.zeros(3, np.float32), "y": np.zeros(3, np.float32)},
        ),
    ],
    ids=["silence", "error", "garbage", "nothing", "no arrays", "a small model"],
)
def test_a_node_that_fails_once_misses_a_round(answer: Parcel | str | None, tmp_path: Path) -> None:
    config = tiny(rounds=3)
    nodes = nodes_of(config)
    nodes[99].spoil = failing(in_training(2), answer)
    serve(config, tmp_path, nodes)
    assert [event.get("absent", []) for event in events(tmp_path)] == [[], [], [1], []]
    assert [event["clients"] for event in events(tmp_path)] == [[0, 1, 2, 3]] * 4


def test_a_node_that_never_answers_costs_one_time_out(tmp_path: Path) -> None:
    config = tiny(rounds=3)
    nodes = nodes_of(config)
    nodes[99].spoil = failing(
        lambda asked: bool(asked.header.get("setup", {})["num_outputs"]), None
    )
    serve(config, tmp_path, nodes)
    assert [event["absent"] for event in events(tmp_path)] == [[1]] * 4
    waited = [line for line in lines(tmp_path) if line.get("failed")]
    assert [line["failed"] for line in waited] == [{"99": "no answer within 0.4 s"}]


def test_a_node_that_hangs_at_work_is_asked_ever_less(tmp_path: Path) -> None:
    """It says hello whenever it is asked to, and never anything else."""
    config = tiny(rounds=9, model={"name": "mlp", "hidden": 4})
    nodes = nodes_of(config)
    nodes[99].spoil = failing(lambda asked: "tasks" in asked.header, None)
    serve(config, tmp_path, nodes, timeout=0.2)
    assert [event["absent"] for event in events(tmp_path)] == [[1]] * 10
    waited = [bool(line["failed"]) for line in lines(tmp_path) if line.get("exchange") == "train"]
    assert [round for round, failed in enumerate(waited) if failed] == [0, 1, 4]


def test_a_node_that_works_again_is_asked_as_before(tmp_path: Path) -> None:
    config = tiny(rounds=7, model={"name": "mlp", "hidden": 4})
    nodes = nodes_of(config)
    is_bad = [in_training(number) for number in (1, 2, 4)]  # of the trainings that it is asked for
    nodes[99].spoil = failing(lambda asked: True in [bad(asked) for bad in is_bad], "error")
    serve(config, tmp_path, nodes)
    absent = [round for round, e in enumerate(events(tmp_path)) if e.get("absent")]
    assert absent == [1, 2, 3, 4, 6]


def test_who_answers_garbage_is_in_the_end_not_asked(tmp_path: Path) -> None:
    config = tiny(rounds=5)
    nodes = nodes_of(config)
    post = FakePost(nodes)
    nodes[99].spoil = failing(lambda asked: "tasks" in asked.header, Parcel({"version": 9}))
    Server(post, config, Terms(run=tmp_path, clients=4, most=4, timeout=0.4), quiet).run()
    assert sum("tasks" in asked.header for node, _, asked, _ in post.log if node == 99) == 3
    assert [event["absent"] for event in events(tmp_path)] == [[1]] * 6


def test_a_client_whose_cap_is_zero_sends_no_sample(tmp_path: Path) -> None:
    """Told by what it sent, though it is asked for samples all the time."""
    config = tiny(rounds=3)
    nodes = nodes_of(config)
    nodes[99].cap = 0.0
    post = FakePost(nodes)
    server = Server(post, config, Terms(run=tmp_path, clients=4, most=4, timeout=0.4), quiet)
    nodes[99].spoil = lambda asked, answer: (  # says that it would give all
        replace(answer, header={**answer.header, "cap": 1.0}) if "cap" in answer.header else answer
    )
    server.run()
    sent: dict[int, bytes] = dict.fromkeys(nodes, b"")
    asked_for: dict[int, int] = dict.fromkeys(nodes, 0)
    for node, _, asked, answer in post.log:
        assert isinstance(answer, Parcel)
        sent[node] += b"".join(array.tobytes() for array in answer.arrays.values())
        asked_for[node] += len(asked.arrays.get("give", ()))
    images = {node: [image.tobytes() for image in own.data.train.x] for node, own in nodes.items()}
    found = {node: sum(image in sent[node] for image in images[node]) for node in nodes}
    assert min(asked_for.values()) > 10
    assert found.pop(99) == 0
    assert min(found.values()) > 10, "the others do share, and it can be seen"


def test_who_was_refused_samples_trains_on_the_rest(tmp_path: Path) -> None:
    config = tiny(rounds=2)
    nodes = nodes_of(config)
    for node in nodes.values():
        node.spoil = lambda asked, answer: replace(
            answer,
            arrays={
                name: array[:0] if name.startswith("gave") else array
                for name, array in answer.arrays.items()
            },
        )
    serve(config, tmp_path / "refused", nodes)
    alone = tiny(rounds=2, sharing={"ratio": 0})
    serve(alone, tmp_path / "alone", nodes_of(alone))
    for ours, theirs in zip(events(tmp_path / "refused"), events(tmp_path / "alone"), strict=True):
        assert ours["accuracies"] == theirs["accuracies"]


def test_a_node_that_comes_later_joins_the_tree(tmp_path: Path) -> None:
    config = tiny(rounds=3)
    nodes = nodes_of(config)
    late = {97: nodes.pop(97)}
    post = FakePost(nodes)

    def arrive(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            post.at |= late

    terms = Terms(run=tmp_path, clients=3, most=4, timeout=0.4)
    Server(post, config, terms, quiet).run(observers=[arrive])
    assert [event["clients"] for event in events(tmp_path)] == [[0, 1, 2]] * 2 + [[0, 1, 2, 3]] * 2
    assert [edit["edit"] for edit in events(tmp_path)[2]["edits"]] == ["join"]
    assert events(tmp_path)[3]["disclosed"][3] > 0


def test_who_is_long_gone_leaves_and_joins_when_it_is_back(tmp_path: Path) -> None:
    config = tiny(rounds=8)
    nodes = nodes_of(config)
    post, gone = FakePost(nodes), {99: nodes[99]}

    def go_and_come(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            del post.at[99]
        if event["event"] == "round" and event["round"] == 5:
            post.at |= gone

    terms = Terms(run=tmp_path, clients=4, most=4, timeout=0.4, leave=2)
    Server(post, config, terms, quiet).run(observers=[go_and_come])
    found = events(tmp_path)
    assert [1 in event["clients"] for event in found] == [True] * 5 + [False] + [True] * 3
    assert [event.get("absent", []) for event in found] == [[], [], [1], [1], [1], [], [], [], []]
    edits = [[edit["edit"] for edit in event["edits"]] for event in found]
    assert "leave" in edits[5]
    assert "join" in edits[6]
    members = load_members(tmp_path / "nodes.json")
    assert [member.away for member in members.values()] == [(), ((5, 6),), (), ()]


def test_a_restarted_server_knows_who_has_left(tmp_path: Path) -> None:
    config = tiny(rounds=6)
    nodes = nodes_of(config)
    post = FakePost(nodes)

    def go(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            del post.at[99]

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 4:
            raise KeyboardInterrupt

    terms = Terms(run=tmp_path, clients=4, most=4, timeout=0.4, leave=1)
    with pytest.raises(KeyboardInterrupt):
        Server(post, config, terms, quiet).run(observers=[go, stop])
    assert [1 in event["clients"] for event in events(tmp_path)] == [True] * 4 + [False]
    began = time.monotonic()
    Server(post, config, replace(terms, timeout=60), quiet).run()
    assert time.monotonic() - began < 50, "nobody waits for who has left"
    assert [1 in event["clients"] for event in events(tmp_path)] == [True] * 4 + [False] * 3


class KilledError(Exception):
    """Stands for the end of the process."""


def killing(when: Callable[[Parcel], bool]) -> Callable[[Parcel, Parcel], Parcel]:
    def spoil(asked: Parcel, answer: Parcel) -> Parcel:
        if when(asked):
            raise KilledError
        return answer

    return spoil


def test_a_restarted_server_goes_on_where_it_was(tmp_path: Path) -> None:
    """Also if the nodes have other names then: who they are, their samples tell."""
    config = tiny(rounds=4)
    reference(config, tmp_path / "one")

    nodes, terms = nodes_of(config), Terms(run=tmp_path / "many", clients=4, most=4, timeout=0.4)
    nodes[99].spoil = killing(in_training(3))
    with pytest.raises(KilledError):
        Server(FakePost(nodes), config, terms, quiet).run()
    renamed = {500 + node: own for node, own in nodes.items()}
    Server(FakePost(renamed), config, terms, quiet).run()
    alike(tmp_path / "one", tmp_path / "many")
    with pytest.raises(RunError, match="has ended"):
        Server(FakePost(renamed), config, terms, quiet)


def test_a_restarted_server_does_not_wait_forever_for_all(tmp_path: Path) -> None:
    config = tiny(rounds=2)

    nodes, terms = nodes_of(config), Terms(run=tmp_path, clients=4, most=4, timeout=0.4)
    nodes[99].spoil = killing(in_training(2))
    with pytest.raises(KilledError):
        Server(FakePost(nodes), config, terms, quiet).run()
    del nodes[100]
    Server(FakePost(nodes), config, terms, quiet).run()
    assert events(tmp_path)[-1]["absent"] == [0]


def test_nodes_that_do_not_fit_are_turned_away(tmp_path: Path) -> None:
    config = tiny(rounds=1)
    nodes = nodes_of(config)
    other = nodes_of(tiny(seed=1))[100].data
    nodes[7] = Node(replace(other, train=replace(other.train, scale=7.0), ids=None))
    serve(config, tmp_path, nodes)
    assert events(tmp_path)[-1]["clients"] == [0, 1, 2, 3]
    assert {line["set_aside"] for line in lines(tmp_path) if "set_aside" in line} == {"7"}


def test_a_run_waits_when_nobody_is_left(tmp_path: Path) -> None:
    config = tiny(rounds=2)
    nodes = nodes_of(config)
    for node in nodes.values():
        node.spoil = failing(in_training(1), None)
    serve(config, tmp_path, nodes)
    assert [event.get("absent", []) for event in events(tmp_path)] == [[], [0, 1, 2, 3], []]
