"""From the record of a run against the peers to its Markdown table: no measuring here."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]  # of a whole run, as in results/peers.json
Contestant = Mapping[str, Any]  # one of its entries

BUSY = 0.15  # cores; what the kernel and a watcher take stays below

COLUMNS = (
    "contestant",
    "version",
    "seconds a round",
    "spread",
    "times the plain loop",
    "of the matrix product",
    "peak memory, GB",
    "start-up, s",
    "accuracy",
)


def steady_seconds(contestant: Contestant) -> list[float]:
    """Seconds of all rounds of all repetitions but each one's first, which is its warm-up."""
    return [seconds for run in contestant["runs"] for seconds in run["seconds"][1:]]


def median_of(contestant: Contestant | None) -> float | None:
    """Median seconds a round, or None where nothing was measured."""
    seconds = [] if contestant is None or contestant["error"] else steady_seconds(contestant)
    return statistics.median(seconds) if seconds else None


def start_up(contestant: Contestant) -> float:
    """Seconds up to the end of the first round, less an ordinary round (noise aside)."""
    over = statistics.median(
        run["first_round_at"] - statistics.median(run["seconds"][1:]) for run in contestant["runs"]
    )
    return max(0.0, float(over))


def table(record: Record) -> str:
    """The whole report: machine, table, and each peer at its best against ours."""
    lines = [machine_line(record["machine"]), "", _row(COLUMNS), "|" + "---|" * len(COLUMNS)]
    lines += [_contestant_row(c, record) for c in record["contestants"].values()]
    lines += ["", *_remarks(record)]
    return "\n".join(lines)


def machine_line(machine: Mapping[str, Any]) -> str:
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"Python {machine['python']}, torch {machine['torch']}; "
        f"matrix product {machine['matmul_flops'] / 1e9:.0f} GFLOP/s"
    )


def _contestant_row(contestant: Contestant, record: Record) -> str:
    label, median = contestant["label"], median_of(contestant)
    if median is None:
        return _row((label, contestant["version"], contestant["error"]), len(COLUMNS))
    seconds, runs = steady_seconds(contestant), contestant["runs"]
    plain = median_of(record["contestants"].get("plain"))
    share = record["flops_per_round"] / median / record["machine"]["matmul_flops"]
    return _row(
        (
            label,
            contestant["version"],
            f"{median:.1f}",
            f"{min(seconds):.1f}-{max(seconds):.1f}",
            "-" if plain is None else f"{plain / median:.2f}",
            f"{share:.2f}",
            f"{max(run['peak_bytes'] for run in runs) / 1e9:.1f}",
            f"{start_up(contestant):.0f}",
            f"{100 * statistics.mean(run['accuracy'][-1] for run in runs):.1f}%",
        )
    )


def _remarks(record: Record) -> list[str]:
    contestants = record["contestants"]
    remarks = [
        f"Rounds: {record['rounds']}, the first of them a warm-up; repetitions: {record['repeat']}."
    ]
    ours = median_of(contestants.get("sofa-fl"))
    best: dict[str, float] = {}
    for contestant in contestants.values():
        peer, median = contestant["peer"], median_of(contestant)
        if peer and median is not None:
            best[peer] = min(median, best.get(peer, median))
    if ours is not None and best:
        ratios = ", ".join(f"{peer} {median / ours:.2f}" for peer, median in best.items())
        remarks.append(f"Seconds of each peer's better set-up over ours: {ratios}.")
    others = [run["others_cores"] for c in contestants.values() for run in c["runs"]]
    if others:
        quiet = max(others) < BUSY
        remarks.append(
            f"Other processes took at most {max(others):.2f} cores during a run"
            + ("." if quiet else ": **the machine was busy, and the times mean little**.")
        )
    return remarks


def _row(cells: tuple[str, ...], width: int | None = None) -> str:
    cells += ("",) * ((width or len(cells)) - len(cells))
    return f"| {' | '.join(cells)} |"
