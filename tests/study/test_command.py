"""`python -m study`: what it runs, what it writes and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sofa_fl.cli.main import app as sofa_fl_app
from sofa_fl.data import datasets
from sofa_fl.errors import DataError
from study import figure_targets
from study.cli import app
from study.design.known_names import known_to
from study.design.run_plan import Scope
from study.design.settings import SETTINGS
from tests.cli.cases import Cli, assert_refused, files_in
from tests.cli.test_retired_keys import KEY, SENTENCE

ROOT = Path(__file__).parents[2]
# Ctrl-C must work although the tests themselves may run in the background, where it does not.
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from study.cli import main
main()
"""
PAIR = ("--quick", "--settings", "S1", "--methods", "sofa,fedavg+")


@pytest.fixture
def study() -> Cli:
    runner = CliRunner(env={"COLUMNS": "80"})
    return lambda *args: runner.invoke(app, list(args))


@pytest.fixture(autouse=True)
def work_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_retired_keys_are_refused(study: Cli, work_dir: Path) -> None:
    row = {"setting": "S1", "method": "hypcluster", "sharing": 0.1, "overrides": {KEY: 1.0}}
    (work_dir / "here").mkdir()
    (work_dir / "here" / "choices.json").write_text(json.dumps([row]))
    assert_refused(study("table1", "--quick", "--out", "here"), SENTENCE)
    assert_refused(study("table2", "--quick", "--set", f"{KEY}=1"), SENTENCE)


@pytest.mark.slow
def test_table1_then_again_then_its_figures(
    study: Cli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = study("table1", "--quick")
    assert first.exit_code == 0, first.stderr
    assert "| mean accuracy |" in first.stdout
    assert "runs/quick/table1.json" in first.stdout
    assert "the defaults are used" in first.stderr
    # Without a choice HypCluster has the paper's K: one run for two columns.
    assert "table1 3/3, S1, hypcluster, sharing 0.1, seed 0" in first.stderr
    before = files_in(work_dir)
    again = study("table1", "--quick", "--json")
    rows = json.loads(again.stdout)
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("sofa_paper", 0), ("sofa", 0), ("hypcluster_k3", 0), ("hypcluster", 0)
    ]  # fmt: skip
    assert "3/3" not in again.stderr  # nothing is run again
    assert files_in(work_dir) == before

    # The real results and pages are not touched by a quick look.
    assert {path.name for path in work_dir.iterdir()} == {"runs"}
    drawn = study("figures", "--quick", "--quiet")
    assert drawn.exit_code == 0, drawn.stderr
    names = {Path(line).name for line in drawn.stdout.splitlines()}
    losses = {f"losses-{name}.svg" for name in ("random", "none", "fixed-0.1", "fixed-0.2")}
    assert names == {"clients.svg", "languages.svg", "tree.svg", *losses}
    monkeypatch.setattr(figure_targets, "find_spec", lambda name: None)
    assert_refused(study("figures", "--quick"), "matplotlib", "sofa-fl[figures]")


@pytest.mark.slow
def test_the_benchmark_keeps_what_was_there(study: Cli, work_dir: Path) -> None:
    for seed in ("0", "1"):
        made = study("benchmark", *PAIR, "--seeds", seed, "--out", "here")
        assert made.exit_code == 0, made.stderr
    assert "### S1" in made.stdout
    rows = json.loads((work_dir / "here" / "benchmark.json").read_text())
    assert len(rows) == 2 * 2 * 2
    assert {row["seed"] for row in rows} == {0, 1}
    # What is in the results is believed, though the runs themselves are gone.
    shutil.rmtree(work_dir / "runs")
    more = ("--seeds", "0,1,2", "--out", "here", "--missing", "--json")
    everything = study("benchmark", *PAIR, *more)
    assert len(json.loads(everything.stdout)) == 2 * 2 * 3
    assert len(list((work_dir / "runs" / "reproduce").iterdir())) == 2 * 2
    quiet = study("ablation", "--quick", "--settings", "S4", "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("runs/quick/ablation.json\n", "")
    page = study("docs", "--out", "here")
    assert page.exit_code == 0, page.stderr
    assert "## In short" in (work_dir / "docs" / "results.md").read_text()


@pytest.mark.slow
def test_rows_that_are_there_are_replaced_only_if_asked_for(study: Cli, work_dir: Path) -> None:
    command = ("benchmark", *PAIR, "--out", "here", "--json")
    assert study(*command).exit_code == 0
    file = work_dir / "here" / "benchmark.json"
    before = file.read_text()
    # Stopped and repeated, it goes on with what it made.
    assert study(*command).exit_code == 0
    assert file.read_text() == before
    # Rows that other runs made, here or on another machine, stay as they are.
    shutil.rmtree(work_dir / "runs")
    sentence = "here already has 4 of these 4 rows", "--missing", "--replace", "--out DIR"
    assert_refused(study(*command), *sentence)
    assert not (work_dir / "runs").exists()
    assert_refused(study(*command, "--set", "rounds=1"), "4 of these 4")
    assert file.read_text() == before
    replaced = study(*command, "--replace")
    assert replaced.exit_code == 0, replaced.stderr
    old, new = json.loads(before), json.loads(file.read_text())
    assert [row["mean"] for row in old] == [row["mean"] for row in new]
    assert [row["seconds"] for row in old] != [row["seconds"] for row in new]
    assert study(*command, "--missing", "--replace", "--set", "rounds=1").exit_code == 0
    assert all(row["overrides"]["rounds"] == 1 for row in json.loads(file.read_text()))


@pytest.mark.slow
def test_drift_and_faults_end_to_end(study: Cli, work_dir: Path) -> None:
    drift = ("drift", "--quick", "--settings", "churn,groups")
    made = study(*drift, "--methods", "sofa,regroup")
    assert made.exit_code == 0, made.stderr
    assert "### churn" in made.stdout
    rows = json.loads((work_dir / "runs" / "quick" / "drift.json").read_text())
    keys = [(row["setting"], row["method"]) for row in rows]
    assert keys == [
        ("churn", "regroup"), ("churn", "sofa"), ("groups", "regroup"), ("groups", "sofa")
    ]  # fmt: skip
    newcomers = rows[1]["newcomers"]
    assert newcomers[0] is None
    assert None not in newcomers[1:]
    faults = study("faults", "--quick", "--methods", "clean/mean,mixed/mean,partial")
    assert faults.exit_code == 0, faults.stderr
    assert "| one of these three, by client, mean |" in faults.stdout
    nobody = study(*drift[:2], "--settings", "groups", "--methods", "fedavg")
    assert "none of these methods runs" in nobody.stderr
    drawn = study("figures", "--quick", "--quiet")
    assert "runs/quick/images/drift.svg" in drawn.stdout.splitlines()
    page = study("docs", "--quick", "--quiet")
    assert "runs/quick/drift.md" in page.stdout.splitlines()
    assert "## Clients that fail" in (work_dir / "runs" / "quick" / "drift.md").read_text()


@pytest.mark.slow
def test_natural_federations_end_to_end(study: Cli, work_dir: Path) -> None:
    natural = ("natural", "--quick", "--settings", "heart,S9-25")
    methods = ("--methods", "sofa,no tree,fedavg+,hypcluster+,local")
    made = study(*natural, *methods)
    assert made.exit_code == 0, made.stderr
    rows = json.loads((work_dir / "runs" / "quick" / "natural.json").read_text())
    # No groups are known of the hospitals, and only they are compared as published.
    assert {row["method"] for row in rows if row["setting"] == "heart"} == {
        "sofa", "no tree", "fedavg+", "local"
    }  # fmt: skip
    assert {row["method"] for row in rows if row["setting"] == "S9-25"} == {
        "sofa", "no tree", "fedavg+", "hypcluster+"
    }  # fmt: skip
    swept = study("natural_sweep", "--quick", "--settings", "heart", "--methods", "ditto+")
    assert swept.exit_code == 0, swept.stderr
    assert "| Ditto+ | pull " in swept.stdout
    again = study(*natural, *methods, "--missing", "--json")
    assert len(json.loads(again.stdout)) == len(rows) == 8
    page = study("docs", "--quick", "--quiet")
    assert "runs/quick/natural.md" in page.stdout.splitlines()
    assert "### S9-25" in (work_dir / "runs" / "quick" / "natural.md").read_text()


@pytest.mark.slow
def test_given_trees_end_to_end(study: Cli, work_dir: Path) -> None:
    options = ("--settings", "S9-25-mlp", "--methods", "two levels,flat")
    made = study("tree", "--quick", *options)
    assert made.exit_code == 0, made.stderr
    rows = json.loads((work_dir / "runs" / "quick" / "tree.json").read_text())
    assert [(row["method"], row["seed"]) for row in rows] == [("flat", 300), ("two levels", 300)]
    assert rows[1]["ari"] == 1 > rows[0]["ari"]


def test_weather_that_is_not_there_is_told_first(
    study: Cli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOFA_FL_DATA", raising=False)
    result = study("natural", "--settings", "heart,weather,years")
    assert_refused(result, "weather, years needs weather: ", "--data-dir", "--settings heart")
    assert not (work_dir / "runs").exists()


def test_every_target_has_its_own_names() -> None:
    assert known_to("benchmark").settings == known_to("sweep").settings == tuple(SETTINGS)
    together = known_to("all")
    for target in ("benchmark", "drift", "faults", "natural", "tree"):
        known = known_to(target)
        assert set(known.quick) <= set(known.settings) <= set(together.settings)
        scope = Scope(settings=together.settings, methods=together.methods)
        part = known.part_of(scope)
        assert set(part.settings) == set(known.settings)
        assert set(part.methods) == set(known.methods)


def test_wrong_names_are_refused_and_nothing_is_written(study: Cli, work_dir: Path) -> None:
    assert_refused(study("table3"), "table3", "table1")
    assert_refused(study(), "TARGET")
    assert_refused(study("benchmark", "--settings", "S1,S9"), "S9", "S1, S2")
    assert_refused(study("benchmark", "--methods", "fedsgd"), "fedsgd", "fedavg+")
    assert_refused(study("benchmark", "--settings", "swap"), "swap", "benchmark", "S1")
    assert_refused(study("drift", "--settings", "S3"), "S3", "drift", "swap, emerge")
    assert_refused(study("faults", "--settings", "swap"), "swap", "faults", "groups")
    assert_refused(study("drift", "--methods", "fedavg+"), "fedavg+", "frozen tree")
    assert_refused(study("table1", "--seeds", "0,x"), "0,x")
    assert_refused(study("table1", "--seeds", "-1"), "seed")
    assert_refused(study("table1", "--set", "roundss=3"), "roundss", "rounds")
    assert_refused(study("table1", "--set", "seed=3"), "seed")
    assert_refused(study("table1", "--jobs", "0"), "jobs")
    assert list(work_dir.iterdir()) == []


def test_a_missing_dataset_is_told_first(
    study: Cli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(work_dir / "cache"))
    monkeypatch.delenv("SOFA_FL_DATA", raising=False)
    monkeypatch.setattr(datasets, "download", _offline)
    result = study("benchmark", "--settings", "S1,S3")
    assert_refused(result, "S3 needs fashion-mnist", "--settings S1")
    assert not (work_dir / "runs").exists()


def _offline(*_: object) -> None:
    raise DataError("could not download it")


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(work_dir: Path) -> None:
    options = ("--quick", "--settings", "S1", "--set", "rounds=200", "--seeds", "0,1")
    running = subprocess.Popen(
        [sys.executable, "-c", MAIN, "table1", *options],
        cwd=work_dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "COLUMNS": "80", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(work_dir.glob("runs/reproduce/*/events.jsonl")):
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert "repeat the command to continue" in err
    assert "Traceback" not in err


def test_help_says_how_it_is_called(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "study", "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    for words in ("python -m study", "TARGET", "--missing", "table2"):
        assert words in shown.stdout


def test_it_is_no_command_of_the_package() -> None:
    assert_refused(CliRunner().invoke(sofa_fl_app, ["reproduce", "table1"]), "No such command")
