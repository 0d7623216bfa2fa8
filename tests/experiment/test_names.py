"""Clients that have names are called by them wherever a run is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sofa_fl.api.runs import run
from sofa_fl.cli.main import app
from sofa_fl.data.dealing import deal
from sofa_fl.data.federated_data import ClientData, FederatedData
from sofa_fl.errors import DataError, RunError
from sofa_fl.experiment.run.loop import RunResult
from sofa_fl.experiment.serving.model_files import export
from sofa_fl.report.history import read_round
from sofa_fl.report.page import read_run
from sofa_fl.report.tree_svg import tree_svg
from tests.engine.cases import images
from tests.experiment.cases import events_of, tiny

NAMES = ("cleveland", "hungarian", "switzerland", "va")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    hospitals = np.array(NAMES)[np.arange(160) % 4]
    data = deal(images(160, 0), hospitals)
    assert data.names == NAMES
    return run(tiny(tmp_path_factory.mktemp("names") / "run"), data=data)


def test_events_and_summary(result: RunResult) -> None:
    assert [event["names"] for event in events_of(result.run)] == [list(NAMES)] * 4
    assert result.summary["client"]["names"] == list(NAMES)


def test_the_tree_in_text_json_and_as_a_picture(result: RunResult) -> None:
    shown = CliRunner().invoke(app, ["tree", str(result.run)]).output
    assert "── switzerland" in shown
    assert "client 2" not in shown
    told = json.loads(CliRunner().invoke(app, ["tree", str(result.run), "--json"]).stdout)
    assert {row["client"]: row["name"] for row in told["clients"]} == dict(enumerate(NAMES))
    svg = tree_svg(read_round(result.run))
    assert "<title>cleveland, accuracy" in svg
    assert ">hungarian</text>" in svg


def test_the_page_has_every_name_once(result: RunResult) -> None:
    first, *others = read_run(result.run)["history"]
    assert first["names"] == {str(number): name for number, name in enumerate(NAMES)}
    assert not any("names" in record for record in others)


def test_a_model_by_its_clients_name(result: RunResult, tmp_path: Path) -> None:
    named, numbered = (
        export(result.run, tmp_path / f"{n}.safetensors", node=f"client:{n}") for n in ("va", 3)
    )
    assert named.prior == numbered.prior
    with pytest.raises(RunError, match="client 9 is not in the last round; its clients: cleveland"):
        export(result.run, tmp_path / "a.onnx", node="client:9")


def test_numbers_are_no_names() -> None:
    assert deal(images(60, 0), np.arange(60) % 3).names == ()
    assert deal(images(60, 0), 5 + np.arange(60) % 3).names == ("5", "6", "7")


@pytest.mark.parametrize(
    ("names", "words"),
    [(("a",), "one name for each of the 2 clients, got 1"), (("a", "a"), "got 'a' twice")],
)
def test_names_that_are_refused(names: tuple[str, ...], words: str) -> None:
    samples = images(8, 0)
    clients = tuple(
        ClientData(np.array([i]), np.array([], dtype=np.int64), np.array([i])) for i in (0, 1)
    )
    with pytest.raises(DataError, match=words):
        FederatedData(samples, samples, clients, 4, names=names)
