"""pfl's benchmark of CIFAR-10 is the job that it says, and ours does it."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

import cifar_curves
import cifar_job
import numpy as np
import pfl_cifar
import pytest


def test_the_network_is_pfls() -> None:
    assert sum(p.numel() for p in cifar_job.network().parameters()) == 1_626_442


def test_users_have_fifty_samples_each_and_share_none() -> None:
    rows = cifar_job.shares(50_000, cifar_job.USERS, cifar_job.SAMPLES)
    assert {len(own) for own in rows} == {50}
    assert len(np.unique(np.concatenate(rows))) == 50_000


@pytest.mark.parametrize("method", ["fedavg", "sofa"])
def test_ours_are_measured(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "found.json"
    wanted = f"--only {method} --users 6 --cohort 2 --rounds 3 --every 3 --out {out}"
    arguments = [*wanted.split(), "--engine", "sequential"]
    monkeypatch.setattr(sys, "argv", ["pfl_cifar.py", *arguments])
    pfl_cifar.main()
    found = json.loads(out.read_text())["contestants"][method]
    assert found["rounds"] == 3
    assert found["trainings_per_second"] > 0
    assert [round for round, _ in found["curve"]] == [3]
    phases = ["imports", "data", "start-up", "warm-up", "first round"]
    assert [name for name in found["phases"] if name in phases] == phases
    assert sum(found["phases"][name] for name in phases) < found["all"]


def test_a_contestant_that_is_late_ends_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "found.json"
    wanted = f"--only fedavg --users 4 --cohort 1 --rounds 99 --seconds 0 --out {out}"
    arguments = [*wanted.split(), "--engine", "sequential"]
    monkeypatch.setattr(sys, "argv", ["pfl_cifar.py", *arguments])
    monkeypatch.setattr(pfl_cifar, "GRACE", 600.0)
    pfl_cifar.main()
    assert json.loads(out.read_text())["contestants"]["fedavg"]["rounds"] == 3


def test_tests_are_not_part_of_the_median_round() -> None:
    watch = pfl_cifar.Watch("fedavg", Namespace(cohort=10, rounds=99, seconds=1e9, every=2), print)
    at = 0.0
    for round in range(1, 41):
        at += 0.25 if round % 2 else 0.75
        watch.done(at, None if round % 2 else 0.5)
    record = watch.record()
    assert record["seconds_per_round"] == 0.25
    assert record["phases"]["test"] == 0.5
    assert record["trainings_per_second"] == pytest.approx(20.0, rel=0.02)


def test_ratios_are_over_pfl() -> None:
    one = {"trainings_per_second": 90.0, "seconds_per_round": 0.5, "curve": [[1, 0.25]]}
    two = {**one, "trainings_per_second": 1350.0}
    assert "| fedavg | 1350.0 | 15.00 |" in pfl_cifar.table({"pfl": one, "fedavg": two})


def test_curves_are_compared_at_the_last_round_that_all_reached(tmp_path: Path) -> None:
    file = tmp_path / "curves.json"
    curves = {"pfl": [[1, 0.1], [11, 0.5]], "fedavg": [[10, 0.51], [20, 0.6]]}
    file.write_text(json.dumps({"contestants": {n: {"curve": c} for n, c in curves.items()}}))
    read = cifar_curves.read_curves(file)
    assert cifar_curves.told(read).splitlines() == [
        "pfl, FedAvg: 50.00% in round 11, 50.00% in round 11",
        "SOFA-FL's package, FedAvg: 51.00% in round 10, 60.00% in round 20",
    ]
    cifar_curves.draw(read, tmp_path / "curves.svg")
    assert "SOFA-FL's package, FedAvg" in (tmp_path / "curves.svg").read_text(encoding="utf-8")
