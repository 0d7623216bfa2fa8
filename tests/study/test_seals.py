"""A row that was edited by hand is noticed, and so is one that other code made."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import sofa_fl
from sofa_fl.api.runs import run
from sofa_fl.experiment.run.config import code_digest
from study.rows.origins import codes_of, commits_of, row_files
from study.rows.row_files import add_rows, make_row, read_rows
from study.rows.seals import ORIGIN, broken, outdated, read_unsealed, row_digest
from tests.experiment.cases import own_data, tiny

ROOT = Path(__file__).parents[2]
RESULTS, README = ROOT / "results", ROOT / "README.md"
FILES = dict(row_files(RESULTS))
OLD = ("faults.json",)
UNEVEN = ("choices.json", "adapters.json")  # their pages say how many seeds
NEW = (
    "natural.json", "table1.json", "table2.json", "ablation.json", "disclosure.json",
    "privacy.json",
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_no_published_row_was_edited(name: str) -> None:
    assert FILES[name]
    assert broken(FILES[name], read_unsealed(RESULTS)) == []


@pytest.mark.parametrize("name", FILES)
def test_no_published_row_is_a_copy(name: str) -> None:
    """Two runs differ at least by their seed, and so do their configurations."""
    # Contenders that train other parts of the same encoder have the same configuration.
    network = (lambda row: row["method"]) if name.startswith("adapter") else (lambda row: "")
    made_of = [
        (network(row), *(row[ORIGIN][key] for key in ("code", "config", "data")))
        for row in FILES[name]
        if ORIGIN in row
    ]
    assert len(set(made_of)) == len(made_of)


@pytest.mark.parametrize("name", [n for n in FILES if n not in UNEVEN])
def test_no_published_row_is_missing(name: str) -> None:
    """All methods of a setting have the same seeds."""
    seeds = defaultdict(set)
    for row in FILES[name]:
        overrides = json.dumps(row["overrides"]) if "sweep" in name else ""
        seeds[row["setting"], row["method"], row["sharing"], overrides].add(row["seed"])
    for setting in {row["setting"] for row in FILES[name]}:
        assert len({frozenset(seeds[key]) for key in seeds if key[0] == setting}) == 1, setting


def test_the_code_that_rows_claim_is_in_the_history() -> None:
    """A run of code that was never committed cannot be repeated."""
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("there is no whole history here")
    claimed = {code for rows in FILES.values() for code in codes_of(rows)} - {""}
    assert claimed
    assert set(commits_of(claimed, RESULTS)) == claimed, "python -m study.rows.origins results"


def test_the_readme_calls_those_rows_old_that_are() -> None:
    """Whoever replaces rows without an origin must change this sentence."""
    for name in OLD:
        assert not any(ORIGIN in row for row in FILES[name]), name
    for name in NEW:
        assert all(ORIGIN in row for row in FILES[name]), name
    for name in ("benchmark.json", "drift.json"):
        ours = [row for row in FILES[name] if row["method"] == "sofa"]
        assert ours
        assert all(ORIGIN in row for row in ours)
    assert "The tables on faults are older" in README.read_text("utf-8")


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=RESULTS, capture_output=True, text=True, check=False)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tiny(tmp_path_factory.mktemp("seal") / "run"), data=own_data()).summary


def test_a_row_says_what_it_was_made_of(summary: dict[str, Any], tmp_path: Path) -> None:
    row = make_row("S1", "sofa", 0.1, 0, {}, summary)
    assert row["provenance"]["code"] == code_digest()
    assert row["provenance"]["precision"] == "float32"
    assert row["provenance"]["version"] == sofa_fl.__version__
    add_rows(tmp_path / "rows.json", [row])
    (kept,) = read_rows(tmp_path / "rows.json")
    assert broken([kept], []) == []
    assert outdated([kept], code_digest()) == []
    assert outdated([kept], "other code") == [kept]
    edited = {**kept, "mean": 0.99}
    assert broken([edited], []) == [edited]
    bare = {key: value for key, value in row.items() if key != "provenance"}
    assert broken([bare], []) == [bare], "a row without an origin is known, or was made up"
    assert broken([bare], [row_digest(bare)]) == []


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
