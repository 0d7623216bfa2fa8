"""What sharing brings by what it discloses, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from study.design.disclosure_settings import (
    DEFAULT,
    DISCLOSURE_SETTINGS,
    DISCLOSURES,
    NONE,
    ON_CURVE,
    UNCAPPED,
    WAYS,
)
from study.pages.made_by import made_by
from study.pages.markdown import NOTHING, bold, difference, in_percent, table, with_interval
from study.rows.estimates import Paired, estimate, paired
from study.rows.row_files import Row, by_seed, column, of_method

DISCLOSURE = "disclosure.json"
MEASURES = {"mean": "mean client", "min": "worst client"}


def of(rows: Sequence[Row], setting: str, label: str) -> list[Row]:
    """The rows of a way of sharing in a setting."""
    return [row for row in of_method(rows, label) if row["setting"] == setting]


def gain(rows: Sequence[Row], setting: str, label: str, key: str) -> Paired | None:
    """A way of sharing minus no sharing, seed by seed."""
    return paired(*(by_seed(of(rows, setting, each), key) for each in (label, NONE)))


def disclosure_table(rows: Sequence[Row]) -> str:
    """All ways of sharing: a table per setting, the default in bold."""
    parts = []
    for name, setting in DISCLOSURE_SETTINGS.items():
        if lines := [_line(rows, name, label) for label in DISCLOSURES if of(rows, name, label)]:
            made = made_by((row for row in rows if row["setting"] == name), str)
            parts.append(f"**{name}: {setting.title}**\n\n{table(HEAD, lines)}\n{made}")
    return "\n".join(parts)


HEAD = [
    "", "disclosed", "mean client", "worst client", "mean − no sharing", "worst − no sharing"
]  # fmt: skip


def _line(rows: Sequence[Row], setting: str, label: str) -> list[str]:
    here = of(rows, setting, label)
    name = bold(f"{label} (the default)") if label == DEFAULT else label
    cells = [with_interval(estimate(column(here, key))) for key in MEASURES]
    if label == NONE:
        gains = [NOTHING] * len(MEASURES)
    else:
        gains = [difference(gain(rows, setting, label, key)) for key in MEASURES]
    return [name, f"{in_percent(fmean(column(here, 'disclosed')), 1)}%", *cells, *gains]


def findings(rows: Sequence[Row]) -> str:
    """What the rows say of every setting, a sentence each."""
    return "".join(f"- {said}\n" for said in _findings(rows))


def _findings(rows: Sequence[Row]) -> Iterator[str]:
    for name in DISCLOSURE_SETTINGS:
        for key, told in MEASURES.items():
            most = gain(rows, name, UNCAPPED, key)
            if most is None:
                continue
            said = f"{name}, {told}: without a cap, sharing changes it by {difference(most)} points"
            if not most.is_ahead:
                yield f"{said}, which could be chance."
                continue
            capped = {
                label: gap
                for label in ON_CURVE
                if label not in (NONE, UNCAPPED) and (gap := gain(rows, name, label, key))
            }
            kept = [
                f"{gap.estimate.mean / most.estimate.mean:.0%} of that at {label}"
                for label, gap in capped.items()
            ]
            yield f"{said}; " + ", ".join(kept) + "."
            if capped:
                best = max(capped, key=lambda label: capped[label].estimate.mean)
                yield f"{name}, {told}: with a cap, {best} brings most, {difference(capped[best])}."


def ways(rows: Sequence[Row]) -> str:
    """Three ways to disclose the same share: their gains, a line each."""
    lines = [
        [
            label,
            *(
                difference(gain(rows, s, label, key))
                for s in DISCLOSURE_SETTINGS
                for key in MEASURES
            ),
        ]
        for label in WAYS
        if of_method(rows, label)
    ]
    head = [
        "minus no sharing",
        *(f"{s}, {told}" for s in DISCLOSURE_SETTINGS for told in MEASURES.values()),
    ]
    return table(head, lines)
