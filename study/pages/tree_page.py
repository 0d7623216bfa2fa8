"""`docs/tree.md`: the experiment that decides whether a hierarchy helps; from `results/` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from study.pages.made_by import made_by
from study.pages.markdown import seeds_told
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
from study.pages.tree_tables import TREE, besides, tree_tables, verdict
from study.rows.row_files import Row, read_rows


def tree_page(out: Path, pages: Path) -> str:
    """All of `docs/tree.md`, with the figure whose file is in `pages`."""
    return "\n".join(_sections(out, pages))


def _sections(out: Path, pages: Path) -> Iterator[str]:
    rows = read_rows(out / TREE)
    yield "# Does the hierarchy help?\n"
    yield made_from(out)
    yield f"## Registered before it was run\n\n{REGISTERED}"
    if not rows:
        yield "There are no results yet: `python -m study tree` makes them.\n"
        return
    yield f"## The claim\n\n{AGAIN}{_what_was_run(rows)}\n{verdict(rows)}"
    yield from picture(pages, "levels")
    if others := besides(rows):
        yield f"## What else came out\n\n{BESIDES}\n{others}"
    yield f"## Every tree\n\n{over(rows)}\n{PLAIN}{made_by(rows, str)}\n{tree_tables(rows)}"


REGISTERED = """\
A tree can win by what any clustering does: clients that agree average their models.
Whether a *hierarchy* adds anything shows only if nothing but the tree varies.
So SOFA-FL runs with trees that are given after the warm-up and never change: SHAPE is off.

| tree | what it is |
|---|---|
| DMAC | the tree that DMAC builds after the warm-up |
| two levels | the true groups, both levels |
| one level | the lower level only: a cluster per group of the finest kind |
| upper level only | a cluster per rotation or region |
| flat | all clients below the root |
| random two levels | two levels with the clients in random places |

Two federations of 24 clients have the same nested shape: 4 groups of 2 groups of 3 clients.

- S4 *contradicts* itself: 4 rotations of MNIST, and within each 2 variants of the labels.
- S9 is *compatible*: images of the next of 4 regions are turned by 45°, those of the next of 2 sites within it by 15°, and labels keep their meaning.

Each is run with 25, 100, 500 and 2,500 samples per client, with the paper's CNN and with an MLP, and with ten seeds, 300 to 309, on which nothing was chosen.
There are 20 rounds of 25 batches of 20 samples after a warm-up of 25 batches; nothing is shared, and all other settings are SOFA-FL's defaults.

**Claim.** Two levels beat one where the upper level is compatible and clients are small.

**Test.** The mean client with two levels minus that with one level, seed by seed, in S9 with 25 and with 100 samples, with both networks: four comparisons.
Each is a two-sided paired t-test, and Holm's correction keeps the chance of any false finding among the four at 5%.
The claim holds if two levels are better in all four; whatever else comes out is reported as it is.

**Expected besides.** In S4 two levels are not better than one at any size, and in S9 the lead shrinks as samples grow.
These, and all other trees, are reported with plain 95% intervals and decide nothing.

Before this was registered, three runs were made to see that the command works, in S9 with 25 samples, the MLP and seed 0.
They had 69.2% with two levels, 63.8% with one and 64.0% with DMAC.
Runs are not repeated with other settings after the results are known.
If the method changes, all of them are made again with the same seeds, and the page says so.
"""

AGAIN = """\
The method has changed since it was first run, so all runs were made again, with the same seeds, by the rules of the present version.
With the first rules, a client mostly started from its parent's effective model, and not from the model that it serves.
The four differences below were +2.10, +0.90, +4.26 and +1.60 then.
"""

CORRECTED = """\
± is a 95% interval after Holm's correction for the four comparisons.
The tables of *Every tree* have plain ones, so the same differences have other intervals there.
"""

PLAIN = """\
The intervals here are plain ones, of one comparison each; those of the claim above are after Holm's correction.
Bold marks the best tree.
"""

BESIDES = """\
The mean client with two levels against that with every other tree, by plain 95% intervals over all sizes and networks:
"""


def _what_was_run(rows: Sequence[Row]) -> str:
    given = common(rows, ())
    seeds = seeds_told(sorted({row["seed"] for row in rows}))
    head = f"Numbers are means over {seeds}; {CORRECTED}{engines_of(rows)}{rate_fell('all runs')}{in_common(given)}"
    return f"{head}{made_by(rows, str)}\n{command('tree', rows, given)}"
