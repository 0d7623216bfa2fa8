"""The file that says which machine is which client: what was written, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cases import OPEN, tiny
from sofa_fl.data.federated_data import ClientData
from sofa_fl.errors import RunError
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import example_data
from sofa_fl_flower.machine.site import Site
from sofa_fl_flower.server.roster_file import Member, load_members, save_members
from sofa_fl_flower.transport.run_setup import RunSetup

# One client, as it lies on the disk.
WRITTEN = {
    "0": {
        "node": "12345678901234567890", "since": 0, "away": [[3, 5], [8, None]],
        "first": [4, 0, 0], "input": ["float32", 3], "target": ["float32", 2], "scale": 1.0,
        "shift": 0.0, "num_train": 6, "num_holdout": 4, "num_test": 2, "num_classes": 0,
        "number": None, "identity": "me", "mark": "abc", "cap": 0.5, "ids": None,
        "target_sums": [1.0, 2.0],
        "target_squares": [3.0, 4.0],
    }
}  # fmt: skip


def test_members_are_read_as_they_were_written(tmp_path: Path) -> None:
    config = tiny()
    setup = RunSetup(seed=0, local=config.local, model=config.model, num_outputs=10)
    data, policy = example_data(config.data, 0, 1), replace(OPEN, max_disclosure=0.25)
    profile = ClientMachine(data, setup, policy, Site(b"k" * 32), 1).profile()
    assert profile.ids is not None
    rows = ClientData(profile.ids, np.arange(profile.num_holdout), np.arange(profile.num_test))
    member = Member(1 << 63, profile, rows, 2, ((4, None),))
    save_members(tmp_path / "nodes.json", {NodeId(0): member})
    (found,) = load_members(tmp_path / "nodes.json").values()
    assert found.profile.header() == profile.header()
    assert (found.machine, found.since, found.absences) == (1 << 63, 2, ((4, None),))
    for ours, theirs in zip((found.rows.train, found.rows.holdout), (rows.train, rows.holdout)):
        assert np.array_equal(ours, theirs)


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps(WRITTEN))
    (member,) = load_members(tmp_path / "nodes.json").values()
    assert member.machine == 12345678901234567890
    assert (member.profile.identity, member.profile.fingerprint) == ("me", "abc")
    assert member.profile.format.is_regression
    assert member.rows.train.tolist() == [4, 5, 6, 7, 8, 9]
    assert member.has_left
    assert [member.is_client(round) for round in (2, 3, 5, 8)] == [True, False, True, False]


@pytest.mark.parametrize("text", ["{", "[]", '{"0": {}}', '{"x": {"mark": "abc"}}'])
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(text)
    with pytest.raises(RunError, match="must list the machines of the run"):
        load_members(tmp_path / "nodes.json")


def test_a_file_of_machines_without_keys_is_refused(tmp_path: Path) -> None:
    """Formerly a hash of its samples was all that a machine had to know to be a client."""
    older = {"0": {k: v for k, v in WRITTEN["0"].items() if k != "identity"}}
    (tmp_path / "nodes.json").write_text(json.dumps(older))
    with pytest.raises(RunError, match="must list the machines of the run"):
        load_members(tmp_path / "nodes.json")


def test_no_file_has_no_members(tmp_path: Path) -> None:
    assert load_members(tmp_path / "nodes.json") == {}
