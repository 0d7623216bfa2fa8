"""The paper's two tables, and that of SOFA-FL's parts, as Markdown beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from study.design.contenders import ABLATION, FULL, NO_TREE, PAPER_K, TABLE2
from study.design.settings import SETTINGS
from study.pages.markdown import difference, share, table, with_interval
from study.rows.intervals import Estimate, estimate, paired
from study.rows.row_files import Row

# Key of a row, its name, and what the paper reports of SOFA-FL and of HypCluster.
FAIRNESS = (
    ("mean", "mean accuracy", 0.9818, 0.8873),
    ("std", "standard deviation", 0.0067, 0.1251),
    ("min", "worst client", 0.9686, 0.5455),
    ("gap", "best − worst", 0.0257, 0.4545),
    ("jain", "Jain's index", 0.9999, 0.9805),
    ("bottom10", "worst tenth", 0.9699, 0.5644),
)


def table1(rows: Sequence[Row]) -> str:
    """The fairness table: SOFA-FL against HypCluster with its best number of clusters."""
    ours, theirs = (_of(rows, method) for method in ("sofa", "hypcluster"))
    head = ["", "SOFA-FL", f"HypCluster, {clusters(theirs)}"]
    head += ["*paper: SOFA-FL*", f"*paper: HypCluster, K = {PAPER_K}*"]
    lines = []
    for key, name, *paper in FAIRNESS:
        found = [_estimate(ours, key), _estimate(theirs, key)]
        if key == "jain":
            cells = [f"{e.mean:.5f}" if e else share(None) for e in found]
            lines.append([name, *cells, *(f"{value:.4f}" for value in paper)])
        else:
            lines.append([name, *map(with_interval, found), *map(share, paper)])
    return table(head, lines)


def table2(rows: Sequence[Row]) -> str:
    """What sharing does: the clients' own test samples, and the whole test set."""
    head = ["sharing", "client average", "total average", "*paper: client*", "*paper: total*"]
    lines = []
    for label, (_, client, total) in TABLE2.items():
        if of := _of(rows, label):
            cells = [with_interval(_estimate(of, key)) for key in ("mean", "full")]
            lines.append([label, *cells, share(client), share(total)])
    return table(head, lines)


def ablation(rows: Sequence[Row]) -> str:
    """Each part off, against the whole: a table per setting, one under the other."""
    parts = []
    for setting in SETTINGS.values():
        here = [row for row in rows if row["setting"] == setting.name]
        if here:
            heading = f"**{setting.name}: {setting.title}{_shared(here)}**\n"
            tree = "\n".join(_tree_alone(here))
            parts += [heading, _ablation(here), *([f"{tree}\n"] if tree else [])]
    return "\n".join(parts)


def _shared(rows: Sequence[Row]) -> str:
    """`, 0.1 shared`: what SOFA-FL as a whole shares."""
    most = max(row["sharing"] for row in rows)
    return f", {most:g} shared" if most else ""


def _tree_alone(rows: Sequence[Row]) -> Iterator[str]:
    """What the tree itself brings, in plain words."""
    whole, without = _of(rows, FULL), _of(rows, NO_TREE)
    for key, name in (("mean", "mean"), ("min", "worst")):
        if gap := paired(by_seed(whole, key), by_seed(without, key)):
            brings = "helps" if gap.is_ahead else "harms" if gap.is_behind else None
            told = brings or "makes no difference that could be told from chance"
            yield f"- The tree itself {told}, on the {name} client: {difference(gap)} points."


def _ablation(rows: Sequence[Row]) -> str:
    whole = _of(rows, FULL)
    head = ["", "mean", "worst client", "mean − SOFA-FL's", "worst − SOFA-FL's", "root", "seeds"]
    lines = []
    for label in ABLATION:
        if of := _of(rows, label):
            gaps = [
                difference(paired(by_seed(of, key), by_seed(whole, key))) if label != FULL else ""
                for key in ("mean", "min")
            ]
            means = {key: share(estimate(column(of, key)).mean) for key in ("mean", "min", "root")}
            cells = [means["mean"], means["min"], *gaps, means["root"], str(len(of))]
            lines.append([label, *cells])
    return table(head, lines)


def clusters(rows: Sequence[Row]) -> str:
    """`K = 2`: the number of clusters that HypCluster was given."""
    given = {row["overrides"].get("hypcluster.num_clusters", PAPER_K) for row in rows}
    return f"K = {', '.join(map(str, sorted(given)))}" if given else "not run"


def column(rows: Sequence[Row], key: str) -> list[float]:
    return [row[key] for row in rows]


def by_seed(rows: Sequence[Row], key: str) -> Mapping[int, float]:
    return {row["seed"]: row[key] for row in rows}


def _of(rows: Sequence[Row], method: str) -> list[Row]:
    return [row for row in rows if row["method"] == method]


def _estimate(rows: Sequence[Row], key: str) -> Estimate | None:
    return estimate(column(rows, key)) if rows else None
