"""The paper's two tables as Markdown, beside the numbers that the paper reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from study.design.contenders import (
    PAPER_HYPCLUSTER,
    PAPER_K,
    TABLE1,
    TABLE2,
    TABLE2_CONTENDERS,
    table2_label,
    title,
)
from study.pages.markdown import in_percent, table, with_interval
from study.rows.estimates import Estimate, estimate
from study.rows.row_files import Row, column, of_method

# Key of a row, its name, and what the paper reports for SOFA-FL and for HypCluster.
FAIRNESS = (
    ("mean", "mean accuracy", 0.9818, 0.8873),
    ("std", "standard deviation", 0.0067, 0.1251),
    ("min", "worst client", 0.9686, 0.5455),
    ("gap", "best − worst", 0.0257, 0.4545),
    ("jain", "Jain's index", 0.9999, 0.9805),
    ("bottom10", "worst tenth", 0.9699, 0.5644),
)
AVERAGES = {"mean": "client average", "full": "total average"}  # key of a row, and its name


def table1(rows: Sequence[Row]) -> str:
    """The fairness table: a column per contender with rows, then the paper's."""
    columns = {label: found for label in TABLE1 if (found := of_method(rows, label))}
    head = ["", *(heading(label, found) for label, found in columns.items())]
    head += ["*paper: SOFA-FL*", f"*paper: {title(PAPER_HYPCLUSTER)}*"]
    lines = []
    for key, name, *paper in FAIRNESS:
        estimates = [estimate(column(of, key)) for of in columns.values()]
        if key == "jain":
            cells = [f"{e.mean:.5f}" for e in estimates]
            lines.append([name, *cells, *(f"{value:.4f}" for value in paper)])
        else:
            lines.append([name, *map(with_interval, estimates), *map(in_percent, paper)])
    return table(head, lines)


def table2(rows: Sequence[Row]) -> str:
    """What sharing does to the clients' own test samples, and to the whole test set."""
    columns = [label for label in TABLE2_CONTENDERS if any(table2_rows(rows, label).values())]
    names = [f"{title(label)}: {name}" for label in columns for name in AVERAGES.values()]
    head = ["sharing", *names, *(f"*paper: {name}*" for name in AVERAGES.values())]
    lines = []
    for sharing, (_, *paper) in TABLE2.items():
        found = [table2_rows(rows, label)[sharing] for label in columns]
        if any(found):
            cells = [with_interval(_estimate(of, key)) for of in found for key in AVERAGES]
            lines.append([sharing, *cells, *map(in_percent, paper)])
    return table(head, lines)


def table2_rows(rows: Sequence[Row], contender: str) -> Mapping[str, list[Row]]:
    """The rows of a contender in the second table, by its way of sharing."""
    return {sharing: of_method(rows, table2_label(contender, sharing)) for sharing in TABLE2}


def heading(label: str, rows: Sequence[Row]) -> str:
    """`HypCluster, K = 2 (chosen)`: a contender, and the number of clusters if it was chosen."""
    if label != "hypcluster":
        return title(label)
    return f"{title(label)}, {chosen_clusters(rows)} (chosen)"


def chosen_clusters(rows: Sequence[Row]) -> str:
    """`K = 2`: the number of clusters that the sweep chose for HypCluster."""
    given = {row["overrides"].get("hypcluster.num_clusters", PAPER_K) for row in rows}
    return f"K = {', '.join(map(str, sorted(given)))}"


def _estimate(rows: Sequence[Row], key: str) -> Estimate | None:
    return estimate(column(rows, key)) if rows else None
