"""Runs with secure aggregation, without Flower: the same means, and no model in the clear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cases import (
    MNIST,
    FakeMachine,
    FakeMessenger,
    Spoil,
    events,
    lines,
    machines_of,
    tiny,
)
from sofa_fl.errors import ConfigError, RunError
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.loop import RunResult
from sofa_fl.models.flat import as_vector
from sofa_fl_flower.machine.site_records import SecureAggregationConfig
from sofa_fl_flower.server.server import Server, ServerConfig
from sofa_fl_flower.server.summing_method import ALWAYS_SUMMED
from sofa_fl_flower.transport.wire_message import WireMessage

NUM = 8
SOFA: dict[str, Any] = {"evidence": "models", "pull_siblings": 0}


def config_of(method: str = "sofa", **changes: object) -> Config:
    data = {
        "num_clients": NUM, "num_train": 800, "num_test": 120,
        "partition": "groups", "num_rotations": 2, "num_swaps": 1,
    }  # fmt: skip
    values = {"method": method, "data": data, "sharing": {"ratio": 0.0}, "sofa": SOFA}
    return tiny(**{**values, "hypcluster": {"num_clusters": 2}, **changes})


def residents(config: Config) -> dict[int, FakeMachine]:
    """Machines each of which is one process from start to end."""
    machines = machines_of(config)
    for machine in machines.values():
        machine.is_resident = True
    return machines


def quiet(_line: str) -> None:
    """Print nothing."""


def serve(
    config: Config, out: Path, machines: dict[int, FakeMachine], smallest: int = 3, **options: Any
) -> tuple[RunResult, FakeMessenger]:
    messenger = FakeMessenger(machines)
    server_config = ServerConfig(
        run=out, expected=MNIST, clients=NUM, most=NUM, timeout=0.4, secure_aggregation=smallest
    )
    server_config = replace(server_config, **options)
    return Server(messenger, config, server_config, quiet).run(), messenger


def clients_of(machines: dict[int, FakeMachine]) -> dict[int, FakeMachine]:
    return {100 - machine: one for machine, one in machines.items()}


def outcomes_in(messenger: FakeMessenger) -> list[list[str]]:
    """What machines sent of their models, in every answer to a training."""
    answers = [a for _, kind, _, a in messenger.log if kind == "train"]
    return [sorted(one) for a in answers if isinstance(a, WireMessage)
            for one in a.header.get("outcomes", [])]  # fmt: skip


def cluster_models(result: RunResult) -> dict[int, torch.Tensor]:
    view = result.view
    return {int(node): as_vector(view.models[node]) for node in view.tree.clusters}


RESIDENT = [("sofa", False), ("sofa", True), *((name, True) for name in ALWAYS_SUMMED)]


@pytest.mark.parametrize(("method", "is_resident"), RESIDENT)
def test_clusters_learn_what_they_would_in_the_clear(
    method: str, is_resident: bool, tmp_path: Path
) -> None:
    """By plain descent: Adam makes steps of rounding errors where gradients are as small."""
    local = {"batches": 3, "batch_size": 20, "optimizer": "sgd", "learning_rate": 0.05}
    config = config_of(method, rounds=1, warmup=30, local=local, sofa=SOFA)
    clear, _ = serve(config, tmp_path / "clear", residents(config), smallest=0)
    machines = residents(config)
    for machine in machines.values():
        machine.is_resident = is_resident
    summed, messenger = serve(config, tmp_path / "summed", machines)
    here, there = cluster_models(summed), cluster_models(clear)
    assert here.keys() == there.keys()
    for node in here:
        assert torch.allclose(here[node], there[node], atol=5e-5), node
    ours, theirs = (events(tmp_path / name)[-1] for name in ("summed", "clear"))
    assert ours["accuracies"] == pytest.approx(theirs["accuracies"], abs=0.04)
    assert ours["local_loss"] == pytest.approx(theirs["local_loss"], abs=1e-3)
    sent = outcomes_in(messenger)
    assert len(sent) == NUM * 2
    in_the_clear = [names for names in sent if "params" in names]
    assert len(in_the_clear) == (NUM if method == "sofa" else 0), "at most the warm-up's"
    assert all({"masked", "shares"} <= set(names) for names in sent if "params" not in names)


def test_clients_of_small_clusters_do_not_contribute(tmp_path: Path) -> None:
    """HypCluster's choices are its own, and here one model has two clients."""
    config = config_of("hypcluster")
    serve(config, tmp_path / "run", residents(config))
    found = [line for line in lines(tmp_path / "run") if "no_sum" in line]
    assert [line["no_sum"] for line in found] == [[5, 7]] * 2
    assert found[0]["why"] == "a sum needs 3 to 512 machines that allow it, got 2"


@pytest.mark.parametrize("method", ["sofa", "fedprox"])
def test_models_may_travel_down_in_half_the_bytes(method: str, tmp_path: Path) -> None:
    config = config_of(method)
    _, messenger = serve(config, tmp_path / "run", residents(config), transport="float16")
    assert not [line for line in lines(tmp_path / "run") if "set_aside" in line or "no_sum" in line]
    assert sum("masked" in names for names in outcomes_in(messenger)) >= 2 * NUM


def test_a_masked_round_takes_one_more_exchange(tmp_path: Path) -> None:
    config = config_of()
    for name, smallest in (("clear", 0), ("summed", 3)):
        serve(config, tmp_path / name, residents(config), smallest)
    rounds = {}
    for name in ("clear", "summed"):
        *_, last = split_rounds(lines(tmp_path / name))
        rounds[name] = [line["exchange"] for line in last]
    assert rounds["clear"] == ["train", "evaluate"]
    assert rounds["summed"] == ["train", "evaluate", "evaluate"]


def split_rounds(found: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    rounds: list[list[dict[str, Any]]] = [[]]
    for line in found:
        if "round" in line:
            rounds.append([])
        elif "exchange" in line:
            rounds[-1].append(line)
    return rounds[:-1]


def allowing(machines: dict[int, FakeMachine], **changes: Any) -> dict[int, FakeMachine]:
    """Machines of sites with this on secure aggregation in their policies."""
    for machine in machines.values():
        config = SecureAggregationConfig(**changes)
        machine.policy = replace(machine.policy, secure_aggregation=config)
    return machines


def test_a_site_can_require_it(tmp_path: Path) -> None:
    config = config_of("fedavg")
    machines = allowing(residents(config), max_clear_models=0)
    _, messenger = serve(config, tmp_path / "summed", machines)
    assert all("params" not in names for names in outcomes_in(messenger))
    machines = allowing(residents(config), max_clear_models=0)
    with pytest.raises(RunError):
        serve_briefly(config, tmp_path / "clear", machines)
    whys = [line["why"] for line in lines(tmp_path / "clear") if "set_aside" in line]
    assert len(whys) == NUM
    assert all("sends its models only in sums, after 0 in the clear" in why for why in whys)


def serve_briefly(config: Config, out: Path, machines: dict[int, FakeMachine]) -> None:
    """A run that ends when no machine is left."""
    server_config = ServerConfig(run=out, expected=MNIST, clients=NUM, most=NUM, timeout=0.4)
    server = Server(FakeMessenger(machines), config, server_config, quiet)

    def attend() -> dict[int, Any]:
        raise RunError("no machine is left")

    server.attend = attend  # type: ignore[method-assign]
    server.run()


def test_a_site_can_allow_the_warm_up_alone(tmp_path: Path) -> None:
    config = config_of()
    machines = allowing(residents(config), max_clear_models=1)
    serve(config, tmp_path / "run", machines)
    assert len(events(tmp_path / "run")) == 3
    assert not [line for line in lines(tmp_path / "run") if "set_aside" in line]
    clear = [machine.site.sums.read().count(b"clear") for machine in machines.values()]
    assert clear == [1] * NUM


def test_sites_that_name_their_peers_refuse_others(tmp_path: Path) -> None:
    config = config_of("fedavg", rounds=1)
    machines = residents(config)
    keys = {one: machine.sums_key() for one, machine in machines.items()}
    serve(config, tmp_path / "all", allowing(machines, peers=tuple(keys.values())))
    assert not [line for line in lines(tmp_path / "all") if "no_sum" in line]
    machines = residents(config)
    stranger = machines[100].sums_key()
    known = tuple(m.sums_key() for m in machines.values() if m.sums_key() != stranger)
    serve(config, tmp_path / "stranger", allowing(machines, peers=known))
    whys = [line["why"] for line in lines(tmp_path / "stranger") if "set_aside" in line]
    assert whys
    assert all("1 members of the sum are not among the site's peers" in why for why in whys)


@pytest.mark.parametrize("asks", ["tasks", "unmask"])
def test_machines_that_fail_do_not_stop_the_others(asks: str, tmp_path: Path) -> None:
    """With eight machines and a smallest sum of three, six must answer, each time."""
    local = {"batches": 3, "batch_size": 20, "optimizer": "sgd", "learning_rate": 0.05}
    config = config_of("fedavg", local=local)
    models: list[torch.Tensor] = []
    for name, smallest in (("clear", 0), ("summed", 3)):
        machines = residents(config)
        for one in (0, 1):
            clients_of(machines)[one].spoil = lost_when(asks)
        result, _ = serve(config, tmp_path / name, machines, smallest)
        models += cluster_models(result).values()
    clear, summed = models
    assert torch.allclose(clear, summed, atol=5e-5)
    found = lines(tmp_path / "summed")
    assert len([line for line in found if "set_aside" in line]) == 2
    assert not [line for line in found if "no_sum" in line]


def lost_when(asks: str) -> Spoil:
    """An answer that does not arrive, once, when a message asks for this."""
    times: list[int] = []

    def spoil(asked: WireMessage, answer: WireMessage) -> WireMessage | None:
        if asked.header.get(asks) and not times:
            times.append(1)
            return None
        return answer

    return spoil


def test_a_sum_of_too_few_is_not_used(tmp_path: Path) -> None:
    config = config_of("fedavg", rounds=1)
    machines = residents(config)
    for one in (0, 1, 2):
        clients_of(machines)[one].spoil = lost_when("tasks")
    serve(config, tmp_path / "run", machines)
    (line,) = [line for line in lines(tmp_path / "run") if "no_sum" in line]
    assert line["why"] == "6 of 8 machines must send their models, but 5 did"
    assert sorted(line["no_sum"]) == list(range(NUM))


def wrong_shares(asked: WireMessage, answer: WireMessage) -> WireMessage:
    """Shares that nobody can read."""
    arrays = dict(answer.arrays)
    for outcome in answer.header.get("outcomes", []):
        if "shares" in outcome:
            arrays[outcome["shares"]] = np.zeros_like(arrays[outcome["shares"]])
    return WireMessage(answer.header, arrays)


def wrong_seeds(asked: WireMessage, answer: WireMessage) -> WireMessage:
    arrays = dict(answer.arrays)
    for one in answer.header.get("revealed", []):
        arrays[one["shares"]] = np.roll(arrays[one["shares"]], 1, axis=0)
    return WireMessage(answer.header, arrays)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (wrong_shares, "the other members cannot read the shares of a member"),
        (wrong_seeds, "a member has sent a wrong mask or a wrong share"),
    ],
)
def test_a_machine_that_cheats_spoils_a_sum_but_not_the_run(
    spoil: Callable[[WireMessage, WireMessage], WireMessage], why: str, tmp_path: Path
) -> None:
    config = config_of("fedavg", rounds=1)
    machines = residents(config)
    machines[min(machines)].spoil = spoil  # the first of the members, whose share is used
    serve(config, tmp_path / "run", machines)
    assert len(events(tmp_path / "run")) == 2
    assert why in [line["why"] for line in lines(tmp_path / "run") if "no_sum" in line]


def test_clusters_are_large_enough_for_a_sum(tmp_path: Path) -> None:
    """Eight clients in two groups are two sums of four, but no two of five."""
    config = config_of(warmup=30, rounds=1)
    for smallest, expected in ((4, [4, 4, 8]), (5, [8])):
        result, _ = serve(config, tmp_path / str(smallest), residents(config), smallest)
        sizes = [len(result.tree.clients_of(c)) for c in result.tree.clusters]
        assert sorted(sizes) == expected
        assert not [line for line in lines(tmp_path / str(smallest)) if "no_sum" in line]


def test_machines_that_want_larger_sums_are_left_out(tmp_path: Path) -> None:
    config = config_of("fedavg", rounds=1)
    machines = residents(config)
    allowing({100: machines[100]}, smallest_cluster=9)
    serve(config, tmp_path / "run", machines)
    found = [line for line in lines(tmp_path / "run") if "no_sum" in line]
    assert [line["no_sum"] for line in found] == [[0]] * 2
    assert not [line for line in lines(tmp_path / "run") if "set_aside" in line]


def test_a_newcomer_is_in_the_sum_of_the_model_that_it_starts_from(tmp_path: Path) -> None:
    config = config_of("fedavg")
    machines = residents(config)
    late = machines.pop(100)
    machines[99].spoil = then_arrives(late, machines)
    messenger = FakeMessenger(machines)
    server_config = ServerConfig(
        run=tmp_path / "run", expected=MNIST, clients=NUM - 1, most=NUM, timeout=0.4,
        secure_aggregation=3,
    )  # fmt: skip
    Server(messenger, config, server_config, quiet).run()
    sums = [
        len(task["sum"]["keys"])
        for _, _, asked, _ in messenger.log
        for task in asked.header.get("tasks", [])
    ]
    assert sums == [7] * 7 + [8] * 16


def test_a_newcomer_finds_no_place_in_a_fixed_tree(tmp_path: Path) -> None:
    config = config_of(warmup=30)
    machines = residents(config)
    late = machines.pop(100)
    machines[99].spoil = then_arrives(late, machines)
    server_config = ServerConfig(
        run=tmp_path / "run", expected=MNIST, clients=NUM - 1, most=NUM, timeout=0.4,
        secure_aggregation=3,
    )  # fmt: skip
    result = Server(FakeMessenger(machines), config, server_config, quiet).run()
    assert len(result.tree.clusters) == 3
    assert len(result.tree.clients) == NUM - 1
    assert [event.get("absent") for event in events(tmp_path / "run")] == [None, [7], [7]]
    why = [line["why"] for line in lines(tmp_path / "run") if "no_sum" in line]
    assert why == ["a sum needs 3 to 512 machines that allow it, got 1"] * 2


def then_arrives(late: FakeMachine, machines: dict[int, FakeMachine]) -> Spoil:
    """After the first scores of a machine another one is there."""

    def spoil(asked: WireMessage, answer: WireMessage) -> WireMessage:
        if asked.header.get("exams"):
            machines[100] = late
        return answer

    return spoil


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"method": "local"}, "use one of sofa, fedavg"),
        ({"sofa": {}}, r"needs sofa\.evidence=models and sofa\.pull_siblings=0"),
        ({"sofa": {**SOFA, "propagation": "cascade"}}, r"needs sofa\.propagation=onepass"),
        ({"sofa": {**SOFA, "start": "own"}}, r"needs sofa\.start=path"),
        ({"sofa": {**SOFA, "pull_siblings": [0, 0.1]}}, r"needs sofa\.pull_siblings=0"),
        ({"guard": {"aggregate": "median"}}, r"needs guard\.aggregate=mean"),
    ],
)
def test_what_needs_single_models_is_refused(
    changes: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=why):
        serve(config_of(**{"method": "sofa", **changes}), tmp_path / "run", {})


def test_sums_of_two_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 3, got 2"):
        serve(config_of(), tmp_path / "run", {}, smallest=2)


def test_private_sites_mask_too(tmp_path: Path) -> None:
    config = config_of()
    machines = residents(config)
    for machine in machines.values():
        privacy = replace(machine.policy.privacy, epsilon=200.0)
        machine.policy = replace(machine.policy, max_disclosure=0.0, embeds=False, privacy=privacy)
    _, messenger = serve(config, tmp_path / "run", machines)
    assert len(events(tmp_path / "run")) == 3
    assert sum("masked" in names for names in outcomes_in(messenger)) == 2 * NUM
