"""A row that was edited by hand is noticed, and so is one that other code made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sofa_fl.api.runs import run
from sofa_fl.experiment.run.config import code_digest
from study.rows.row_files import add_rows, make_row, read_rows
from study.rows.seals import broken, digest_of, outdated, read_unsealed
from tests.experiment.cases import own_data, tiny

RESULTS = Path(__file__).parents[2] / "results"
FILES = ("ablation", "benchmark", "drift", "drift_sweep", "faults", "sweep", "table1", "table2")


@pytest.mark.parametrize("name", FILES)
def test_no_published_row_was_edited(name: str) -> None:
    rows = read_rows(RESULTS / f"{name}.json")
    assert rows
    assert broken(rows, read_unsealed(RESULTS)) == []


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tiny(tmp_path_factory.mktemp("seal") / "run"), data=own_data()).summary


def test_a_row_says_what_it_was_made_of(summary: dict[str, Any], tmp_path: Path) -> None:
    row = make_row("S1", "sofa", 0.1, 0, {}, summary)
    assert row["provenance"]["code"] == code_digest()
    assert row["provenance"]["precision"] == "float32"
    add_rows(tmp_path / "rows.json", [row])
    (kept,) = read_rows(tmp_path / "rows.json")
    assert broken([kept], []) == []
    assert outdated([kept], code_digest()) == []
    assert outdated([kept], "other code") == [kept]
    edited = {**kept, "mean": 0.99}
    assert broken([edited], []) == [edited]
    bare = {key: value for key, value in row.items() if key != "provenance"}
    assert broken([bare], []) == [bare], "a row without an origin is known, or was made up"
    assert broken([bare], [digest_of(bare)]) == []


def test_the_same_experiment_has_the_same_origin(summary: dict[str, Any], tmp_path: Path) -> None:
    """Wherever it lies; other settings or other data have another one."""
    same = run(tiny(tmp_path / "same"), data=own_data()).summary["provenance"]
    assert same == summary["provenance"]
    other = run(tiny(tmp_path / "other", seed=1), data=own_data()).summary["provenance"]
    assert other["config"] != same["config"]
    data = run(tiny(tmp_path / "data"), data=own_data(1)).summary["provenance"]
    assert data["data"] != same["data"]
    assert (data["config"], data["code"]) == (same["config"], same["code"])
    json.dumps(same)
