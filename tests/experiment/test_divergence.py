"""A run whose training diverged says so, and one that is merely skewed or small does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sofa_fl
from sofa_fl.cli.show import show_run
from sofa_fl.report.history import read_round

RNG = np.random.default_rng(0)
CLASSES = RNG.integers(0, 4, 800)
X = RNG.normal(size=(4, 6))[CLASSES] * 2 + RNG.normal(size=(800, 6))
NOISE = RNG.random(800)
OWNERS = {
    "alike": np.arange(800) % 5,
    "a class each": CLASSES,
    "mostly a class": np.where(NOISE < 0.95, CLASSES, np.arange(800) % 4),
    "tiny": np.where(np.arange(800) < 8, 9, np.arange(800) % 4),
}
FLIPPED = np.where(np.arange(800) % 5 == 0, 3 - CLASSES, CLASSES)


def result_of(out: Path, y: Any, by: Any, rate: float, rounds: int = 3, **more: Any) -> Any:
    local = sofa_fl.LocalConfig(batches=20, batch_size=20, learning_rate=rate)
    config = sofa_fl.Config(rounds=rounds, local=local, out=str(out), engine="sequential")
    data = sofa_fl.deal(sofa_fl.from_arrays(X, y), by, standardize=True)
    return sofa_fl.run(config, data=data, **more)


@pytest.mark.parametrize("method", ["sofa", "fedavg"])
@pytest.mark.parametrize("rate", [1e3, 1e6])
def test_it_says_what_to_lower(
    tmp_path: Path, method: str, rate: float, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of(tmp_path / "run", 1.0 * X[:, 0], OWNERS["alike"], rate, method=method)
    (note,) = [note for note in result.notes if "constant" in note]
    assert re.match(
        r"By their loss, [1-5] of 5 clients (is|are) no better than a constant prediction, because "
        r"training diverged \(.*\): lower local.learning_rate\.$",
        note,
    )
    show_run(result.summary, read_round(result.run))
    assert "lower local.learning_rate" in " ".join(capsys.readouterr().out.split())
    assert "lower local.learning_rate" in result.report.read_text()


def test_classes_too(tmp_path: Path) -> None:
    result = result_of(tmp_path / "run", CLASSES, OWNERS["alike"], 1e6, method="fedavg")
    assert "lower local.learning_rate" in result.notes[0]


@pytest.mark.parametrize("method", ["sofa", "fedavg", "local"])
@pytest.mark.parametrize("owners", list(OWNERS))
def test_no_false_alarm(tmp_path: Path, method: str, owners: str) -> None:
    by = OWNERS[owners]
    assert result_of(tmp_path / "a", CLASSES, by, 5e-3, method=method).notes == []
    assert result_of(tmp_path / "b", FLIPPED, by, 5e-3, method=method).notes == []


def test_what_has_not_learned_yet_is_not_called_diverged(tmp_path: Path) -> None:
    (note,) = result_of(tmp_path / "run", CLASSES, OWNERS["alike"], 1e-7, rounds=1).notes
    assert "not yet better than a constant prediction" in note
    assert "diverged" not in note
    few = result_of(tmp_path / "few", CLASSES, OWNERS["mostly a class"], 1e-7, rounds=1)
    assert few.notes == [], "there is little to learn about a client with one class"
