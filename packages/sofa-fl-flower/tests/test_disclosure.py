"""What a site has disclosed, and that its cap cannot be reset from outside."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from cases import OPEN, tiny
from sofa_fl.data.federated_data import Arrays, Samples
from sofa_fl.data.own import from_arrays
from sofa_fl.errors import RunError
from sofa_fl.privacy.accounting import Cost
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import MachineData
from sofa_fl_flower.machine.privacy import Budget, SitePrivacy
from sofa_fl_flower.machine.sealed_log import SealedLog
from sofa_fl_flower.machine.site import Site, create_site, open_site
from sofa_fl_flower.machine.site_records import MARK_SIZE, DisclosureLedger, disclose, mark_of
from sofa_fl_flower.transport.message_checks import RefusalError
from sofa_fl_flower.transport.run_setup import RunSetup
from sofa_fl_flower.transport.wire_message import MessageBuilder

KEY = b"k" * 32


def samples(num: int, first: int = 0) -> Arrays:
    return from_arrays(np.arange(first, first + num, dtype=np.float32)[:, None], np.zeros(num, int))


def rows(*values: int) -> Samples:
    return np.array(values, dtype=np.int64)


def give(
    asked: Samples, cap: float, ledger: DisclosureLedger, own: Arrays | None = None
) -> list[int]:
    own = samples(10) if own is None else own
    return [int(row) for row in disclose(own, asked, cap, ledger, KEY)]


def test_no_more_leaves_than_the_cap_allows() -> None:
    ledger = DisclosureLedger()
    assert give(rows(5, 1, 7, 2, 9), 0.3, ledger) == [5, 1, 7]
    assert give(rows(2, 3), 0.3, ledger) == []
    assert give(rows(2, 1, 3, 5), 0.3, ledger) == [1, 5], "what is disclosed already may go again"


@pytest.mark.parametrize("cap", [0.0, 0.09])
def test_a_cap_of_less_than_a_sample_lets_nothing_out(cap: float) -> None:
    ledger = DisclosureLedger()
    assert give(np.arange(10), cap, ledger) == []
    assert not ledger.read()


def test_a_lowered_cap_lets_nothing_new_out() -> None:
    ledger = DisclosureLedger()
    give(np.arange(5), 0.5, ledger)
    assert give(np.arange(10), 0.2, ledger) == [0, 1, 2, 3, 4]
    assert give(np.arange(10), 0.0, ledger) == []


def test_numbers_that_are_none_of_its_samples_are_passed_over() -> None:
    assert give(rows(-1, 4, 2, 2, 99), 1.0, DisclosureLedger(), samples(4)) == [2]


def test_a_sample_is_known_by_its_content() -> None:
    marks = [mark_of(samples(4), position, KEY) for position in range(4)]
    assert len(set(marks)) == 4
    assert mark_of(samples(4, first=2), 0, KEY) == marks[2]
    assert mark_of(samples(4), 0, b"l" * 32) != marks[0], "of no use without the key"


def test_another_sample_a_day_does_not_start_over() -> None:
    """A ledger named by a hash of all samples once let 950 of 1,000 go at a cap of 100."""
    ledger, gone = DisclosureLedger(), set()
    for day in range(50):
        own = samples(1000 + day)
        asked = np.random.default_rng(day).permutation(1000)[:200]
        gone |= set(give(asked, 0.1, ledger, own))
    assert len(gone) <= 0.1 * 1049
    assert len(ledger.read()) == len(gone)


def test_samples_that_are_replaced_count(tmp_path: Path) -> None:
    ledger = DisclosureLedger()
    assert len(give(np.arange(100), 0.1, ledger, samples(100))) == 10
    assert give(np.arange(100), 0.1, ledger, samples(100, first=100)) == []


@pytest.mark.parametrize("holdout", [0.0, 0.05, 0.2, 0.5])
def test_another_holdout_does_not_start_over(holdout: float) -> None:
    x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    data = MachineData(from_arrays(x, np.arange(200) % 10))
    site = Site(KEY)
    config = tiny()
    setup = RunSetup(seed=0, local=config.local, model=config.model, num_outputs=10)
    given: set[bytes] = set()
    for fraction, step in ((0.1, 1), (holdout, -1)):  # the last ones first: other samples
        policy = replace(OPEN, holdout=fraction, max_disclosure=0.1)
        here, builder = ClientMachine(data, setup, policy, site), MessageBuilder()
        builder.add(np.arange(len(here.data.train), dtype=np.int32)[::step], "give")
        answer = here.answer(builder.message(give=True))
        given |= {row.tobytes() for row in answer.arrays["gave_x"]}
    assert 10 < len(given) <= 0.1 * 200


def site_state(tmp_path: Path) -> Path:
    return create_site(tmp_path / "site", tmp_path / "app") / "state"


def test_a_site_remembers_over_a_restart(tmp_path: Path) -> None:
    state = site_state(tmp_path)
    site = open_site(state)
    assert len(disclose(samples(20), np.arange(10), 0.5, site.ledger, site.key)) == 10
    site = open_site(state)
    assert len(site.ledger.read()) == 10
    assert disclose(samples(20), np.arange(10, 20), 0.5, site.ledger, site.key).tolist() == []
    assert len(disclose(samples(20), np.arange(20), 0.5, site.ledger, site.key)) == 10


@pytest.mark.parametrize(
    "name", ["key", "ledger", "ledger.seal", "audit.jsonl", "budget", "budget.seal"]
)
def test_a_missing_file_means_that_nothing_leaves(name: str, tmp_path: Path) -> None:
    state = site_state(tmp_path)
    site = open_site(state)
    disclose(samples(20), np.arange(10), 0.5, site.ledger, site.key)
    (state / name).unlink()
    with pytest.raises(RunError, match="restore"):
        open_site(state)
    if name.startswith("ledger"):  # also in a process that has opened it before
        with pytest.raises(RunError, match="restore"):
            disclose(samples(20), np.arange(10), 0.5, site.ledger, site.key)


def test_an_emptied_folder_is_not_a_new_site(tmp_path: Path) -> None:
    state = site_state(tmp_path)
    for path in state.iterdir():
        path.unlink()
    with pytest.raises(RunError, match="must contain a site's key"):
        open_site(state)
    assert not list(state.iterdir())


@pytest.mark.parametrize("keep", [0, MARK_SIZE, 5 * MARK_SIZE + 3, 9 * MARK_SIZE])
def test_a_ledger_that_was_cut_is_refused(keep: int, tmp_path: Path) -> None:
    state = site_state(tmp_path)
    site = open_site(state)
    disclose(samples(20), np.arange(10), 0.5, site.ledger, site.key)
    content = (state / "ledger").read_bytes()
    (state / "ledger").write_bytes(content[:keep])
    with pytest.raises(RunError, match="truncated or altered"):
        open_site(state)
    swapped = content[MARK_SIZE : 2 * MARK_SIZE] + content[:MARK_SIZE] + content[2 * MARK_SIZE :]
    for other in (b"x" * len(content), swapped):
        (state / "ledger").write_bytes(other)
        with pytest.raises(RunError, match="truncated or altered"):
            open_site(state)


def give_and_spend(state: Path, first: int) -> None:
    """Be one of several nodes: give samples one by one, and answer as long as it may."""
    site = open_site(state)
    budget = Budget(SitePrivacy(epsilon=3.0), site.spent)
    for position in range(first, first + 12):
        disclose(samples(200), np.array([position]), 0.1, site.ledger, site.key)
        with contextlib.suppress(RefusalError):
            budget.spend("train", Cost(1.0, 6.0))


def test_several_nodes_on_one_state_have_one_cap_and_one_budget(tmp_path: Path) -> None:
    state = site_state(tmp_path)
    nodes = [
        get_context("spawn").Process(target=give_and_spend, args=(state, first))
        for first in (0, 60, 120)
    ]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()
    assert [node.exitcode for node in nodes] == [0, 0, 0]
    site = open_site(state)
    assert len(site.ledger.read()) == 20
    costs = [json.loads(line) for line in site.spent.read().splitlines()]
    assert 2 < Budget(SitePrivacy(epsilon=3.0), site.spent).spent()["train"] <= 3.0
    assert len(costs) < 36, "some were refused"


def test_a_seal_of_another_key_is_refused(tmp_path: Path) -> None:
    state = site_state(tmp_path)
    SealedLog(state / "ledger", b"l" * 32)._seal(b"")
    with pytest.raises(RunError, match="truncated or altered"):
        open_site(state)


def test_a_kill_before_the_seal_loses_nothing(tmp_path: Path) -> None:
    """Marks are written before their seal: what is there counts, but for half a mark."""
    state = site_state(tmp_path)
    site = open_site(state)
    disclose(samples(20), np.arange(3), 0.5, site.ledger, site.key)
    with (state / "ledger").open("ab") as file:
        file.write(b"m" * MARK_SIZE + b"half")
    site = open_site(state)
    assert len(site.ledger.read()) == 4
    assert len(disclose(samples(20), np.arange(3, 20), 0.5, site.ledger, site.key)) == 6
    assert len(open_site(state).ledger.read()) == 10


def test_the_audit_log_only_grows(tmp_path: Path) -> None:
    state = site_state(tmp_path)
    for number in range(3):
        open_site(state).audit({"run": str(number)})
    lines = [json.loads(line) for line in (state / "audit.jsonl").read_text().splitlines()]
    assert [line["run"] for line in lines] == ["0", "1", "2"]
    assert all(line["time"] > 1e9 for line in lines)
