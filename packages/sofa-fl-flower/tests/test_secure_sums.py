"""A site's part in secure aggregation: what it refuses, whatever the server asks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cases import OPEN, tiny
from sofa_fl.engine.base import Pull, Task
from sofa_fl.errors import ConfigError, RunError
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import build
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import example_data
from sofa_fl_flower.machine.policy import load_policy
from sofa_fl_flower.machine.site import Site, create_site, open_site
from sofa_fl_flower.machine.site_records import SecureAggregationConfig
from sofa_fl_flower.masked_sum.masks import public_of, sum_key_of
from sofa_fl_flower.masked_sum.member import SEALED_SIZE
from sofa_fl_flower.masked_sum.plan import SumPlan, threshold_for
from sofa_fl_flower.transport.message_checks import RefusalError
from sofa_fl_flower.transport.run_setup import RunSetup, as_it_arrives, work_digest
from sofa_fl_flower.transport.wire_message import MessageBuilder, WireMessage

CONFIG = tiny()
SETUP = RunSetup(seed=0, local=CONFIG.local, model=CONFIG.model, num_outputs=10)
DATA = example_data(CONFIG.data, 0, 1)
SITE = Site(b"k" * 32)
START = FlatNetwork(build(SETUP.network_factory((1, 28, 28), None), 0)).vector
TASK = Task(
    site=NodeId(0),
    start=START,
    samples=np.arange(9),
    batches=1,
    seed=7,
    prior=np.zeros(10, np.float32),
)
KEYS = [public_of(sum_key_of(bytes([i]) * 32)) for i in range(4)]


def machine(site: Site | None = None, **changes: Any) -> ClientMachine:
    policy = replace(OPEN, secure_aggregation=SecureAggregationConfig(**changes))
    return ClientMachine(DATA, SETUP, policy, site or Site(b"k" * 32), 1)


def plan_of(num: int = 5, session: str = "one", **changes: Any) -> SumPlan:
    keys = (public_of(sum_key_of(SITE.key)), *KEYS[: num - 1])
    sizes = (len(DATA.train), *[100] * (num - 1))
    work = work_digest(as_it_arrives(TASK, SETUP), SETUP)
    return replace(SumPlan(session, keys, sizes, threshold_for(num, 3), work), **changes)


def training(
    here: ClientMachine, plan: SumPlan | None, rate: float | None = None, seed: int = 0
) -> WireMessage:
    builder = MessageBuilder()
    task = {
        "start": builder.add_model(START), "given": None, "batches": 1, "seed": seed,
        "pulls": None, "learning_rate": rate, "prior": True,
        "sum": None if plan is None else plan.to_dict(),
    }  # fmt: skip
    return here.answer(builder.message(tasks=[task]))


def unmasking(here: ClientMachine, plan: SumPlan, survivors: list[int]) -> WireMessage:
    builder = MessageBuilder()
    shares = builder.add(np.zeros((len(survivors), SEALED_SIZE), np.uint8))
    request = {"sum": plan.to_dict(), "survivors": survivors, "shares": shares}
    return here.answer(builder.message(unmask=[request]))


def test_a_masked_model_is_all_that_leaves() -> None:
    answer = training(machine(), plan_of())
    (outcome,) = answer.header["outcomes"]
    assert outcome.keys() == {"masked", "shares", "losses"}
    assert answer.arrays.keys() == set(outcome.values())
    assert answer.arrays[outcome["masked"]].dtype == np.uint32


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (plan_of(2, threshold=2), "at least 3 members, got 2"),
        (plan_of(threshold=3), "4 to 5 of 5 members must agree on a sum, got 3"),
        (plan_of(keys=(*KEYS, "ab" * 32)), "must include this site's key"),
        (plan_of(sizes=(10**6, 1, 1, 1, 1)), "weight in a sum is its"),
    ],
)
def test_a_site_refuses_sums_that_hide_too_little(plan: SumPlan, why: str) -> None:
    with pytest.raises(RefusalError, match=why):
        training(machine(), plan)


def test_the_smallest_cluster_is_the_sites_own() -> None:
    training(machine(smallest_cluster=5), plan_of(5, threshold=5))
    with pytest.raises(RefusalError, match="at least 6 members, got 5"):
        training(machine(smallest_cluster=6), plan_of(5, threshold=5))


def test_only_peers_count_where_a_site_names_them() -> None:
    training(machine(peers=tuple(KEYS)), plan_of())
    with pytest.raises(RefusalError, match="1 members of the sum are not among the site's peers"):
        training(machine(peers=tuple(KEYS[1:])), plan_of())


def test_all_members_train_the_same() -> None:
    """But for the seed: a server that knew the models of all others would know this one."""
    here = machine()
    with pytest.raises(RefusalError, match="must train the same model in the same way"):
        training(here, plan_of(), rate=0.0)
    training(here, plan_of(), seed=5)


@pytest.mark.parametrize(
    "change",
    [
        {"start": START + 1e-3},
        {"batches": 2},
        {"learning_rate": 1e-3},
        {"part": "head"},
        {"prior": None},
        {"pulls": (Pull(START, 0.1),)},
        {"pulls": (Pull(START, 0.1), Pull(START * 2, 0.1))},
    ],
)
def test_what_is_trained_is_part_of_the_plan(change: dict[str, Any]) -> None:
    base = work_digest(as_it_arrives(TASK, SETUP), SETUP)
    other = work_digest(as_it_arrives(replace(TASK, **change), SETUP), SETUP)
    assert base != other
    faster = replace(SETUP, local=replace(SETUP.local, learning_rate=0.09))
    assert work_digest(as_it_arrives(TASK, faster), faster) != base
    elsewhere = replace(TASK, seed=9, samples=np.arange(3), site=NodeId(5))
    assert work_digest(as_it_arrives(elsewhere, SETUP), SETUP) == base


def test_a_site_sends_one_model_for_a_sum() -> None:
    here = machine()
    training(here, plan_of())
    with pytest.raises(RefusalError, match="already sent a model for this sum"):
        training(here, plan_of())
    training(here, plan_of(session="two"))


def test_a_site_unmasks_one_set_of_survivors() -> None:
    here = machine()
    training(here, plan_of())
    first = unmasking(here, plan_of(), [0, 1, 2, 3])
    again = unmasking(here, plan_of(), [3, 2, 1, 0])
    assert again.arrays.keys() == first.arrays.keys(), "the same may be said again"
    with pytest.raises(RefusalError, match="told earlier that this sum has other members"):
        unmasking(here, plan_of(), [0, 1, 2, 4])
    with pytest.raises(RefusalError, match="told earlier that this sum has other members"):
        unmasking(here, plan_of(), [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("survivors", "why"),
    [
        ([1, 2, 3, 4], "include this site"),
        ([0, 1, 2], "4 members must have sent their models, got 3"),
        ([0, 1, 2, 9], "must be members"),
    ],
)
def test_a_site_does_not_unmask_too_few(survivors: list[int], why: str) -> None:
    with pytest.raises(RefusalError, match=why):
        unmasking(machine(), plan_of(), survivors)


def test_a_site_keeps_its_record_over_restarts(tmp_path: Path) -> None:
    state = create_site(tmp_path / "site", tmp_path / "app") / "state"
    plan = plan_of(keys=(public_of(sum_key_of(open_site(state).key)), *KEYS))
    training(machine(open_site(state)), plan)
    unmasking(machine(open_site(state)), plan, [0, 1, 2, 3])
    with pytest.raises(RefusalError, match="already sent a model for this sum"):
        training(machine(open_site(state)), plan)
    with pytest.raises(RefusalError, match="this sum has other members"):
        unmasking(machine(open_site(state)), plan, [0, 1, 2, 3, 4])
    (state / "sums").write_bytes(b"")
    with pytest.raises(RunError, match="truncated or altered"):
        open_site(state)
    (state / "sums").unlink()
    with pytest.raises(RunError, match="missing or damaged"):
        open_site(state)


@pytest.mark.parametrize("most", [0, 2])
def test_models_in_the_clear_are_counted(most: int) -> None:
    here = machine(max_clear_models=most)
    for _ in range(most):
        training(here, None)
    with pytest.raises(RefusalError, match=f"only in sums, after {most} in the clear"):
        training(here, None)
    training(here, plan_of())


def test_no_limit_means_no_record() -> None:
    here = machine()
    training(here, None)
    assert here.site.sums.read() == b""


def test_a_model_that_is_too_large_for_a_sum_does_not_leave() -> None:
    here = machine()
    builder = MessageBuilder()
    large = replace(TASK, start=torch.full_like(START, 100), prior=None)
    plan = plan_of(work=work_digest(large, SETUP))
    name = builder.add_model(large.start)
    task = {"start": name, "batches": 1, "seed": 0, "sum": plan.to_dict()}
    with pytest.raises(RefusalError, match=r"cannot be part of a sum: numbers .* between -64 and"):
        here.answer(builder.message(tasks=[task]))


def test_a_new_site_has_a_key_to_give_to_its_peers(tmp_path: Path) -> None:
    folder = create_site(tmp_path / "site", tmp_path / "app")
    public = (folder / "sum.pub").read_text().strip()
    assert public == public_of(sum_key_of(open_site(folder / "state").key))
    policy = folder / "policy.toml"
    text = policy.read_text().replace('# peers = ["..."]', f'peers = ["{public}"]')
    policy.write_text(text.replace("# max_clear_models", "max_clear_models"))
    assert load_policy(policy).secure_aggregation == SecureAggregationConfig(
        peers=(public,), max_clear_models=1
    )


def test_peers_must_be_keys(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("state = '/srv/state'\n[secure_aggregation]\npeers = ['clinic-a']\n")
    with pytest.raises(ConfigError, match="must be public keys of 64 hexadecimal digits"):
        load_policy(file)
