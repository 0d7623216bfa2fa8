"""The deciding experiment as Markdown: every tree in every federation, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from study.design.tree_settings import (
    CELLS,
    KINDS,
    NESTED,
    NETWORKS,
    ONE,
    PRIMARY,
    SAMPLES,
    TWO,
    GridCell,
)
from study.pages.markdown import NOTHING, bold, difference, in_percent, item, table
from study.rows.estimates import Paired, holm, p_value, paired
from study.rows.row_files import Row, by_seed

TREE = "tree.json"
LEAST_P = 0.0001  # smaller ones are not told apart
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
                yield f"The {MEASURES['mean']} with {TWO} minus that with each other tree:\n"
                yield against_others(rows, cells)


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
            bold(in_percent(x)) if x is not None and x == best[n] else in_percent(x)
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
            _chance(found.get(name)),
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


def _chance(one: Paired | None) -> str:
    if one is None:
        return NOTHING
    p = p_value(one.estimate)
    return f"{p:.4f}" if p >= LEAST_P else f"<\N{NO-BREAK SPACE}{LEAST_P:.4f}"


def _told(one: Paired | None) -> str:
    if one is None:
        return "not run"
    if one.is_ahead:
        return "two levels are better"
    return "one level is better" if one.is_behind else "no difference that could not be chance"


def against_others(rows: Sequence[Row], cells: Mapping[int, str]) -> str:
    """Two levels against every other tree, by the samples of a client."""
    lines = [
        [label, *(difference(gap(rows, name, TWO, label, "mean")) for name in cells.values())]
        for label in KINDS
        if label != TWO
    ]
    return table(["", *(f"{n:,}" for n in cells)], lines)


def besides(rows: Sequence[Row]) -> str:
    """Where two levels are better and where worse than each other tree, by plain intervals."""
    return "".join(_where(rows, data, label) for data in NESTED for label in KINDS if label != TWO)


def _where(rows: Sequence[Row], data: str, label: str) -> str:
    """An item of a list: two levels against one other tree in one kind of federation."""
    gaps = {
        cell: one
        for name, cell in CELLS.items()
        if cell.data == data and (one := gap(rows, name, TWO, label, "mean")) is not None
    }
    if not gaps:
        return ""
    ahead = [cell for cell, one in gaps.items() if one.is_ahead]
    behind = [cell for cell, one in gaps.items() if one.is_behind]
    words = [f"better in {len(ahead)}", f"worse in {len(behind)}{_listed(behind)}"]
    return item(f"{data}, against *{label}*: {' and '.join(words)} of {len(gaps)}.")


def _listed(cells: Sequence[GridCell]) -> str:
    names = [f"{cell.samples:,} samples and the {cell.network.upper()}" for cell in cells]
    return f" ({'; '.join(names)})" if names else ""
