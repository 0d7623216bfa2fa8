"""The benchmark of the zoo runs without a GPU, and what fails is a row."""

from __future__ import annotations

from typing import Any

import pytest
import zoo
from zoo import TOLERANCE, Row, allowed, apart, judged_again, measure, plain, table


def test_a_network_is_measured_in_every_precision() -> None:
    rows = measure("MLP", ["float32", "bf16"], 2, 2, 4, gpu=False)
    assert [row.precision for row in rows] == ["float32", "bf16"]
    assert all(row.is_same and row.speed and not row.error for row in rows)
    lines = table(rows).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| MLP | float32 | stacked layer by layer, not captured | ")
    assert "not the same" not in table(rows)


def test_what_fails_or_differs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise RuntimeError("CUDA error: misaligned address\nand more")

    monkeypatch.setattr(zoo, "StackedEngine", fail)
    rows = measure("MLP", ["float32", "bf16"], 2, 2, 4, gpu=False)
    assert [row.error for row in rows] == ["RuntimeError CUDA error: misaligned address"] * 2
    assert "**failed**: RuntimeError CUDA error" in table(rows)
    other = Row("MLP", "float32", "", 1.0, 0.5, difference=0.2, allowed=0.1)
    assert "| 2.0 |" in table([other])
    assert "**not the same**" in table([other])


def test_a_process_that_dies_is_a_sentence() -> None:
    said, wrong = apart("--one", "no such network")
    assert not said
    assert wrong.startswith("its process ended with 2: zoo.py: error: argument --one: invalid")


def test_lower_precision_is_allowed_no_less_than_float32() -> None:
    assert allowed(0.0) == allowed(TOLERANCE / 30) == TOLERANCE
    assert allowed(TOLERANCE) == pytest.approx(3 * TOLERANCE)


def test_a_recorded_run_is_judged_by_the_present_limits() -> None:
    strict = Row("GRU", "bf16", difference=0.9 * TOLERANCE, allowed=0.3 * TOLERANCE)
    apart_from_it = Row("MLP", "bf16", difference=1.1 * TOLERANCE, allowed=0.3 * TOLERANCE)
    rows = plain([strict, apart_from_it, Row("ViT", error="no")])
    record: dict[str, Any] = {"machine": "a GPU", "rows": rows}
    assert [row["same"] for row in record["rows"]] == [False, False, False]
    again = judged_again(record)
    assert [row["same"] for row in again["rows"]] == [True, False, False]
    assert again["rows"][0]["allowed"] == TOLERANCE
    assert judged_again(again) == again
