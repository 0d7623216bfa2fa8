"""The panel that a terminal shows during a run: scores, edits, a small tree."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Drawing

from sofa_fl.errors import printable
from sofa_fl.experiment.storage.events import Event, is_evaluated, metric_of
from sofa_fl.report.history import clients_in, names_in, tree_in
from sofa_fl.report.page import edits_in_words
from sofa_fl.report.words import (
    client_name,
    missing,
    number,
    said_score,
    score,
)
from sofa_fl.topology.tree import NodeId, Tree

BLOCKS = "▁▂▃▄▅▆▇█"
NUM_EDITS = 4
NUM_PAST = 24  # rounds in a curve


class Panel:
    """Collects the rounds so far, and draws them."""

    def __init__(self) -> None:
        self.means: list[float] = []
        self.worsts: list[float] = []
        self.tree: Tree | None = None
        self.edits: list[tuple[int, str]] = []
        self.names: dict[NodeId, str] = {}

    def take(self, event: Event) -> None:
        """Add a round that has ended."""
        self.event = event
        if is_evaluated(event):
            self.means.append(event["client"]["mean"])
            self.worsts.append(event["client"]["min"])
        self.names |= names_in(event)
        news = edits_in_words(event["edits"], self.tree, self.names)
        self.edits = [*self.edits, *((event["round"], edit["told"]) for edit in news)][-NUM_EDITS:]
        self.tree = tree_in(event)

    def draw(self, height: int) -> RenderableType:
        """Draw as much as fits into `height` lines."""
        assert self.tree is not None
        scores = Table.grid(padding=(0, 2))
        worst, metric = worst_client(self.event), metric_of(self.event)
        for name, values, who in (("mean", self.means, ""), ("worst", self.worsts, worst)):
            curve = Text(sparks(values[-NUM_PAST:]), style="cyan")
            now = said_score(values[-1], metric)
            scores.add_row(Text(name, style="dim"), now, curve, Text(who, "dim"))
        parts: list[RenderableType] = [scores]
        room = height - 2
        if room and (absent := missing(self.event)):
            words = printable(", ".join(absent))
            parts.append(Text(words, style="yellow", no_wrap=True, overflow="ellipsis"))
            room -= 1
        shown = self.edits[max(0, len(self.edits) - max(0, room)) :]
        if shown:
            lines = Table.grid(padding=(0, 2))
            for round, sentence in shown:
                line = Text(sentence, no_wrap=True, overflow="ellipsis")
                lines.add_row(Text(f"round {round}", style="dim"), line)
            parts.append(lines)
            room -= len(shown)
        if room >= 3 and self.tree.clusters:
            parts.append(small_tree(self.tree, self.event, room - 1))
        return Group(*parts)


def small_tree(tree: Tree, event: Event, lines: int) -> Drawing:
    """The clusters, the highest first, as many as there is room for."""
    chosen = set(sorted(tree.clusters, key=lambda node: -tree.level[node])[: max(1, lines)])
    left = len(tree.clusters) - len(chosen)
    accuracy, metric = accuracies(event), metric_of(event)

    def label(node: NodeId) -> Text:
        clients = tree.clients_of(node)
        known = [accuracy[client] for client in clients if client in accuracy]
        mean = score(sum(known) / len(known), metric) if known else ""
        return Text.assemble(
            (f"cluster {node}", "bold"), f"  {number(len(clients), 'client')} {mean}"
        )

    def add(node: NodeId, onto: Drawing) -> None:
        for child in tree.children[node]:
            if child in chosen:
                add(child, onto.add(label(child)))

    drawing = Drawing(label(tree.root), guide_style="dim")
    add(tree.root, drawing)
    if left:
        drawing.add(Text(f"and {number(left, 'more cluster')}", style="dim"))
    return drawing


def accuracies(event: Event) -> dict[NodeId, float]:
    pairs = zip(clients_in(event), event["accuracies"])
    return {NodeId(client): value for client, value in pairs if value is not None}


def worst_client(event: Event) -> str:
    known = accuracies(event)
    if not known:
        return ""
    return client_name(min(known, key=lambda client: known[client]), names_in(event))


def sparks(values: Sequence[float]) -> str:
    """A curve in one line of text."""
    low, high = min(values), max(values)
    if high - low < 1e-12:
        return BLOCKS[0] * len(values)
    return "".join(BLOCKS[round((value - low) / (high - low) * 7)] for value in values)
