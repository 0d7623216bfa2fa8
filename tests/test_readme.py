"""The README's Python runs as it stands, and its commands exist."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp
from typer.testing import CliRunner

from sofa_fl.cli.main import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
    accuracy, depth, folder = capsys.readouterr().out.split()
    stated = re.search(r"prints an accuracy of ([\d.]+) and a tree of depth (\d)", README)
    assert stated is not None
    assert float(accuracy) == pytest.approx(float(stated[1]), abs=0.01)
    assert depth == stated[2]
    assert (tmp_path / folder / "summary.json").is_file()


def test_the_commands_exist() -> None:
    commands = set(re.findall(r"^sofa-fl (\w+)", README, re.MULTILINE))
    assert commands == {
        "demo", "run", "resume", "watch", "report", "tree", "compare",
        "init", "sweep", "export", "assign",
    }  # fmt: skip
    for command in commands:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


def test_every_linked_file_is_there() -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


def test_the_comparisons_lost_on_the_whole_test_set_are_counted() -> None:
    scores: dict[tuple[str, float, str], dict[int, float]] = defaultdict(dict)
    for row in json.loads((ROOT / "results" / "benchmark.json").read_text(encoding="utf-8")):
        scores[row["setting"], row["sharing"], row["method"]][row["seed"]] = row["full"]
    lost, num = 0, 0
    for (setting, sharing, method), theirs in scores.items():
        ours = scores[setting, sharing, "sofa"]
        if method == "sofa" or len(ours.keys() & theirs.keys()) < 2:
            continue
        leads = np.array([ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()])
        num += 1
        lost += bool(ttest_1samp(leads, 0).confidence_interval(0.95).high < 0)
    assert f"below zero in {lost} of the {num} comparisons" in README
