from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sofa_fl.errors import RunError
from study.rows.row_files import add_rows, make_row, read_rows, row_key
from tests.experiment.faults import full_disk
from tests.study.cases import row

SUMMARY: dict[str, Any] = {
    "client": {"mean": 0.9, "std": 0.1, "min": 0.7, "gap": 0.3, "jain": 0.99, "bottom10": 0.7},
    "full": 0.8,
    "root": 0.75,
    "samples_trained": 100,
    "seconds": 2.5,
    "engine": "stacked",
}


def test_what_is_kept_of_a_run() -> None:
    made = make_row("S1", "fedavg+", 0.1, 3, {"b": 1, "a": 2}, SUMMARY)
    assert row_key(made) == ("S1", "fedavg+", 0.1, 3)
    assert (made["mean"], made["full"], made["engine"]) == (0.9, 0.8, "stacked")
    assert list(made["overrides"]) == ["a", "b"]
    sent = {"rounds": 9, "bytes_down": 50_000_000, "bytes_up": 20_000_000}
    counted = make_row("S1", "fedavg+", 0.1, 3, {}, {**SUMMARY, **sent})
    assert (counted["down"], counted["up"]) == (5.0, 2.0)


def test_of_true_groups_the_level_that_was_found_worst() -> None:
    groups = {"ari": [1.0, 0.4], "purity": [0.9, 1.0]}
    made = make_row("S4", "sofa", 0.0, 0, {}, {**SUMMARY, "groups": groups})
    assert (made["ari"], made["purity"]) == (0.4, 0.9)


def test_the_file_does_not_depend_on_the_order(tmp_path: Path) -> None:
    made = [row("sofa", 0), row("sofa", 1), row("fedavg", 0), row("fedavg", 0, setting="S2")]
    for name, order in (("a", made), ("b", made[::-1])):
        for one in order:
            add_rows(tmp_path / name, [one])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert len(read_rows(tmp_path / "a")) == 4


def test_equal_keys_are_replaced_and_others_stay(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    add_rows(file, [row("sofa", 0, 0.5), row("sofa", 1, 0.6)])
    after = add_rows(file, [row("sofa", 1, 0.7)])
    assert [one["mean"] for one in after] == [0.5, 0.7]
    assert read_rows(file) == after


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text("[{")
    with pytest.raises(RunError, match="damaged"):
        read_rows(tmp_path / "rows.json")
    assert read_rows(tmp_path / "none.json") == []


def test_a_full_disk_leaves_the_rows_there_are(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    add_rows(file, [row("sofa", 0, 0.5)])
    before = file.read_bytes()
    for room in (0, 1, len(before), len(before) + 7):
        with full_disk("rows.json", room), pytest.raises(RunError, match="No space left"):
            add_rows(file, [row("sofa", 1, 0.6)])
        assert file.read_bytes() == before
        assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]
