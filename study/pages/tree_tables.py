"""The deciding experiment as Markdown: every tree in every federation, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from study.design.tree_settings import CELLS, KINDS, NESTED, NETWORKS, ONE, PRIMARY, SAMPLES, TWO
from study.pages.markdown import NOTHING, bold, difference, share, table
from study.rows.intervals import Paired, holm, p_value, paired
from study.rows.row_files import Row, by_seed

TREE = "tree.json"
MEASURES = {"mean": "mean client", "min": "worst client"}


def of(rows: Sequence[Row], setting: str, label: str) -> list[Row]:
    """The rows of a tree in a federation."""
    return [row for row in rows if row["setting"] == setting and row["method"] == label]


def gap(rows: Sequence[Row], setting: str, ours: str, theirs: str, key: str) -> Paired | None:
    """One tree minus another, seed by seed."""
    return paired(*(by_seed(of(rows, setting, label), key) for label in (ours, theirs)))


def tree_tables(rows: Sequence[Row]) -> str:
    """All trees: a table per federation, network and measure."""
    return "\n".join(_parts(rows))


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    for data in NESTED:
        for network in NETWORKS:
            cells = {n: f"{data}-{n}-{network}" for n in SAMPLES}
            if any(row["setting"] in cells.values() for row in rows):
                yield f"### {data}, {network.upper()}\n"
                for key, name in MEASURES.items():
                    yield f"The {name}, in %, by the samples of a client:\n"
                    yield _table(rows, cells, key)


def _table(rows: Sequence[Row], cells: Mapping[int, str], key: str) -> str:
    means = {
        (label, n): fmean(row[key] for row in found)
        for label in KINDS
        for n, setting in cells.items()
        if (found := of(rows, setting, label))
    }
    best = {n: max((x for (_, m), x in means.items() if m == n), default=None) for n in cells}
    lines = []
    for label in KINDS:
        values = [means.get((label, n)) for n in cells]
        shown = [
            bold(share(x)) if x is not None and x == best[n] else share(x)
            for n, x in zip(cells, values)
        ]
        lines.append([label, *shown])
    versus = [difference(gap(rows, setting, TWO, ONE, key)) for setting in cells.values()]
    lines.append([f"*{TWO} − {ONE}*", *versus])
    return table(["", *(f"{n:,}" for n in cells)], lines)


def verdict(rows: Sequence[Row]) -> str:
    """What the registered test says of the claim, comparison by comparison."""
    found = {
        name: one for name in PRIMARY if (one := gap(rows, name, TWO, ONE, "mean")) is not None
    }
    corrected = holm(found)
    lines = [
        [
            CELLS[name].setting.title,
            difference(corrected.get(name)),
            f"{p_value(found[name].estimate):.4f}" if name in found else NOTHING,
            _told(corrected.get(name)),
        ]
        for name in PRIMARY
    ]
    won = sum(one.is_ahead for one in corrected.values())
    if len(found) < len(PRIMARY):
        said = "Not all of these comparisons have been made, so nothing is decided yet.\n"
    elif won == len(PRIMARY):
        said = "**The claim holds**: two levels beat one in all four comparisons.\n"
    else:
        said = f"**The claim does not hold**: two levels beat one in {won} of the four.\n"
    head = ["", f"{TWO} − {ONE}, mean client", "p", "after Holm's correction"]
    return f"{table(head, lines)}\n{said}"


def _told(one: Paired | None) -> str:
    if one is None:
        return "not run"
    if one.is_ahead:
        return "two levels are better"
    return "one level is better" if one.is_behind else "no difference that could not be chance"


def against_others(rows: Sequence[Row]) -> str:
    """Two levels against every other tree, in every federation."""
    lines = [
        [label, *(difference(gap(rows, name, TWO, label, "mean")) for name in CELLS)]
        for label in KINDS
        if label != TWO
    ]
    return table(["", *CELLS], lines)
