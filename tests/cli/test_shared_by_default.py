"""Nothing is shared of data that a user brings, unless asked for; the paper's experiment shares."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from torch import nn

import sofa_fl
from tests.cli.cases import Cli

SMALL = ["rounds=2", "warmup=1", "local.batches=1", "engine=sequential"]
TINY = [word for key in SMALL for word in ("--set", key)]
PAPER = [
    word
    for key in ("data.num_train=400", "data.num_test=80", "data.num_clients=4", "model.name=mlp")
    for word in ("--set", key)
]
OFF = "--set sharing.ratio=0 shares nothing"


def ratio_of(run: Path) -> Any:
    return yaml.safe_load((run / "config.yaml").read_text())["sharing"]["ratio"]


def disclosed_in(run: Path) -> float:
    summary = json.loads((run / "summary.json").read_text())
    return float(summary["sharing"]["disclosed_max"])


@pytest.fixture
def hospitals(work_dir: Path) -> list[str]:
    """README's command."""
    rng, folder = np.random.default_rng(0), work_dir / "hospitals"
    folder.mkdir()
    for name in ("oslo", "rome", "lima"):
        rows = [f"{a:.2f},{b:.2f},{int(a > b)}" for a, b in rng.normal(size=(60, 2))]
        (folder / f"{name}.csv").write_text("\n".join(["age,bp,ill", *rows]) + "\n")
    keys = ("data.name=csv", "data.csv.target=ill")
    return ["--data-dir", "hospitals", *(word for key in keys for word in ("--set", key))]


def test_readmes_csv_files(cli: Cli, hospitals: list[str]) -> None:
    result = cli("run", *hospitals, *TINY, "--out", "run")
    assert "Sharing  no sample left its client" in result.stdout, result.stderr
    assert (ratio_of(Path("run")), disclosed_in(Path("run"))) == (0.0, 0.0)
    assert "Sharing  no sample" in cli("resume", "run").stdout
    asked = cli("run", *hospitals, *TINY, "--set", "sharing.ratio=0.1", "--out", "asked")
    assert OFF in " ".join(asked.stdout.split())
    assert disclosed_in(Path("asked")) > 0
    Path("my.yaml").write_text("sharing: {ratio: 0.1}\n")
    cli("run", "my.yaml", *hospitals, *TINY, "--out", "file")
    assert ratio_of(Path("file")) == 0.1


def test_a_cap_or_a_preset_is_no_request(cli: Cli, hospitals: list[str]) -> None:
    cli("run", *hospitals, *TINY, "--set", "sharing.max_disclosure=1", "--out", "cap")
    cli("run", *hospitals, *TINY, "--preset", "paper", "--out", "paper")
    assert (disclosed_in(Path("cap")), disclosed_in(Path("paper"))) == (0, 0)


def test_comparisons_and_sweeps_of_csv_files(cli: Cli, hospitals: list[str]) -> None:
    command = ["compare", "sofa", "fedavg", *hospitals, *TINY, "--out", "both"]
    assert cli(*command).exit_code == 0
    again = cli(*command, "--json")
    assert (again.exit_code, again.stderr) == (0, ""), "nothing is run again"
    assert cli("sweep", "--over", "seed=0,1", *hospitals, *TINY, "--out", "all").exit_code == 0
    runs = [*Path("both").glob("*-0"), *Path("all").glob("sofa-*")]
    assert len(runs) == 4
    assert {(ratio_of(run), disclosed_in(run)) for run in runs} == {(0.0, 0.0)}


def test_a_folder_of_own_images(cli: Cli, tiny: list[str]) -> None:
    assert "no sample left its client" in cli("run", *tiny, "--out", "run").stdout
    assert ratio_of(Path("run")) == 0.0


def test_the_papers_experiment_keeps_its_tenth_and_says_so(cli: Cli) -> None:
    result = cli("run", *TINY, *PAPER, "--out", "run")
    assert ratio_of(Path("run")) == 0.1
    assert disclosed_in(Path("run")) == pytest.approx(0.1, abs=0.02)
    assert OFF in " ".join(result.stdout.split())
    off = cli("run", *TINY, *PAPER, "--set", "sharing.ratio=0", "--out", "off")
    assert "no sample left its client" in off.stdout
    groups = ["--set", "data.partition=groups", "--set", "data.num_clients=8"]
    cli("run", *TINY, *PAPER, *groups, "--out", "groups")
    cli("run", *TINY, *PAPER, "--preset", "paper", "--out", "paper")
    assert (ratio_of(Path("groups")), ratio_of(Path("paper"))) == (0.1, 0.1)
    assert disclosed_in(Path("paper")) > 0.1


def test_natural_federations_are_not_the_papers(cli: Cli) -> None:
    result = cli("run", *TINY, "--set", "data.name=heart", "--out", "run")
    assert "no sample left its client" in result.stdout, result.stderr


def test_data_from_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(160, 4)).astype("float32")
    arrays = sofa_fl.from_arrays(x, (x[:, 0] > 0).astype(int))
    dealt = sofa_fl.deal(arrays, np.arange(160) % 4)
    pair = sofa_fl.split(arrays, test=0.2)
    local = sofa_fl.LocalConfig(batches=2, batch_size=8)
    config = sofa_fl.Config(
        rounds=2, warmup=2, engine="sequential", local=local, out=str(tmp_path / "a"),
        data=sofa_fl.DataConfig(num_clients=4),
    )  # fmt: skip

    def net() -> nn.Module:
        return nn.Linear(4, 2)

    sofa_fl.run(config, data=pair, network=net)
    sofa_fl.run(replace(config, out=str(tmp_path / "b")), data=dealt, network=net)
    # What is loaded first, with MNIST as its dataset, and gets its data later.
    loaded = sofa_fl.load_config(settings=[*SMALL, f"out={tmp_path / 'c'}"])
    sofa_fl.run(loaded, data=dealt, network=net)
    made = sofa_fl.Sofa(config.sofa, config.sharing)
    sofa_fl.run(replace(config, out=str(tmp_path / "d")), data=dealt, network=net, method=made)
    for name in "abcd":
        assert (ratio_of(tmp_path / name), disclosed_in(tmp_path / name)) == (0, 0)
    sharing = sofa_fl.SharingConfig(ratio=0.1)
    asked = replace(config, sharing=sharing, out=str(tmp_path / "e"))
    assert sofa_fl.run(asked, data=dealt, network=net).summary["sharing"]["disclosed_max"] > 0


def test_a_method_made_with_the_default_shares_as_by_name(cli: Cli, tmp_path: Path) -> None:
    keys = [*SMALL, *PAPER[1::2]]
    by_name = sofa_fl.load_config(settings=[*keys, f"out={tmp_path / 'name'}"])
    made = sofa_fl.Sofa(by_name.sofa, by_name.sharing)
    first = sofa_fl.run(by_name)
    second = sofa_fl.run(replace(by_name, out=str(tmp_path / "made")), method=made)
    assert ratio_of(second.run) == 0.1
    assert second.summary["client"] == first.summary["client"]
    assert second.summary["sharing"] == first.summary["sharing"]
    assert first.summary["sharing"]["disclosed_max"] > 0
