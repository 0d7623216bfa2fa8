"""SOFA-FL without each of its parts on natural federations, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from study.design.contenders import FULL
from study.design.natural_contenders import PARTS, PARTS_IN
from study.pages.made_by import made_by
from study.pages.markdown import bold, difference, in_percent, item, listed, points, table
from study.rows.estimates import Paired, estimate, holm, paired
from study.rows.row_files import Row, by_seed, column, of_method

WITHOUT = "natural-ablation.json"
MEASURES = {"mean": "mean client", "min": "worst client"}


def without_tables(rows: Sequence[Row]) -> str:
    """What each part changes: a table per measure, a column per federation."""
    settings = [name for name in PARTS_IN if any(row["setting"] == name for row in rows)]
    return "\n".join(_tables(rows, settings)) if settings else ""


def _tables(rows: Sequence[Row], settings: Sequence[str]) -> Iterator[str]:
    for key, name in MEASURES.items():
        gaps = {setting: changes(_of(rows, setting), key) for setting in settings}
        whole = [estimate(column(of_method(_of(rows, s), FULL), key)).mean for s in settings]
        lines = [
            [part, *(difference(gaps[setting].get(part)) for setting in settings)]
            for part in PARTS
            if part != FULL
        ]
        yield f"The {name}; the first line in %, the others in points without that part:\n"
        seeds = [str(len(of_method(_of(rows, setting), FULL))) for setting in settings]
        yield table(["", *settings], [[FULL, *map(in_percent, whole)], *lines, ["seeds", *seeds]])
        shown = [row for row in rows if row["setting"] in settings and row["method"] in PARTS]
        yield made_by(shown)
        yield "".join(_words(name, gaps))


def changes(rows: Sequence[Row], key: str) -> dict[str, Paired]:
    """The number without each part minus SOFA-FL's, with Holm's correction for all parts."""
    whole = by_seed(of_method(rows, FULL), key)
    return holm(
        {
            part: gap
            for part in PARTS
            if part != FULL and (gap := paired(by_seed(of_method(rows, part), key), whole))
        }
    )


def _words(name: str, gaps: Mapping[str, Mapping[str, Paired]]) -> Iterator[str]:
    """Which parts help and which harm, as far as can be told."""
    for verb in ("worse", "better"):
        found = [
            f"{part} in {setting} ({points(one.estimate.mean)})"
            for setting, of in gaps.items()
            for part, one in of.items()
            if (one.is_behind if verb == "worse" else one.is_ahead)
        ]
        told = listed(found) if found else "none of these"
        yield item(f"The {name} is {bold(verb)} after Holm's correction with: {told}.")


def _of(rows: Sequence[Row], setting: str) -> list[Row]:
    return [row for row in rows if row["setting"] == setting]
