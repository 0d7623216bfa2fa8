"""What `sofa_fl.run` does besides what the loop does: a report at the end, which breaks nothing."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from torch import nn

import sofa_fl
from sofa_fl.report import page
from tests.experiment.cases import tiny


def test_a_run_from_python_ends_with_its_report(tmp_path: Path) -> None:
    told: list[str] = []
    config = tiny(tmp_path / "run", rounds=1)
    result = sofa_fl.run(config, observers=[lambda event: told.append(event["event"])])
    assert "<!doctype html>" in (result.run / page.REPORT).read_text("utf-8").lower()[:200]
    assert told[-1] == "end", "an observer of the caller's own is told too"


def test_a_report_that_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_args: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(page, "write_report", fail)
    result = sofa_fl.run(tiny(tmp_path / "run", rounds=1))
    assert (result.run / "summary.json").exists()
    assert [record.getMessage() for record in caplog.records] == [
        "write_run_report failed: no room; the run continues without it"
    ]


def test_all_ways_to_run_take_the_same_parts() -> None:
    parts = {"data", "network", "metrics", "observers", "progress"}
    for function, others in (
        (sofa_fl.run, {"config", "method"}),
        (sofa_fl.resume, {"path", "method"}),
        (sofa_fl.run_or_resume, {"config", "method"}),
        (sofa_fl.compare, {"methods", "config", "seeds", "as_published"}),
    ):
        assert set(inspect.signature(function).parameters) == parts | others


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> sofa_fl.Result:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    by = np.array(["<b>oslo", "rome", "lima", "kyoto"])[np.arange(200) % 4]
    data = sofa_fl.deal(sofa_fl.from_arrays(x, (x[:, 0] > 0).astype(int)), by, standardize=True)
    out = tmp_path_factory.mktemp("api") / "run"
    return sofa_fl.run(tiny(out, rounds=2), data=data, network=lambda: nn.Linear(3, 2))


def test_a_result_is_short_in_a_session_and_a_picture_in_a_notebook(
    hospitals: sofa_fl.Result,
) -> None:
    text = repr(hospitals)
    assert text.startswith("<SOFA-FL on own: 4 clients, 2 rounds, accuracy ")
    assert len(text) < 200
    page = hospitals._repr_html_()
    assert page.count("<svg") == 1
    assert "<td>rome</td>" in page
    assert "<b>oslo" not in page, "names are text"
    assert str(hospitals.report) in page


def test_inputs_that_are_no_images_need_no_network(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    data = sofa_fl.deal(sofa_fl.from_arrays(x, (x[:, 0] > 0).astype(int)), np.arange(60) % 3)
    config = sofa_fl.Config(rounds=1, warmup=2, engine="sequential", out=str(tmp_path / "run"))
    assert sofa_fl.run(config, data=data).summary["client"]["mean"] > 0
    recorded = sofa_fl.load_config(tmp_path / "run" / "config.yaml")
    assert (recorded.model.name, recorded.own) == ("mlp", ("data",))


def test_typed_scores_and_rounds(hospitals: sofa_fl.Result) -> None:
    scores = {one.name: one for one in hospitals.clients}
    assert list(scores) == ["<b>oslo", "kyoto", "lima", "rome"]
    assert scores["rome"].client == 3
    values = hospitals.summary["client"]["accuracies"]
    assert [one.score for one in hospitals.clients] == values
    assert hospitals.mean == pytest.approx(np.mean(values))
    assert hospitals.worst == min(values)
    assert [record.round for record in hospitals.rounds()] == [0, 1, 2]
    assert hospitals.rounds()[-1].tree == hospitals.tree


def test_a_table_of_rounds_and_clients(
    hospitals: sofa_fl.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = hospitals.columns()
    assert list(columns) == ["round", "client", "name", "accuracy", "cluster"]
    assert {len(column) for column in columns.values()} == {3 * 4}
    stub = ModuleType("pandas")
    stub.DataFrame = lambda columns: ("frame", columns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", stub)
    assert hospitals.frame() == ("frame", columns)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(sofa_fl.SofaError, match="pip install pandas"):
        hospitals.frame()


def test_predictions_by_a_clients_name(hospitals: sofa_fl.Result, tmp_path: Path) -> None:
    """The network that the run was given need not be passed again."""
    x = np.random.default_rng(1).normal(size=(5, 3))
    named = hospitals.predict(x, client="rome")
    np.testing.assert_array_equal(named, hospitals.predict(x, client=3))
    assert named.shape == (5, 2)
    assert not np.array_equal(named, hospitals.predict(x))
    told = hospitals.export(tmp_path / "rome.safetensors", client="rome")
    assert told.node == "client:rome"


def test_progress_is_a_line_that_is_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sofa_fl.run(tiny(tmp_path / "silent", rounds=1))
    assert capsys.readouterr().err == "", "nobody looks on"
    result = sofa_fl.run(tiny(tmp_path / "run", rounds=2), progress=True)
    said = capsys.readouterr().err
    lines = said.split("\r")
    assert "warm-up done, mean " in said
    assert "round 1/2, mean " in said
    assert "scoring every level, step 2 of" in said
    assert "done in 0:0" in lines[-1]
    assert said.split("\n")[1:] == [*(f"note: {note}" for note in result.notes), ""]


def test_a_comparison_over_seeds(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(120, 3))
    data = sofa_fl.deal(sofa_fl.from_arrays(x, (x[:, 0] > 0).astype(int)), np.arange(120) % 3)
    found = sofa_fl.compare(
        ["fedavg", "local"],
        tiny(tmp_path / "runs", rounds=1),
        seeds=[0, 1, 2],
        data=data,
        network=lambda: nn.Linear(3, 2),
    )
    assert isinstance(found, sofa_fl.Comparison)
    means = [result.mean for result in found["local"]]
    assert found.means()["local"].mean == pytest.approx(np.mean(means))
    gaps = np.array(means) - [result.mean for result in found["fedavg"]]
    gap = found.differences()["local"]
    assert gap.mean == pytest.approx(gaps.mean())
    assert gap.half_width == pytest.approx(4.303 * gaps.std(ddof=1) / 3**0.5, rel=1e-3)
    head, first, second, *note = repr(found).splitlines()
    assert head.split() == [
        "method",
        "mean",
        "of",
        "the",
        "clients",
        "worst",
        "client",
        "against",
        "FedAvg+",
    ]
    assert first.startswith("FedAvg+  ")
    assert "+ marks a baseline" in " ".join(note)
    assert second.count("±") == 3
    assert found._repr_html_().count("<tr>") == 3
    single = sofa_fl.compare(
        ["fedavg"], tiny(tmp_path / "one", rounds=1), data=data, network=lambda: nn.Linear(3, 2)
    )
    assert isinstance(single["fedavg"], sofa_fl.Result)
