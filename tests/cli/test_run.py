from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sofa_fl.cli.progress import Follower
from sofa_fl.experiment.scoring import metrics
from tests.cli.cases import SUMMARY_KEYS, Cli

CLIENT = {"mean": 0.5, "min": 0.5}


def test_json_is_exactly_the_summary(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    result = cli("run", *tiny, "--out", "run", "--json")
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 1
    summary = json.loads(result.stdout)
    assert set(summary) >= SUMMARY_KEYS
    fairness = {"mean", "std", "min", "gap", "jain", "bottom10"}
    assert set(summary["client"]) == fairness | {"accuracies", "clients"}
    assert len(summary["client"]["accuracies"]) == 6
    assert all(set(row) == {"level", "num_nodes", "client", "full"} for row in summary["levels"])
    assert set(summary["tree"]) == {"num_clusters", "depth"}
    assert set(summary["edits"]) == {"graft", "prune", "merge", "split", "join", "leave"}
    assert set(summary["sharing"]) == {"disclosed_mean", "disclosed_max"}
    assert summary["run"] == "run"
    assert json.loads((work_dir / "run" / "summary.json").read_text()) == summary


def test_report_has_the_tables_the_tree_and_the_folder(
    cli: Cli, tiny: list[str], work_dir: Path
) -> None:
    result = cli("run", *tiny)
    assert result.exit_code == 0
    for words in ("Jain", "bottom", "on whole test set", "client 0", "Sharing", "Edits"):
        assert words in result.stdout
    assert "sofa-fl tree runs/sofa-tiny-0" in result.stdout
    assert (work_dir / "runs" / "sofa-tiny-0" / "summary.json").is_file()
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "\x1b" not in result.output
    lines = result.stderr.splitlines()
    assert lines[0] == "warm-up"
    steps = ["warm-up done", "round 1/2", "round 2/2", "scoring every level"]
    assert [line.split(",")[0] for line in lines[1:]] == steps
    assert re.search(r"mean \d+\.\d\d%, worst \d+\.\d\d%", lines[-2])


def test_a_report_says_if_it_took_a_part_of_the_test_set(
    cli: Cli, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "each model is scored on"
    assert words not in cli("run", *tiny, "--rounds", "1").stdout
    monkeypatch.setattr(metrics, "MANY", 60)
    monkeypatch.setattr(metrics, "FEWEST", 3)
    result = cli("run", *tiny, "--rounds", "1")
    assert f"{words} 10 of the 90 test samples" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_report_says_how_many_true_groups_the_tree_has(cli: Cli, tiny: list[str]) -> None:
    groups = ("partition=groups", "num_rotations=3", "num_swaps=1")
    settings = [word for key in groups for word in ("--set", f"data.{key}")]
    result = cli("run", *tiny, *settings, "--rounds", "1")
    assert result.exit_code == 0
    assert re.search(r"^Groups   known ones: ARI -?\d.\d\d; purity \d", result.stdout, re.M)
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "Groups" not in cli("run", *tiny, "--rounds", "1").stdout


def test_quiet_prints_the_folder_only(cli: Cli, tiny: list[str]) -> None:
    result = cli("run", *tiny, "--out", "here", "--quiet", "--method", "fedavg", "--rounds", "1")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "here\n", "")


def test_file_settings_and_options_in_that_order(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    (work_dir / "my.yaml").write_text("seed: 1\nmethod: fedavg\nrounds: 3\n")
    result = cli("run", "my.yaml", *tiny, "--seed", "5", "--rounds", "1", "--out", "x", "--json")
    summary = json.loads(result.stdout)
    assert (summary["seed"], summary["method"], summary["rounds"]) == (5, "fedavg", 1)


def test_one_client_runs(cli: Cli, tiny: list[str]) -> None:
    result = cli("run", *tiny, "--set", "data.num_clients=1", "--out", "x")
    assert result.exit_code == 0, result.stderr
    assert "client 0" in result.stdout
    assert cli("tree", "x", "--svg", "tree.svg").exit_code == 0


@pytest.mark.parametrize("out", ["[red]x[/]", "<b>bold</b>", "a b", "\x1b[31mred", "ünï 😀"])
def test_strange_names_are_text(cli: Cli, tiny: list[str], work_dir: Path, out: str) -> None:
    folder = work_dir / out.replace("/", "")
    result = cli("run", *tiny, "--rounds", "1", "--out", folder.name)
    assert result.exit_code == 0, result.stderr
    assert folder.is_dir()
    assert "\x1b" not in result.output
    assert folder.name.replace("\x1b", "\\x1b") in result.stdout
    again = cli("resume", folder.name, "--quiet")
    assert again.stdout == f"{folder.name}\n"


def test_resume_continues_to_the_same_end(cli: Cli, run_folder: Path, finished: Path) -> None:
    (run_folder / "summary.json").unlink()
    newest = run_folder / "checkpoints" / "round-00002.safetensors"
    newest.unlink()
    result = cli("resume", str(run_folder), "--json")
    assert result.exit_code == 0, result.stderr
    missing, going_on = result.stderr.splitlines()[:2]
    assert missing.endswith("round-00002.safetensors is missing; continuing from round 1")
    assert going_on == "continuing after round 1/2"
    ours, first = json.loads(result.stdout), json.loads((finished / "summary.json").read_text())
    for key in SUMMARY_KEYS - {"seconds", "run"}:
        assert ours[key] == first[key]
    assert ours["run"] == str(run_folder)


def test_time_left_is_for_the_rounds_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    follower, now = Follower([""], [0]), 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    start = {"event": "start", "run": "x", "rounds": 10, "engine": "workers", "why": "", "note": ""}
    follower({**start, "round": 2})
    assert follower.times() == ["0:00 elapsed"]
    for round, left in ((3, "0:14"), (4, "0:12"), (6, "0:08")):
        now = 100.0 + 2 * (round - 2)
        follower({"event": "round", "round": round, "rounds": 10, "client": CLIENT, "edits": []})
        assert follower.times()[1:] == [f"{left} left"]


def test_help_version_and_no_arguments(cli: Cli) -> None:
    assert "compare" in cli("--help").stdout
    assert "compare" in cli().stdout
    assert re.fullmatch(r"sofa-fl \d+\.\d+\.\d+\n", cli("--version").stdout)
