from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.cases import Cli, assert_refused, files_in


def test_all_combinations_then_nothing_is_left_to_do(
    cli: Cli, tiny: list[str], work_dir: Path
) -> None:
    options = [*common(tiny), "--over", "local.learning_rate=1e-3,0.01", "--over", "seed=0,1"]
    first = cli("sweep", *options, "--json")
    assert first.exit_code == 0, first.stderr
    assert [line.split(", 0")[0] for line in first.stderr.splitlines()][-1].startswith(
        "sweep 4/4, local.learning_rate=0.01, seed=1"
    )
    rows = json.loads(first.stdout)
    assert [row["over"] for row in rows] == [
        {"local.learning_rate": 0.001}, {"local.learning_rate": 0.01}
    ]  # fmt: skip
    assert [row["runs"] for row in rows] == [2, 2]
    folder = work_dir / "runs" / "sweep"
    means = []
    for run in rows[0]["folders"]:
        means.append(json.loads((work_dir / run / "summary.json").read_text())["client"]["mean"])
    assert rows[0]["mean"] == pytest.approx(sum(means) / 2)
    assert "local.learning_rate" in (folder / "sweep.svg").read_text()

    before = files_in(folder)
    again = cli("sweep", *options)
    assert (again.exit_code, again.stderr) == (0, "")
    assert files_in(folder) == before
    assert "mean of 2 seeds" in again.stdout
    assert "figure runs/sweep/sweep.svg" in again.stdout

    # With another value only what is new is run.
    more = cli("sweep", *options, "--over", "seed=1,2", "--json")
    assert more.exit_code == 0, more.stderr
    assert {path: data for path, data in files_in(folder).items() if path in before} == before | {
        folder / "sweep.svg": (folder / "sweep.svg").read_bytes()
    }
    assert len(list(folder.glob("*/summary.json"))) == 6


def test_runs_that_are_kept_can_be_exported_and_reported_on(
    cli: Cli, tiny: list[str], work_dir: Path
) -> None:
    options = [*common(tiny), "--over", "local.learning_rate=1e-6,0.01", "--over", "seed=0,1"]
    options += ["--keep-runs"]
    first = cli("sweep", *options)
    assert first.exit_code == 0, first.stderr
    folder = Path("runs") / "sweep"
    names = sorted(path.parent.name for path in folder.glob("*/summary.json"))
    assert [name.rsplit("-", 1)[0] for name in names] == [
        f"local.learning_rate={rate},seed={seed}" for rate in ("0.01", "1e-06") for seed in (0, 1)
    ]
    for name in names:
        kept = {path.name for path in (folder / name).iterdir()}
        assert {"config.yaml", "events.jsonl", "summary.json", "checkpoints", "report.html"} <= kept
        checkpoints = list((folder / name / "checkpoints").iterdir())
        assert [path.name for path in checkpoints] == ["round-00001.safetensors"]
    best = Path(first.stdout.split("Best ")[1].split()[0])
    assert "kept no models" not in first.stdout
    rows = json.loads(cli("sweep", *options, "--json").stdout)
    top = max(rows, key=lambda row: row["mean"])
    means = [json.loads((Path(f) / "summary.json").read_text())["client"] for f in top["folders"]]
    assert json.loads((best / "summary.json").read_text())["client"] in means
    assert str(best) in top["folders"]
    assert cli("export", str(best), "--out", "model.safetensors").exit_code == 0
    assert (work_dir / "model.safetensors").exists()
    assert cli("report", str(best), "--out", "page.html").exit_code == 0

    before = files_in(work_dir / folder)
    again = cli("sweep", *options)
    assert (again.exit_code, again.stderr) == (0, "")
    assert again.stdout == first.stdout
    assert files_in(work_dir / folder) == before

    # What a kill at the end left undone is done; and it is found where it was moved to.
    (best / "report.html").unlink()
    folder.rename("moved")
    moved = cli("sweep", *options, "--out", "moved")
    assert (moved.exit_code, moved.stderr) == (0, "")
    assert f"Best moved/{best.name}" in moved.stdout
    assert (Path("moved") / best.name / "report.html").exists()


def test_without_it_nothing_but_numbers_is_kept(cli: Cli, tiny: list[str]) -> None:
    result = cli("sweep", *common(tiny), "--over", "seed=0")
    assert result.exit_code == 0, result.stderr
    (folder,) = (path.parent for path in Path("runs/sweep").glob("*/summary.json"))
    assert not {"checkpoints", "report.html"} & {path.name for path in folder.iterdir()}
    assert "--keep-runs" in result.stdout


def test_what_was_not_scored_is_a_dash(cli: Cli, tiny: list[str]) -> None:
    options = [*common(tiny), "--set", "score_levels=false", "--over", "seed=0"]
    result = cli("sweep", *options)
    assert result.exit_code == 0, result.stderr
    _, header, _, row = result.stdout.splitlines()[:4]
    assert "whole test" in header
    assert row.split()[3] == "-"


def common(tiny: list[str]) -> list[str]:
    """The settings of a tiny run, of one round."""
    return [*tiny, "--rounds", "1"]


def test_a_file_with_values(
    cli: Cli, tiny: list[str], work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work_dir / "my.yaml").write_text("over:\n  method: [fedavg, local]\nwarmup: 1\n")
    monkeypatch.setitem(sys.modules, "sofa_fl.jobs.plotting", None)
    monkeypatch.setattr("sofa_fl.cli.sweep.draw_figure", lambda rows, path: None)
    result = cli("sweep", "my.yaml", *common(tiny), "--out", "here")
    assert result.exit_code == 0, result.stderr
    assert "FedAvg+" in result.stdout
    assert "Local+" in result.stdout
    assert "+ marks a baseline" in result.stdout
    assert "the figure needs matplotlib: pip install 'sofa-fl[figures]'" in result.stdout
    assert len(list((work_dir / "here").iterdir())) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "needs values to try"),
        (["--over", "seed"], "--over must be key=v1,v2, got 'seed'"),
        (["--over", "seed="], "at least one value"),
        (["--over", "sed=1"], "did you mean seed?"),
        (["--over", "out=a,b"], "cannot vary 'out'"),
        (["--over", "seed=0,-1"], "seed: input should be"),
    ],
)
def test_refused(cli: Cli, work_dir: Path, options: list[str], words: str) -> None:
    assert_refused(cli("sweep", *options), words)
    assert list(work_dir.iterdir()) == []
