"""What made the rows of a table, for its caption: code, precision and engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from study.design.contenders import FULL, title
from study.pages.markdown import folded, listed, seeds_told
from study.rows.row_files import ORIGIN, Row, of_method

OURS = ("sofa", FULL)  # labels of SOFA-FL itself
NAMED = 6  # at most; more methods than this are counted
DIGITS = 8  # of the digest of a code
PRECISION = "local.precision"


def made_by(rows: Iterable[Row], name: Callable[[str], str] = title) -> str:
    """`Rows: SOFA-FL in float32, ...; FedAvg in bf16, ...`: all groups of rows that differ."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(how_made(row), []).append(row)
    if not found:
        return ""
    if len(found) == 1:
        return f"All rows: {next(iter(found))}.\n"
    every = [row for of in found.values() for row in of]
    groups = sorted(found.items(), key=lambda group: (not _has_ours(group[1]), -len(group[1])))
    said = (f"{_who(of, every, name)}: {how}" for how, of in groups)
    return "\n".join(folded(f"Rows: {'; '.join(said)}.")) + "\n"


def precisions_in(rows: Iterable[Row]) -> set[str]:
    return {_precision(row) for row in rows}


def how_made(row: Row) -> str:
    """`float32, stacked, version 0.1.0, code 72dbb8b1`, as far as the row says so."""
    origin: Mapping[str, str] = row.get(ORIGIN, {})
    engine = row.get("engine", "engine not recorded")
    version = [f"version {origin['version']}"] if "version" in origin else []
    code = f"code {origin['code'][:DIGITS]}" if "code" in origin else "before code was recorded"
    return ", ".join([_precision(row), engine, *version, code])


def by_precision(compared: Sequence[Row], again: Sequence[Row]) -> str:
    """How far SOFA-FL's rows are from those of the same runs in another precision, if there are."""
    ours = {_run_of(row): row for row in of_method(compared, "sofa")}
    pairs = [(ours[at], row) for row in of_method(again, FULL) if (at := _run_of(row)) in ours]
    pairs = [(one, other) for one, other in pairs if precisions_in([one]) != precisions_in([other])]
    if not pairs:
        return ""
    others = precisions_in(other for _, other in pairs)
    apart = {}
    for key in ("mean", "min"):
        gaps: dict[Any, list[float]] = {}
        for one, other in pairs:
            gaps.setdefault(_run_of(one)[:2], []).append(100 * (one[key] - other[key]))
        apart[key] = (
            max(abs(fmean(of)) for of in gaps.values()),
            max(abs(gap) for of in gaps.values() for gap in of),
        )
    (mean, mean_once), (worst, worst_once) = apart.values()
    return (
        f"{len(pairs)} of SOFA-FL's runs were also made in {listed(sorted(others))}, for the "
        "ablation below.\n"
        f"The means over seeds differ by up to {mean:.2f} points for the mean client and "
        f"{worst:.2f} for the worst, single seeds by up to {mean_once:.2f} and {worst_once:.2f}.\n"
        "So a lead over rows of another precision that is no larger than this may come from it.\n\n"
    )


def _run_of(row: Row) -> tuple[str, float, int]:
    return row["setting"], row["sharing"], row["seed"]


def _precision(row: Row) -> str:
    """What the run recorded, else what it was given."""
    given: Mapping[str, str] = {**row.get("overrides", {}), **row.get("extra", {})}
    recorded: str | None = row.get(ORIGIN, {}).get("precision")
    return recorded or given.get(PRECISION) or "precision not recorded"


def _who(rows: Sequence[Row], every: Sequence[Row], name: Callable[[str], str]) -> str:
    """The methods of some of all rows, how many rows these are, and which seeds if not all."""
    labels = list(dict.fromkeys(row["method"] for row in rows))
    ours, others = ([x for x in labels if (x in OURS) == is_ours] for is_ours in (True, False))
    words = [name(label) for label in others]
    if len(others) > NAMED:
        is_all = set(others) == {row["method"] for row in every} - set(OURS)
        words = [f"{'all' if is_all else len(others)} other methods"]
    count = f"{len(rows)} row{'s' * (len(rows) > 1)}"
    seeds, all_seeds = (sorted({row["seed"] for row in of}) for of in (rows, every))
    if seeds != all_seeds:
        count += f", {seeds_told(seeds)}"
    return f"{listed(list(dict.fromkeys([*map(name, ours), *words])))} ({count})"


def _has_ours(rows: Sequence[Row]) -> bool:
    return any(row["method"] in OURS for row in rows)
