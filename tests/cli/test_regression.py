"""A regression on a terminal: its score is R² everywhere, and its own metrics are in a table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import sofa_fl
from sofa_fl.cli.progress import follow
from sofa_fl.cli.show import show_run
from sofa_fl.cli.show_comparison import show_comparison
from sofa_fl.cli.sweep import draw_figure, show_rows
from sofa_fl.data.dealing import deal
from sofa_fl.data.own import from_arrays
from sofa_fl.experiment.storage.events import Event
from sofa_fl.jobs.combinations import Point, result_rows
from sofa_fl.report.history import read_round
from tests.cli.cases import Cli
from tests.experiment.cases import events_of, tiny


def nothing(outputs: Any, targets: Any) -> float:
    return float("nan")


def bias(outputs: Any, targets: Any) -> float:
    return float((outputs - targets).mean())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Far from what it should be: R² is below zero."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3)).astype(np.float32)
    data = deal(from_arrays(x, x[:, 0] + 5.0), by=np.arange(120) % 4)
    return sofa_fl.run(
        tiny(tmp_path_factory.mktemp("runs") / "run", rounds=1),
        data=data,
        network=lambda: nn.Sequential(nn.Linear(3, 1)),
        metrics={"bias": bias, "nothing": nothing},
    ).run


def summary_of(run: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return summary


def check(text: str) -> None:
    assert "R²" in text
    assert "ccuracy" not in text
    assert not re.search(r"\d%", re.sub(r"bottom|10%|disclosed .* of|at most\s+\S+", "", text))


def test_the_tree(cli: Cli, run: Path) -> None:
    text = cli("tree", str(run)).stdout
    check(text)
    last = events_of(run)[-1]
    mean, worst = last["client"]["mean"], last["client"]["min"]
    assert worst < 0
    assert f"R² {mean:.3f} mean, {worst:.3f} worst" in text
    assert "number of clients, mean R²" in text
    assert f"client 2   {last['accuracies'][2]:.3f}" in text
    assert json.loads(cli("tree", str(run), "--json").stdout)["metric"] == "r2"


def test_the_end_of_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_run(summary_of(run), read_round(run))
    text = capsys.readouterr().out
    check(text)
    assert "R² of the clients" in text
    assert "R² by level" in text
    found = summary_of(run)["metrics"]["bias"]
    row = " ".join(f"{found[key]:.4g}" for key in ("mean", "min", "max"))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "Own metrics of the clients" in lines
    assert f"bias {row}" in lines
    assert "nothing - - -" in lines


def test_lines_of_progress(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last: Event = events_of(run)[-1]
    follow(quiet=False)(last)
    client = last["client"]
    assert f"mean R² {client['mean']:.3f}, worst R² {client['min']:.3f}" in capsys.readouterr().err


def test_tables(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = summary_of(run)
    show_comparison([summary], run.parent)
    text = capsys.readouterr().out
    check(text)
    assert f"{summary['client']['mean']:.3f}" in text

    rows = result_rows([Point({"warmup": 3}, tiny(run))], [summary])
    show_rows(rows)
    text = capsys.readouterr().out
    check(text)
    assert f"{summary['client']['min']:.3f}" in text
    figure = draw_figure(rows, tmp_path / "sweep.svg")
    assert figure is not None
    assert "R², mean client (dashed: worst)<" in figure.read_text()


def test_what_cannot_be_scored_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One client has one test sample, another equal targets: neither has an R², the rest has."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(104, 3)).astype(np.float32)
    by = np.array(["few"] * 4 + ["flat"] * 40 + ["good"] * 60)
    y = np.where(by == "flat", 7.0, x[:, 0])
    result = sofa_fl.run(
        tiny(tmp_path / "run", rounds=1),
        data=deal(from_arrays(x, y), by),
        network=lambda: nn.Sequential(nn.Linear(3, 1)),
    )
    assert result.summary["unscored"] == [0, 1]
    scores = result.summary["client"]["accuracies"]
    assert scores[:2] == [None, None]
    assert result.summary["client"]["mean"] == scores[2]
    assert abs(scores[2]) < 1000
    assert events_of(result.run)[-1]["unscored"] == [0, 1]
    show_run(result.summary, read_round(result.run))
    assert (
        "no R² for clients whose test targets are all equal: few, flat" in capsys.readouterr().out
    )


def test_nobody_can_be_scored(tmp_path: Path) -> None:
    x = np.ones((20, 3), dtype=np.float32)
    with pytest.raises(sofa_fl.SofaError, match=r"no client can be scored: .* different targets"):
        sofa_fl.run(
            tiny(tmp_path / "run", rounds=1),
            data=deal(from_arrays(x, np.full(20, 0.1)), np.arange(20) % 2),
            network=lambda: nn.Sequential(nn.Linear(3, 1)),
        )
