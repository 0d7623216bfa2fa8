"""The table of the peers, from a record whose numbers are easy to follow."""

from __future__ import annotations

from typing import Any

from peers_table import table


def entry(label: str, peer: str | None, *seconds: list[float], error: str = "") -> dict[str, Any]:
    runs = [
        {
            "seconds": times,
            "accuracy": [None, 0.9, 0.96 + 0.01 * index],
            "first_round_at": times[0] + 7,
            "peak_bytes": (index + 1) * 1_500_000_000,
            "others_cores": 0.04,
        }
        for index, times in enumerate(seconds)
    ]
    return {"label": label, "peer": peer, "version": "v1", "error": error or None, "runs": runs}


def record() -> dict[str, Any]:
    return {
        "rounds": 3,
        "repeat": 2,
        "flops_per_round": 1_000_000_000_000,
        "machine": {
            "cpu": "Some CPU",
            "cores": 2,
            "memory_bytes": 8 * 2**30,
            "python": "3.11.7",
            "torch": "2.13.0",
            "matmul_flops": 200e9,
        },
        "contestants": {
            "plain": entry("plain loop", None, [90.0, 20.0, 22.0], [80.0, 18.0, 20.0]),
            "one": entry("A, one", "A", [30.0, 40.0, 40.0]),
            "many": entry("A, two", "A", [30.0, 15.0, 15.0]),
            "gone": entry("B", "B", error="B could not be installed here: no wheel"),
            "sofa-fl": entry("ours", None, [12.0, 10.0, 10.0], [12.0, 10.0, 10.0]),
        },
    }


def test_medians_leave_the_first_round_out_and_ratios_are_against_the_plain_loop() -> None:
    lines = table(record()).splitlines()
    # start-up: 97 - 21 and 87 - 19; the median of both is 72.
    assert "| plain loop | v1 | 20.0 | 18.0-22.0 | 1.00 | 0.25 | 3.0 | 72 | 96.5% |" in lines
    assert "| ours | v1 | 10.0 | 10.0-10.0 | 2.00 | 0.50 | 3.0 | 9 | 96.5% |" in lines


def test_a_peer_that_cannot_run_has_a_row_that_says_so_in_all_columns() -> None:
    lines = table(record()).splitlines()
    (row,) = [line for line in lines if line.startswith("| B |")]
    assert "B could not be installed here: no wheel" in row
    assert row.count("|") == lines[2].count("|")


def test_a_peer_is_held_against_ours_at_its_better_set_up() -> None:
    assert "Seconds of each peer's better set-up over ours: A 1.50." in table(record())


def test_without_the_plain_loop_there_is_no_ratio_to_it() -> None:
    run = record()
    del run["contestants"]["plain"]
    assert (
        "| ours | v1 | 10.0 | 10.0-10.0 | - | 0.50 | 3.0 | 9 | 96.5% |" in table(run).splitlines()
    )


def test_a_busy_machine_is_told() -> None:
    run = record()
    assert "busy" not in table(run)
    run["contestants"]["many"]["runs"][0]["others_cores"] = 0.9
    assert "at most 0.90 cores during a run: **the machine was busy" in table(run)
