"""Baselines with SOFA-FL's class-mix correction are shown with a plus, plain ones without."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from torch import nn

import sofa_fl
from tests.cli.cases import Cli, assert_refused
from tests.experiment.cases import own_data
from tests.experiment.cases import tiny as tiny_config

PLUS = "+ marks a baseline that trains with SOFA-FL's class-mix correction"


def titles_in(folder: Path) -> dict[str, str]:
    """What `config.yaml` and `summary.json` of every run call it: the same."""
    found = {}
    for file in folder.glob("*/config.yaml"):
        title = yaml.safe_load(file.read_text())["title"]
        assert title == json.loads((file.parent / "summary.json").read_text())["title"]
        found[file.parent.name] = title
    return found


def correction_in(folder: Path) -> dict[str, bool]:
    return {
        file.parent.name: yaml.safe_load(file.read_text())["local"]["prior"]
        for file in folder.glob("*/config.yaml")
    }


def test_a_plus_wherever_a_corrected_baseline_is_shown(
    cli: Cli, tiny: list[str], work_dir: Path
) -> None:
    methods = ("sofa", "fedavg", "ditto", "local", "regroup")
    result = cli("compare", *methods, *tiny, "--rounds", "1", "--out", "runs")
    assert result.exit_code == 0, result.stderr
    shown = [line.split("  ")[0] for line in result.stdout.splitlines()]
    titles = ["SOFA-FL", "FedAvg+", "Ditto+", "Local+"]
    assert [title for title in shown if title in titles] == titles
    assert PLUS in result.stdout
    found = titles_in(work_dir / "runs")
    assert {title for name, title in found.items() if not title.endswith("+")} == {"SOFA-FL"}
    assert len(found) == len(methods)
    page = (work_dir / "runs" / "comparison.html").read_text()
    assert '"title":"FedAvg+"' in page.replace('": "', '":"')
    assert "class-mix correction (local.prior)" in page
    (one,) = (cli("tree", "runs/fedavg-0").stdout.splitlines()[0],)
    assert one.startswith("FedAvg+ on tiny")


def test_as_published_is_without_the_correction_but_for_sofa(
    cli: Cli, tiny: list[str], work_dir: Path
) -> None:
    command = ["compare", "sofa", "fedavg", "ditto", *tiny, "--rounds", "1"]
    result = cli(*command, "--as-published", "--out", "plain")
    assert result.exit_code == 0, result.stderr
    assert "The baselines are as published" in result.stdout
    assert "+" not in result.stdout
    assert titles_in(work_dir / "plain") == {
        "sofa-0": "SOFA-FL", "fedavg-0": "FedAvg", "ditto-0": "Ditto",
    }  # fmt: skip
    assert correction_in(work_dir / "plain") == {
        "sofa-0": True, "fedavg-0": False, "ditto-0": False,
    }  # fmt: skip
    again = cli(*command, "--as-published", "--out", "plain", "--json")
    assert again.stderr == "", "nothing is run again"
    assert [each["title"] for each in json.loads(again.stdout)] == ["SOFA-FL", "FedAvg", "Ditto"]
    # Others in the folder may differ in that, but a run is never taken for what it is not.
    assert_refused(cli(*command, "--out", "plain"), "local.prior=False", "not True")
    more = cli("compare", "sofa", "local", *tiny, "--rounds", "1", "--out", "plain", "--json")
    assert [each["title"] for each in json.loads(more.stdout)] == ["SOFA-FL", "Local+"]
    # By default, the two kinds of comparison have folders of their own.
    assert cli(*command, "--quiet").stdout != cli(*command, "--quiet", "--as-published").stdout


def test_switched_off_by_hand_there_is_no_plus(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    off = ("--set", "local.prior=false", "--rounds", "1")
    result = cli("compare", "sofa", "fedavg", *tiny, *off, "--out", "runs")
    assert "+" not in result.stdout
    assert titles_in(work_dir / "runs") == {"sofa-0": "SOFA-FL", "fedavg-0": "FedAvg"}
    values = cli(
        "sweep", "--over", "method=sofa,fedavg", "--over", "local.prior=true,false",
        *tiny, "--rounds", "1", "--json",
    )  # fmt: skip
    rows = json.loads(values.stdout)
    assert [row["title"] for row in rows] == ["SOFA-FL", "SOFA-FL", "FedAvg+", "FedAvg"]


def test_a_single_run(cli: Cli, tiny: list[str]) -> None:
    command = ["run", *tiny, "--rounds", "1"]
    with_it = cli(*command, "--method", "fedavg")
    assert with_it.stdout.startswith("FedAvg+ on tiny")
    assert PLUS in " ".join(with_it.stdout.split())
    plain = cli(*command, "--method", "fedavg", "--as-published")
    assert plain.stdout.startswith("FedAvg on tiny")
    assert PLUS not in " ".join(plain.stdout.split())
    assert_refused(cli(*command, "--as-published"), "is for baselines", "--preset paper")
    both = ("--as-published", "--set", "local.prior=true")
    assert_refused(cli(*command, "--method", "fedavg", *both), "not both")
    assert_refused(cli("compare", "fedavg", *tiny, *both), "not both")


def test_a_comparison_in_python(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "runs", rounds=1)
    found = sofa_fl.compare(["sofa", "fedavg"], config, data=own_data(), seeds=[0, 1])
    head, first, second, *note = repr(found).splitlines()
    assert head.endswith("against SOFA-FL")
    assert first.startswith("SOFA-FL  ")
    assert second.startswith("FedAvg+  ")
    assert " ".join(note).startswith(PLUS)
    assert "FedAvg+" in found._repr_html_()
    assert PLUS.replace("'", "&#x27;") in found._repr_html_()
    assert repr(found["fedavg"][0]).startswith("<FedAvg+ on own")
    assert list(found.differences()) == ["fedavg"]

    plain = sofa_fl.compare(
        {"sofa": None, "fedavg": None, "mine": "ditto"},
        tiny_config(tmp_path / "plain", rounds=1), data=own_data(), as_published=True,
    )  # fmt: skip
    titles = {name: each.summary["title"] for name, each in plain.items()}
    assert titles == {"sofa": "SOFA-FL", "fedavg": "FedAvg", "mine": "mine"}
    assert correction_in(tmp_path / "plain") == {
        "sofa-0": True, "fedavg-0": False, "mine-0": False,
    }  # fmt: skip


@pytest.mark.parametrize("method", ["fedavg", "local"])
def test_a_regression_has_no_classes_to_correct(method: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    data = sofa_fl.deal(sofa_fl.from_arrays(x, x[:, 0]), np.arange(80) % 4)
    result = sofa_fl.run(
        tiny_config(tmp_path / "run", rounds=1),
        data=data, network=lambda: nn.Linear(3, 1), method=method,
    )  # fmt: skip
    assert "+" not in result.summary["title"]
    assert yaml.safe_load((result.run / "config.yaml").read_text())["title"] in repr(result)


def test_the_correction_changes_local_training_too(tmp_path: Path) -> None:
    """So `local` without it is another method, and has no plus."""
    ours, plain = (
        sofa_fl.compare(
            ["local"], tiny_config(tmp_path / str(way), rounds=1), data=own_data(), as_published=way
        )["local"]
        for way in (False, True)
    )
    assert (ours.summary["title"], plain.summary["title"]) == ("Local+", "Local")
    assert ours.summary["full"] != plain.summary["full"]
