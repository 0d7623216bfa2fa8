"""pfl's benchmark of CIFAR-10 is the job that it says, and ours does it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pfl_cifar
import pytest


def test_the_network_is_pfls() -> None:
    assert sum(p.numel() for p in pfl_cifar.network().parameters()) == 1_626_442


def test_users_have_fifty_samples_each_and_share_none() -> None:
    rows = pfl_cifar.shares(50_000, pfl_cifar.USERS, pfl_cifar.SAMPLES)
    assert {len(own) for own in rows} == {50}
    assert len(np.unique(np.concatenate(rows))) == 50_000


@pytest.mark.parametrize("method", ["fedavg", "sofa"])
def test_ours_are_measured(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "found.json"
    wanted = f"--only {method} --users 6 --cohort 2 --rounds 3 --engine sequential --out {out}"
    monkeypatch.setattr(sys, "argv", ["pfl_cifar.py", *wanted.split()])
    pfl_cifar.main()
    found = json.loads(out.read_text())["contestants"][method]
    assert found["rounds"] == 3
    assert found["trainings_per_second"] > 0
    assert [round for round, _ in found["curve"]] == [3], "the last round is always scored"


def test_ratios_are_over_pfl() -> None:
    one = {"trainings_per_second": 90.0, "seconds_per_round": 0.5, "curve": [[1, 0.25]]}
    two = {**one, "trainings_per_second": 1350.0}
    assert "| fedavg | 1350.0 | 15.00 |" in pfl_cifar.table({"pfl": one, "fedavg": two})
