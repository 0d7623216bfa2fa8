"""Clients that fail, as Markdown: bad updates, partial participation, dropouts, stragglers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from study.design.drift_settings import (
    AGGREGATES,
    CLEAN,
    FAULTY,
    KINDS,
    PARTIAL,
    STRAGGLERS,
    VARIANTS,
    variant,
)
from study.pages.made_by import made_by
from study.pages.markdown import NOTHING, difference, in_percent, listed, table
from study.pages.sharing_words import shared
from study.rows.estimates import Paired, paired
from study.rows.recovery import POINT
from study.rows.row_files import Row

By = Mapping[str, Sequence[Row]]  # the rows of every variant
FULL = variant(CLEAN, "mean")
SENT = {
    "nan": "NaN",
    "huge": "100 times too long",
    "flip": "the negated update",
    "mixed": "one of these three, by client",
}
NAMES = {PARTIAL: "0.3 take part, and 0.2 of these drop out", STRAGGLERS: "half are stragglers"}


def faults_tables(rows: Sequence[Row]) -> str:
    """All faults, a table per setting and sharing."""
    return "\n".join([*bad_parts(rows), *attendance_parts(rows)])


def bad_parts(rows: Sequence[Row]) -> Iterator[str]:
    """Bad updates: a table per setting and sharing, and whether they harm honest clients."""
    gaps: dict[str, Paired] = {}
    unsound: list[str] = []
    for where, by in _places(rows):
        lines = []
        for label, kind, how in _variants(by):
            own = _gap(by, label, variant(CLEAN, how), "honest")
            gaps |= {f"{where}: {label}": own} if own else {}
            unsound += [] if all(row["finite"] for row in by[label]) else [f"{where}: {label}"]
            cells = [*_bad_cells(by[label]), difference(own)]
            cells += [difference(_gap(by, label, FULL, "honest"))]
            lines.append([f"{SENT[kind]}, {how}", *cells])
        if lines:
            made = made_by((r for of in by.values() for r in of), str)
            yield f"**{where}**\n\n{table(BAD_HEAD, lines)}\n{made}"
    if gaps:
        yield _said_bad(gaps, unsound)


BAD_HEAD = ["", "honest clients", "their tree: ARI", "rejected per round", "seeds"]
BAD_HEAD += ["minus no bad ones, same average", "minus no bad ones, mean"]


def attendance_parts(rows: Sequence[Row]) -> Iterator[str]:
    """Partial participation, dropouts and stragglers, against all clients at the same budget."""
    head = ["", "mean", "worst", "minus all: mean", "worst", "rounds", "samples asked for"]
    head += ["updates used", "ARI at the end", "seeds"]
    lines = []
    for where, by in _places(rows):
        for label in (FULL, PARTIAL, STRAGGLERS):
            if label in by:
                name = NAMES.get(label, "all, every round")
                lines.append([f"{where}: {name}", *_attendance_cells(by, label)])
    if said := list(_said_attendance(rows)):
        shown = [row for row in rows if row["method"] in (FULL, PARTIAL, STRAGGLERS)]
        yield f"{table(head, lines)}\n{made_by(shown, str)}\n{''.join(said)}"


def _bad_cells(rows: Sequence[Row]) -> list[str]:
    return [
        in_percent(fmean(row["honest"][-1] for row in rows)),
        _ari(rows, "honest_ari"),
        f"{fmean(fmean(row['set_aside']) for row in rows):.1f}",
        str(len(rows)),
    ]


def _attendance_cells(by: By, label: str) -> list[str]:
    rows = by[label]
    keys = ("accuracy", "worst")
    gaps = [_gap(by, label, FULL, key) for key in keys]
    samples = sorted({row["samples_trained"] for row in rows})
    return [
        *(in_percent(fmean(row[key][-1] for row in rows)) for key in keys),
        *("" if label == FULL else difference(gap) for gap in gaps),
        " / ".join(str(n) for n in sorted({len(row["accuracy"]) - 1 for row in rows})),
        " / ".join(f"{n:,}" for n in samples),
        f"{fmean(sum(row['heard']) for row in rows):,.0f}",
        _ari(rows, "ari"),
        str(len(rows)),
    ]


def _said_bad(gaps: Mapping[str, Paired], unsound: Sequence[str]) -> str:
    short = [name for name, gap in gaps.items() if gap.estimate.mean < -POINT]
    least = min(gaps, key=lambda name: gaps[name].estimate.mean)
    verdict = (
        f"**not** in {listed(short)}" if short else f"in all {len(gaps)} comparisons of this kind"
    )
    finite = f"**not** in {listed(unsound)}" if unsound else "in all of these runs"
    return (
        f"- The mean of honest clients is within a point of that of the same clients without bad "
        f"ones, with the same average: {verdict}.\n"
        f"- The largest cost is {difference(gaps[least])} points ({least}).\n"
        f"- Every loss of every model that a client uses is finite: {finite}.\n"
    )


def _said_attendance(rows: Sequence[Row]) -> Iterator[str]:
    for where, by in _places(rows):
        for label, name in NAMES.items():
            if label in by and (gap := _gap(by, label, FULL, "accuracy")):
                asked, full = (
                    fmean(row["samples_trained"] for row in by[each]) for each in (label, FULL)
                )
                yield (
                    f"- {where}: if {name}, the mean client has {difference(gap)} points against "
                    f"full participation.\n  Of its samples {asked / full:.0%} are asked for.\n"
                )


def _places(rows: Sequence[Row]) -> Iterator[tuple[str, dict[str, list[Row]]]]:
    """Every setting and sharing that has rows: its name, and its rows by variant."""
    for name, setting in FAULTY.items():
        for sharing in setting.sharing:
            here = [r for r in rows if (r["setting"], r["sharing"]) == (name, sharing)]
            by = {label: [r for r in here if r["method"] == label] for label in VARIANTS}
            if here:
                words = f", {shared(here)}" if sharing else ""
                yield f"{name}{words}", {label: of for label, of in by.items() if of}


def _variants(by: By) -> list[tuple[str, str, str]]:
    every = [(variant(kind, how), kind, how) for kind in KINDS for how in AGGREGATES]
    return [found for found in every if found[0] in by]


def _gap(by: By, label: str, than: str, key: str) -> Paired | None:
    """A variant minus another at the end of the run, seed by seed."""
    ends = [{row["seed"]: row[key][-1] for row in by.get(name, ())} for name in (label, than)]
    return paired(*ends)


def _ari(rows: Sequence[Row], key: str) -> str:
    known = all(key in row for row in rows)
    return f"{fmean(row[key][-1] for row in rows):.2f}" if known else NOTHING
