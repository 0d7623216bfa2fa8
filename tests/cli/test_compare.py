from __future__ import annotations

import json
from pathlib import Path

import pytest

from sofa_fl.cli.show_comparison import average, show_comparison
from tests.cli.cases import SUMMARY_KEYS, Cli, assert_refused, files_in


def test_one_table_then_reuse_then_resume(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    command = ["compare", "sofa", "fedavg", *tiny, "--rounds", "1", "--seeds", "0,1"]
    first = cli(*command, "--json")
    assert first.exit_code == 0, first.stderr
    assert "FedAvg+, seed 1 (4 of 4), round 1/1" in first.stderr
    summaries = json.loads(first.stdout)
    names = [(summary["method"], summary["seed"]) for summary in summaries]
    assert names == [("sofa", 0), ("sofa", 1), ("fedavg", 0), ("fedavg", 1)]
    assert all(set(summary) >= SUMMARY_KEYS for summary in summaries)

    # The same command again runs nothing: the folder's name comes from the configuration.
    (folder,) = (work_dir / "runs").iterdir()
    before = files_in(folder)
    again = cli(*command)
    assert again.exit_code == 0
    assert again.stderr == ""
    for words in (
        "SOFA-FL",
        "FedAvg+",
        "+ marks a baseline",
        "samples",
        "mean over seeds 0, 1",
        folder.name,
    ):
        assert words in again.stdout
    assert max(map(len, again.stdout.splitlines())) <= 80
    assert files_in(folder) == before
    page = folder / "comparison.html"
    assert f"Report  runs/{folder.name}/comparison.html" in again.stdout
    cli("report", *(summary["run"] for summary in summaries), "--out", "same.html")
    assert page.read_bytes() == (work_dir / "same.html").read_bytes()

    # A run that was stopped goes on, the others are left alone.
    (folder / "fedavg-1" / "summary.json").unlink()
    resumed = cli(*command, "--json")
    name = "FedAvg+, seed 1 (4 of 4)"
    told = [f"{name}, all rounds are done", f"{name}, scoring every level"]
    assert resumed.stderr.splitlines() == told
    assert [s["client"] for s in json.loads(resumed.stdout)] == [s["client"] for s in summaries]

    # Another configuration is not mixed in.
    other = cli(*command, "--out", str(folder), "--set", "local.batches=3")
    assert_refused(other, "local.batches=2", "not 3", "--out")
    assert cli(*command, "--quiet").stdout == f"runs/{folder.name}\n"


def test_side_by_side_is_the_same(cli: Cli, tiny: list[str]) -> None:
    command = ["compare", "fedavg", "local", *tiny, "--rounds", "1", "--json"]
    one_by_one = json.loads(cli(*command, "--out", "a").stdout)
    both = cli(*command, "--out", "b", "--jobs", "2")
    assert both.exit_code == 0, both.stderr
    assert [s["client"] for s in json.loads(both.stdout)] == [s["client"] for s in one_by_one]
    lines = both.stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == ["compare 1/2", "compare 2/2"]
    assert all(", mean " in line and ", worst " in line for line in lines)
    assert {path.name for path in Path("a/fedavg-0").iterdir()} == {
        path.name for path in Path("b/fedavg-0").iterdir()
    }


def test_a_page_that_cannot_be_written_loses_nothing(
    cli: Cli, tiny: list[str], work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Path:
        raise ValueError("the page is\nin pieces")

    monkeypatch.setattr("sofa_fl.report.page.write_report", broken)
    command = ["compare", "fedavg", *tiny, "--rounds", "1", "--out", "here"]
    told = "warning: comparison.html was not written: the page is in pieces"
    for options in ([], ["--json"], ["--quiet"]):
        result = cli(*command, *options)
        assert result.exit_code == 0
        assert result.stderr.splitlines()[-1] == told
        assert result.stdout
        assert "Report" not in result.stdout
    assert not (work_dir / "here" / "comparison.html").exists()


def test_a_run_is_no_folder_for_runs(cli: Cli, tiny: list[str], finished: Path) -> None:
    assert_refused(cli("compare", "sofa", *tiny, "--out", str(finished)), "is itself a run")


def test_wrong_methods_and_seeds(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    assert_refused(cli("compare", "sofa", "fedsgd", *tiny), "fedsgd")
    assert_refused(cli("compare", "sofa", *tiny, "--seeds", "1,x"), "1,x")
    assert_refused(cli("compare", "sofa", *tiny, "--seeds", "-1"), "seed")
    assert_refused(cli("compare", *tiny))
    assert list(work_dir.iterdir()) == []


def summary(method: str, seed: int, mean: float, samples: int = 100) -> dict[str, object]:
    client = {"mean": mean, "std": 0.1, "min": 0.5, "bottom10": 0.5}
    common = {"full": 0.9, "root": 0.9, "rounds": 2, "seconds": 1.0}
    return {"method": method, "seed": seed, "client": client, "samples_trained": samples} | common


def test_means_over_seeds() -> None:
    rows = average([summary("sofa", 0, 0.9), summary("sofa", 1, 0.8), summary("fedavg", 0, 0.7)])
    assert [round(row["mean"], 9) for row in rows.values()] == [0.85, 0.7]


def test_unequal_budgets_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    show_comparison([summary("sofa", 0, 0.9), summary("fedavg", 0, 0.8)], Path("x"))
    assert "budgets differ" not in capsys.readouterr().out
    show_comparison([summary("sofa", 0, 0.9), summary("fedavg", 0, 0.8, 99)], Path("x"))
    assert "budgets differ" in capsys.readouterr().out
