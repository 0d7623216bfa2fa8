from __future__ import annotations

from typing import Any

import pytest

from sofa_fl.report.words import FLAT, USUAL, changes_in_words, decline, remarks


def record(round: int, mean: float, *edits: str, **more: Any) -> dict[str, Any]:
    kinds = [{"edit": kind} for kind in edits]
    return {"round": round, "client": {"mean": mean}, "edits": kinds, "num_clients": 9, **more}


@pytest.mark.parametrize(
    ("records", "told"),
    [
        (
            [record(0, 0.97), record(1, 0.85, "merge", "merge"), record(2, 0.84)],
            "The mean has fallen 13.0 points since the warm-up, most of it in round 1, "
            "after 2 merges.",
        ),
        (
            [record(0, 0.5), record(1, 0.97, "split"), record(2, 0.9)],
            "The mean has fallen 7.0 points since round 1, most of it in round 2, "
            "after 1 split of the round before.",
        ),
        (
            [record(0, 0.9), record(1, 0.7, "graft", data={"changed": [1, 2], "left": [3]})],
            "The mean has fallen 20.0 points since the warm-up, most of it in round 1, "
            "when the data of 2 clients changed and 1 client left.",
        ),
        (
            [record(0, 0.9), record(1, 0.8)],
            "The mean has fallen 10.0 points since the warm-up, most of it in round 1, "
            "without any edit of the tree.",
        ),
        ([record(0, 0.9, "merge"), record(1, 0.895), record(2, 0.91)], None),
        ([record(0, 0.9)], None),
    ],
)
def test_what_made_a_run_worse(records: list[dict[str, Any]], told: str | None) -> None:
    assert decline(records, "accuracy") == told


def test_r2_falls_by_a_number() -> None:
    told = decline([record(0, 0.5), record(1, 0.2)], "r2")
    assert told is not None
    assert told.startswith("The mean has fallen by 0.30 since the warm-up")


def test_a_flat_tree_is_explained() -> None:
    records = [record(0, 0.9), record(1, 0.95)]
    assert remarks(records, method="sofa", depth=1, metric="accuracy") == [f"{FLAT} {USUAL}"]
    assert remarks(records, method="sofa", depth=1, metric="r2") == [FLAT], "there are no classes"
    assert remarks(records, method="sofa", depth=2, metric="accuracy") == []
    assert remarks(records, method="fedavg", depth=1, metric="accuracy") == []
    few = [record(0, 0.9, num_clients=2)]
    assert remarks(few, method="sofa", depth=1, metric="accuracy") == []
    assert remarks([], method="sofa", depth=1, metric="accuracy") == []


def test_changes_in_words() -> None:
    assert changes_in_words({}) == ""
    assert changes_in_words({"joined": [1]}) == "1 client joined"
