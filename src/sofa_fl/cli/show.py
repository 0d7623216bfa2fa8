"""Human-readable output on stdout: the result of a run, and a tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Drawing

from sofa_fl.cli.screen import console, shell
from sofa_fl.errors import printable
from sofa_fl.experiment.storage.events import metric_of, score_name
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.report.history import Round
from sofa_fl.report.words import (
    NOTHING,
    client_name,
    duration,
    number,
    percent,
    plus_note,
    remarks,
    score,
)
from sofa_fl.topology.tree import NodeId

MANY_CLIENTS = 40


def show_run(summary: Mapping[str, Any], record: Round) -> None:
    """The fairness table, the levels, the tree, and where the run folder is."""
    screen = console()
    clients, rounds = len(record.tree.clients), summary["rounds"]
    size = f", {number(clients, 'client')}, {number(rounds, 'round')}, seed {record.seed}"
    screen.print(Text.assemble((_name(record), "bold"), size))
    trained = number(summary["samples_trained"], "sample")
    screen.print(Text(f"{trained} trained in {duration(summary['seconds'])}", style="dim"))
    levels = [_levels(summary["levels"], metric_of(summary))] if summary["levels"] else []
    for table in (_fairness(summary), *levels):
        screen.print()
        screen.print(table)
    if "rmse" in summary:
        screen.print(Text(f"root mean square error {summary['rmse']:.4g} (mean over the clients)"))
    if unscored := summary.get("unscored"):
        few = ", ".join(client_name(NodeId(c), record.names) for c in unscored[:5])
        more = f" and {len(unscored) - 5} more" if len(unscored) > 5 else ""
        said = f"no R² for clients whose test targets are all equal: {few}{more}"
        screen.print(Text(said, style="yellow"))
    if summary.get("metrics"):
        screen.print()
        screen.print(_own_metrics(summary["metrics"]))
    used, there = summary["full_samples"], summary["test_samples"]
    if 0 < used < there:
        part = f"each model is scored on {used:,} of the {there:,} test samples"
        screen.print(Text(part, style="dim"))
    screen.print()
    show_tree(screen, record, every=False)
    screen.print()
    screen.print(Text.assemble(("Edits    ", "bold"), _counts(summary["edits"])))
    _put(screen, "Sharing", _sharing(summary["sharing"]))
    if told := plus_note([record.title]):
        _put(screen, "Method", told)
    for remark in [*summary.get("notes", ()), *_remarks(record)]:
        _put(screen, "Note", remark, "yellow")
    if "groups" in summary:
        _put(screen, "Groups", _groups(summary["groups"]))
    run = shell(summary["run"])
    screen.print(Text.assemble(("Run      ", "bold"), run), soft_wrap=True)
    file = Path(summary["run"]) / "report.html"
    if file.exists():
        line = Text.assemble(("Report   ", "bold"), shell(file), ("  open it in a browser", "dim"))
        screen.print(line, soft_wrap=True)
    first, second = f"sofa-fl tree {run} --round 0", f"sofa-fl tree {run} --svg tree.svg"
    for head, command, what in (
        ("Next     ", f"{first:<{len(second)}}", "any round's tree"),
        ("         ", second, "the tree as an SVG file"),
    ):
        line = Text.assemble((head, "bold"), f"{command}  ", (what, "dim"))
        screen.print(line, soft_wrap=True)


def _remarks(record: Round) -> list[str]:
    events = list(RunFolder(record.run).events())
    depth = record.tree.depth
    return remarks(events, method=record.method, depth=depth, metric=record.metric)


def show_round(screen: Console, record: Round, *, every: bool) -> None:
    """The tree after a round, and the edits that changed it."""
    tree = record.tree
    when = f"round {record.round} of {record.rounds}" if record.round else "the warm-up"
    screen.print(Text.assemble((_name(record), "bold"), f", seed {record.seed}, after {when}"))
    size = f"{number(len(tree.clients), 'client')}, {number(len(tree.clusters), 'cluster')}"
    mean, worst = (score(value, record.metric) for value in (record.mean, record.worst))
    scores = f"{score_name(record.metric)} {mean} mean, {worst} worst"
    screen.print(Text(f"{size}, depth {tree.depth}; {scores}", style="dim"))
    screen.print()
    show_tree(screen, record, every=every)
    if record.round:
        screen.print()
        what = f"Edits in round {record.round}"
        screen.print(Text(what if record.told else f"{what}: none", style="bold"))
        for told in record.told:
            screen.print(Text(f"  {told}"), soft_wrap=True)


def show_tree(screen: Console, record: Round, *, every: bool) -> None:
    """The tree, under a line that explains its numbers."""
    facts = ["number of clients", f"mean {score_name(record.metric)}"]
    facts += ["held-out loss"] if record.loss else []
    facts += ["samples in the pool"] if any(record.pool.values()) else []
    screen.print(Text.assemble(("Tree", "bold"), (f"  {', '.join(facts)}", "dim")))
    collapsed = len(record.tree.clients) > MANY_CLIENTS and not every
    screen.print(tree_drawing(record, every=not collapsed))
    if collapsed:
        screen.print(Text("'sofa-fl tree RUN --all' shows every client", style="dim"))


def tree_drawing(record: Round, *, every: bool) -> Drawing:
    """The tree, with every client or with the clients of a cluster in one line."""
    tree = record.tree

    def add(node: NodeId, onto: Drawing) -> None:
        for child in tree.children[node]:
            if child not in tree.members:
                add(child, onto.add(_cluster(child, record)))
            elif every:
                onto.add(_client(child, record))
        alone = [child for child in tree.children[node] if child in tree.members]
        if not every and 0 < len(alone) < len(tree.children[node]):
            onto.add(_several(alone, record))

    if tree.root in tree.members:
        return Drawing(_client(tree.root, record), guide_style="dim")
    drawing = Drawing(_cluster(tree.root, record), guide_style="dim")
    add(tree.root, drawing)
    return drawing


def _name(record: Round) -> str:
    return printable(f"{record.title} on {record.data}")


def _cluster(node: NodeId, record: Round) -> Text:
    below = record.accuracies_below(node)
    facts = [number(len(record.tree.clients_of(node)), "client")]
    if below:
        facts.append(score(sum(below) / len(below), record.metric))
    if node in record.loss:
        facts.append(f"loss {record.loss[node]:.3f}")
    if record.pool.get(node):
        facts.append(f"pool {record.pool[node]:,}")
    return Text.assemble((f"cluster {node}", "bold"), f"  {', '.join(facts)}")


def _client(node: NodeId, record: Round) -> Text:
    accuracy = record.accuracy[node]
    worst = accuracy == record.worst and len(record.tree.clients) > 1
    width = max(len(client_name(other, record.names)) for other in record.tree.clients)
    name = f"{client_name(node, record.names):<{min(max(width, 10), 40)}} "
    shown = score(accuracy, record.metric)
    return (
        Text.assemble(name, (shown, "yellow"), ("  worst", "dim")) if worst else Text(name + shown)
    )


def _several(nodes: Sequence[NodeId], record: Round) -> Text:
    found = [record.accuracy[node] for node in nodes]
    known = [accuracy for accuracy in found if accuracy is not None]
    label = number(len(nodes), "client")
    if known:
        mean = sum(known) / len(known)
        label += f", {score(mean, record.metric)}"
    return Text(label)


def plain_table(title: str, columns: Iterable[str]) -> Table:
    """Columns of numbers, without a frame."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        header_style="dim",
        padding=(0, 0, 0, 1),
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _fairness(summary: Mapping[str, Any]) -> Table:
    client, metric = summary["client"], metric_of(summary)
    columns = ("mean", "std", "min", "max-min", "Jain", "bottom\n10%", "whole\ntest set", "root")
    table = plain_table(f"{score_name(metric).capitalize()} of the clients", columns)
    first = [score(client[key], metric) for key in ("mean", "std", "min", "gap")]
    last = (client["bottom10"], summary["full"], summary["root"])
    ends = [score(value, metric) for value in last]
    # Jain's index means nothing for scores below zero.
    jain = f"{client['jain']:.5f}" if client["min"] >= 0 else NOTHING
    table.add_row(*first, jain, *ends)
    return table


def _levels(levels: Sequence[Mapping[str, Any]], metric: str) -> Table:
    columns = ("level", "nodes", "on clients", "on whole test set")
    table = plain_table(f"{score_name(metric).capitalize()} by level", columns)
    for row in reversed(levels):
        name = "clients" if row["level"] == 0 else str(row["level"])
        scores = [score(row[key], metric) for key in ("client", "full")]
        table.add_row(name, str(row["num_nodes"]), *scores)
    return table


def _own_metrics(metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    table = plain_table("Own metrics of the clients", ("", "mean", "min", "max"))
    table.columns[0].justify = "left"
    for name, found in metrics.items():
        values = [found[key] for key in ("mean", "min", "max")]
        table.add_row(printable(name), *(NOTHING if x is None else f"{x:.4g}" for x in values))
    return table


def _counts(edits: Mapping[str, int]) -> str:
    done = [number(count, kind) for kind, count in edits.items() if count]
    return ", ".join(done) if done else "none"


def _sharing(sharing: Mapping[str, float]) -> str:
    if not sharing["disclosed_max"]:
        return "no sample left its client"
    mean, most = percent(sharing["disclosed_mean"]), percent(sharing["disclosed_max"])
    said = f"clients disclosed {mean} of their samples on average, and at most {most}"
    return f"{said}; --set sharing.ratio=0 shares nothing"


def _put(screen: Console, head: str, words: str, style: str = "") -> None:
    """A line with its head; what does not fit goes on below the words."""
    first, *rest = wrap(words, 70)
    screen.print(Text.assemble((f"{head:9}", "bold"), (first, style)))
    for more in rest:
        screen.print(Text(f"{'':9}{more}", style=style))


def _groups(groups: Mapping[str, Sequence[float]]) -> str:
    """How well the tree agrees with the known groups, the finest level first."""
    names = {"ari": "ARI", "purity": "purity", "fscore": "FScore"}
    told = [
        f"{name} {', '.join(f'{value:.2f}' for value in groups[key])}"
        for key, name in names.items()
        if key in groups  # a run of an older version has no FScore
    ]
    return f"known ones: {'; '.join(told)}"
