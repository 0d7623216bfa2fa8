"""The table of adapters: a row per contender, from `results/adapters.json` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from study.design.adapter_settings import ADAPTED, FEDERATIONS, RATES
from study.pages.made_by import made_by
from study.pages.markdown import NOTHING, between, difference, table, with_interval
from study.rows.estimates import estimate, paired
from study.rows.row_files import Row, by_seed, column, of_method, read_rows

ADAPTERS = "adapters.json"
TRIED = "adapter_rates.json"
HEAD = (
    "", "seeds", "mean", "worst", "SOFA-FL is better by", "domains found", "MB a round", "GPU GiB"
)  # fmt: skip


def adapter_tables(rows: Sequence[Row]) -> str:
    """A table for every federation that has rows."""
    return "\n".join(_parts(rows))


def with_adapters(page: str, out: Path) -> str:
    """The how-to page with new tables between its markers."""
    page = between(page, "rates", rate_table(read_rows(out / TRIED)))
    return between(page, "adapters", adapter_tables(read_rows(out / ADAPTERS)))


def rate_table(rows: Sequence[Row]) -> str:
    """The mean client on held-out queries by contender and rate; the chosen one is bold."""
    found = {(row["method"], row["overrides"]["local.learning_rate"]): row["mean"] for row in rows}
    lines = []
    for method, about in ADAPTED.items():
        cells = [
            f"{100 * found[method, rate]:.1f}" if (method, rate) in found else NOTHING
            for rate in RATES
        ]
        lines.append(
            [about.title]
            + [f"**{cell}**" if rate == about.rate else cell for cell, rate in zip(cells, RATES)]
        )
    made = table(("", *(f"{rate:g}" for rate in RATES)), lines)
    return f"{made}\n{made_by(rows, _name)}" if rows else ""


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    for setting, about in FEDERATIONS.items():
        mine = [row for row in rows if row["setting"] == setting]
        if not mine:
            continue
        yield f"### {setting}: {about.title}\n"
        head = (*HEAD, "rounds to the new truth") if about.swaps else HEAD
        yield table(
            head, [_cells(mine, m, swaps=about.swaps) for m in ADAPTED if of_method(mine, m)]
        )
        yield made_by((row for row in mine if row["method"] in ADAPTED), _name)


def _name(method: str) -> str:
    return ADAPTED[method].title


def _cells(rows: Sequence[Row], method: str, *, swaps: bool) -> list[str]:
    mine, sofa = of_method(rows, method), by_seed(of_method(rows, "sofa"), "mean")
    ahead = paired(sofa, by_seed(mine, "mean")) if sofa and method != "sofa" else None
    cells = [
        ADAPTED[method].title,
        str(len(mine)),
        with_interval(estimate(column(mine, "mean"))),
        with_interval(estimate(column(mine, "min"))),
        difference(ahead),
        with_interval(estimate(column(mine, "fscore"))) if "fscore" in mine[0] else NOTHING,
        f"{fmean(row['down'] + row['up'] for row in mine):.1f}",
        f"{max(row['gpu'] for row in mine):.2f}" if "gpu" in mine[0] else NOTHING,
    ]
    if swaps:
        cells.append(
            ", ".join("never" if row["truth"] is None else str(row["truth"]) for row in mine)
        )
    return cells
