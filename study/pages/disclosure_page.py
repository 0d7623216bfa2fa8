"""`docs/disclosure.md`, on what sharing brings and discloses; from `results/` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from study.pages.disclosure_tables import DISCLOSURE, disclosure_table, findings, ways
from study.pages.made_by import made_by
from study.pages.page_parts import (
    command,
    common,
    engines_of,
    in_common,
    made_from,
    over,
    picture,
    rate_fell,
)
from study.rows.row_files import Row, read_rows


def disclosure_page(out: Path, pages: Path) -> str:
    """All of `docs/disclosure.md`."""
    return "\n".join(_sections(out, pages))


def _sections(out: Path, pages: Path) -> Iterator[str]:
    rows = read_rows(out / DISCLOSURE)
    yield "# How little sharing is enough?\n"
    yield made_from(out)
    yield f"## What is disclosed\n\n{DISCLOSED}"
    yield f"## What is compared\n\n{COMPARED}"
    if not rows:
        yield "There are no results yet: `python -m study disclosure` makes them.\n"
        return
    yield f"## What it brings\n\n{_what_was_run(rows)}\n{findings(rows)}\n{made_by(rows, str)}"
    yield from picture(pages, "disclosure")
    yield disclosure_table(rows)
    yield f"## Once, refreshed, or to all\n\n{WAYS}\n{ways(rows)}\n{made_by(rows, str)}"


DISCLOSED = """\
With partial data sharing, raw samples leave their client, and cannot be taken back.
What matters for privacy is therefore the fraction of a client's samples that anybody else has received by the end of a run.

A run on MNIST or Fashion-MNIST has a `sharing.ratio` of 0.1 by default, as in the paper; a run on any other data has 0, and shares nothing.
Unless you set a cap, a client discloses at most `sharing.ratio` of its samples over the whole run (`sharing.max_disclosure: null`).
It draws them once, and the clusters above it use the same samples in every round: using a disclosed sample less often protects nobody.
Sharing more need not be better, since all clients of a cluster train on the same shared samples in every round.
If `sharing.mode` is `random`, higher clusters still draw new samples every round from what lower clusters hold; `fixed` repeats these draws as well.
After a change of the data, a client discloses the changed copies of the same samples, because a rotated copy counts as the sample it comes from.

If you set a larger `sharing.max_disclosure`, `random` draws new samples in every round until the cap is reached.
The preset `paper` has a cap of 1: with a ratio of 0.1, 89% of a client's samples have left it after 20 rounds.
"""

COMPARED = """\
We compare runs of SOFA-FL with its defaults in S1 and S2 of [Results](results.md), where clients differ in how common their classes are.
At 1, 2, 5 and 10%, a client discloses that fraction once; *89%* shares a new tenth after every round, without a cap.
At 5% there are two more variants: *refreshed* draws new samples after every round, about 0.24% each, and uses them only in the next round.
*To all* discloses the same samples as *5%*, but every cluster passes all of them on, so that every client receives everything that is disclosed.
"""

WAYS = """\
All three variants disclose 5%; the differences are in points, with 95% intervals.
"""


def _what_was_run(rows: Sequence[Row]) -> str:
    given = common(rows, ())
    head = f"{over(rows)}\n{engines_of(rows)}{rate_fell('all runs')}{in_common(given)}"
    return f"{head}\n{command('disclosure', rows, given)}"
