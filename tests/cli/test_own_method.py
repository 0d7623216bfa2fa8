"""A user's own method on the command line, presets, and what a comparison refuses to ignore."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from sofa_fl.cli.show_comparison import paired_lines
from tests.cli.cases import Cli, assert_refused

PATH = "tests.methods.own:SetMomentum"


def test_a_method_by_its_import_path_runs_stops_and_goes_on(
    cli: Cli, tiny: list[str], work_dir: Path
) -> None:
    result = cli("run", *tiny, "--method", PATH, "--set", "options.keep=0.25")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("SetMomentum on tiny, 6 clients")
    folder = work_dir / "runs" / "setmomentum-tiny-0"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert (config["method"], config["options"]["keep"]) == (PATH, 0.25)
    assert "<title>SetMomentum on tiny" in (folder / "report.html").read_text()
    (folder / "summary.json").unlink()
    (folder / "checkpoints" / "round-00002.safetensors").unlink()
    again = json.loads(cli("resume", str(folder), "--json").stdout)
    assert (again["method"], again["title"]) == ("setmomentum", "SetMomentum")
    assert cli("export", str(folder)).exit_code == 0


def test_wrong_names_and_options(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    assert_refused(cli("run", *tiny, "--method", "fedavgg"), "did you mean fedavg?")
    assert_refused(cli("run", *tiny, "--method", "no.such:Thing"), "cannot import", "no.such:Thing")
    wrong = ("--method", PATH, "--set", "options.kept=1")
    assert_refused(cli("run", *tiny, *wrong), "did you mean options.keep?")
    assert list(work_dir.iterdir()) == []


def test_compare_takes_it_beside_ours(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    keep = ("--set", "options.keep=0.25")
    command = ["compare", "fedavg", PATH, *tiny, *keep, "--rounds", "1", "--out", "here"]
    result = cli(*command, "--json")
    assert result.exit_code == 0, result.stderr
    titles = [summary["title"] for summary in json.loads(result.stdout)]
    assert titles == ["FedAvg+", "SetMomentum"]
    for name in ("fedavg-0", "setmomentum-0"):
        assert (work_dir / "here" / name / "report.html").is_file(), "every run has its report"
    shown = cli(*command)
    assert re.search(r"^SetMomentum +\d", shown.stdout, re.M)
    assert shown.stderr == "", "nothing is run again"


def test_a_comparison_ignores_nothing(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    assert_refused(cli("compare", "sofa", *tiny, "--set", "method=fedavg"), "--set method=")
    for seed in (("--seed", "1"), ("--set", "seed=1")):
        both = cli("compare", "sofa", *tiny, "--seeds", "0,1", *seed)
        assert_refused(both, "either --seeds or one seed")
    assert list(work_dir.iterdir()) == []


def test_a_preset_comes_before_the_file_and_settings(
    cli: Cli, tiny: list[str], work_dir: Path
) -> None:
    (work_dir / "my.yaml").write_text("local: {momentum: 0.5}\n")
    options = ("--preset", "paper", "--set", "sofa.serve=blend", "--rounds", "1", "--out", "run")
    result = cli("run", "my.yaml", *tiny, *options, "--quiet")
    assert result.exit_code == 0, result.stderr
    config = yaml.safe_load((work_dir / "run" / "config.yaml").read_text())
    assert config["preset"] == "paper"
    assert (config["local"]["prior"], config["local"]["momentum"]) == (False, 0.5)
    assert config["sofa"]["serve"] == "blend"
    assert_refused(cli("run", *tiny, "--preset", "papers"), "did you mean paper?")


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_the_help_names_presets(cli: Cli, command: str) -> None:
    text = cli(command, "--help").stdout
    assert "--preset" in text
    assert re.search(r"Start from a preset.*paper", text, re.S)


def test_compare_with_a_preset(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    options = ("--preset", "paper", "--rounds", "1", "--out", "here", "--quiet")
    assert cli("compare", "sofa", *tiny, *options).exit_code == 0
    config = yaml.safe_load((work_dir / "here" / "sofa-0" / "config.yaml").read_text())
    assert (config["preset"], config["sofa"]["linkage"]) == ("paper", "centroid")


def test_differences_are_taken_seed_by_seed() -> None:
    def summary(title: str, seed: int, mean: float) -> dict[str, object]:
        return {"method": title, "title": title, "seed": seed, "client": {"mean": mean}}

    runs = [summary("A", 0, 0.5), summary("A", 1, 0.7), summary("B", 0, 0.6), summary("B", 1, 0.82)]
    # The gaps are 10 and 12: mean 11, standard error 1, times Student's t of one degree, 12.71.
    assert list(paired_lines(runs, "accuracy")) == [
        "B against A, seed by seed: +11.00 ± 12.71 (95% interval)"
    ]
    assert list(paired_lines([runs[0], runs[2]], "accuracy")) == [], "one seed shows nothing"
