"""Values in words: fractions, durations, counts, edits, and remarks about a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sofa_fl.errors import printable
from sofa_fl.experiment.storage.events import ACCURACY, is_evaluated, metric_of, score_name
from sofa_fl.topology.edits import (
    AnyTree,
    Edit,
    Graft,
    Join,
    Leave,
    Merge,
    MutableTree,
    Prune,
    Split,
)
from sofa_fl.topology.tree import NodeId, Tree

NOTHING = "-"
WORTH_TELLING = 0.01  # by how much a mean must have fallen
FLAT = (
    "The tree is flat: no group of clients has models that are clearly more similar to each other "
    "than to those of other clients."
)
USUAL = "This is usual if clients differ only in how common their classes are."
PLUS = (
    "+ marks a baseline that trains with SOFA-FL's class-mix correction (local.prior), which the "
    "published method does not have."
)
RoundRecords = Sequence[Mapping[str, Any]]  # events, or what the page has of them


def plus_note(titles: Iterable[str]) -> str:
    """What the `+` of titles means; empty if none has one."""
    return PLUS if any(title.endswith("+") for title in titles) else ""


def method_title(config: Mapping[str, Any]) -> str:
    """What a run's method is called, by its `config.yaml`."""
    return str(config.get("title") or config["method"])


def data_title(config: Mapping[str, Any]) -> str:
    """What a run's data is called, by its `config.yaml`."""
    data = config["data"]
    if data["name"] == "csv" and data.get("dir"):
        return Path(data["dir"]).stem
    return "own data" if data["name"] == "own" else str(data["name"])


def percent(share: float | None, digits: int = 2) -> str:
    """`98.12%`, or a dash if there is nothing to show."""
    return NOTHING if share is None or share != share else f"{share:.{digits}%}"


def score(value: float | None, metric: str, digits: int = 2) -> str:
    """`98.12%`; for R², which may be negative and so is not a percentage, `0.981`."""
    if metric == ACCURACY:
        return percent(value, digits)
    return NOTHING if value is None or value != value else f"{value:.{max(2, digits + 1)}f}"


def said_score(value: float | None, metric: str) -> str:
    """A score that stands alone: `98.12%`, `R² 0.981`."""
    shown = score(value, metric)
    return shown if metric == ACCURACY else f"{score_name(metric)} {shown}"


def scores_title(metric: str) -> str:
    """Over a table of numbers without a sign: `Accuracy of the clients in %`."""
    unit = " in %" if metric == ACCURACY else ""
    return f"{score_name(metric).capitalize()} of the clients{unit}"


def table_score(value: float | None, metric: str) -> str:
    """A number of such a table: `98.12`, `0.981`."""
    return score(value, metric).removesuffix("%")


def duration(seconds: float) -> str:
    """`1:05`, or `2:01:05` where it takes hours."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def number(count: int, thing: str) -> str:
    """`1 graft`, `2 grafts`, `20,000 samples`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def tally(kinds: Iterable[str]) -> str:
    """Edits by kind, in the order in which they first come: `2 grafts, 1 merge`."""
    counts: dict[str, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return ", ".join(number(count, kind) for kind, count in counts.items() if count)


Names = Mapping[NodeId, str]  # of clients; one that is not among them is called by its number
NO_NAMES: Names = MappingProxyType({})


def client_name(client: NodeId, names: Names) -> str:
    """`cleveland`, or `client 3` if it has no name."""
    return printable(names[client]) if client in names else f"client {client}"


def name_of(node: NodeId, tree: AnyTree, names: Names = NO_NAMES) -> str:
    return client_name(node, names) if node in tree.members else f"cluster {node}"


def tell(edits: Sequence[Edit], before: Tree, names: Names = NO_NAMES) -> list[str]:
    """One sentence per edit; `before` is the tree that the first one was applied to."""
    sentences = []
    draft = MutableTree(before)
    for edit in edits:
        sentences.append(_tell(edit, draft, names))
        edit.apply(draft)
    return sentences


def _tell(edit: Edit, tree: MutableTree, names: Names) -> str:
    match edit:
        case Graft(node, onto):
            moved = name_of(node, tree, names)
            return f"{moved} moved from cluster {tree.parent[node]} to cluster {onto}"
        case Merge(nodes, into):
            return f"clusters {_list(nodes)} merged into cluster {into}"
        case Split(node, into, groups) if sum(map(len, groups)) < len(tree.children[node]):
            clusters = "cluster" if len(into) == 1 else "clusters"
            return f"some children of cluster {node} became {clusters} {_list(into)} below it"
        case Split(node, into, _) if tree.parent[node] is None:
            return f"the root, cluster {node}, was split into clusters {_list(into)} below it"
        case Split(node, into, _):
            return f"cluster {node} was split into clusters {_list(into)}"
        case Prune(node):
            children = list(tree.children[node])
            if not children:
                return f"cluster {node} had no children left and was removed"
            only = name_of(children[0], tree, names)
            return f"cluster {node} was replaced by its only child, {only}"
        case Join(node, onto, None):
            return f"{client_name(node, names)} joined cluster {onto}"
        case Join(node, onto, above):
            both = client_name(node, names), client_name(onto, names)
            return f"{both[0]} joined {both[1]} in the new cluster {above}"
        case Leave(node):
            return f"{client_name(node, names)} left"


def _list(nodes: Sequence[NodeId]) -> str:
    *first, last = map(str, nodes)
    return f"{', '.join(first)} and {last}" if first else last


def news_of(event: Mapping[str, Any]) -> list[str]:
    """What a line about a round says: its scores, its edits, and who is missing."""
    client, metric = event["client"], metric_of(event)
    mean, worst = (said_score(client[key], metric) for key in ("mean", "min"))
    old = "" if is_evaluated(event) else f" in round {event['evaluated']}"
    news = [f"mean {mean}{old}", f"worst {worst}{old}"]
    if edits := tally(edit["edit"] for edit in event["edits"]):
        news.append(edits)
    return news + missing(event)


def missing(event: Mapping[str, Any]) -> list[str]:
    """The clients whose update was not used in a round."""
    parts = []
    if absent := event.get("absent"):
        parts.append(f"{number(len(absent), 'client')} absent")
    if aside := event.get("set_aside"):
        client, flaw = next(iter(aside.items()))
        name = client_name(
            NodeId(int(client)), dict(zip(event.get("clients", ()), event.get("names", ())))
        )
        parts.append(f"{number(len(aside), 'update')} set aside ({name}: {flaw})")
    return parts


def remarks(records: RoundRecords, *, method: str, depth: int, metric: str) -> list[str]:
    """Sentences about a run, from the records of its rounds; often none."""
    if not records:
        return []
    is_flat = method == "sofa" and depth == 1 and _num_clients(records[-1]) > 2
    why = f" {USUAL}" if metric == ACCURACY else ""
    found = [FLAT + why] if is_flat else []
    fall = decline(records, metric)
    return [*found, fall] if fall else found


def decline(records: RoundRecords, metric: str) -> str | None:
    """How far the mean has fallen since its best round, when most, and after what; else None.

    Edits of a round show in its scores or in those of the next one.
    """
    means = [record["client"]["mean"] for record in records]
    best = max(range(len(means)), key=lambda at: means[at])
    fell = means[best] - means[-1]
    if fell < WORTH_TELLING:
        return None
    steepest = max(range(best + 1, len(means)), key=lambda at: means[at - 1] - means[at])
    size = f"{100 * fell:.1f} points" if metric == ACCURACY else f"by {fell:.2f}"
    since = _name(records[best])
    where = f"most of it in {_name(records[steepest])}"
    cause = _cause(records[steepest], records[steepest - 1])
    return f"The mean has fallen {size} since {since}, {where}{cause}."


def _cause(record: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    if told := changes_in_words(record.get("data", {})):
        return f", when {told}"
    for one, when in ((record, ""), (before, " of the round before")):
        if edits := tally(edit["edit"] for edit in one["edits"]):
            return f", after {edits}{when}"
    return ", without any edit of the tree"


def changes_in_words(data: Mapping[str, Sequence[int]]) -> str:
    """`the data of 4 clients changed and 2 clients joined`; empty if nothing did."""
    said = {
        "changed": "the data of {} changed",
        "joined": "{} joined",
        "left": "{} left",
    }
    found = {key: number(len(data[key]), "client") for key in said if data.get(key)}
    parts = [said[key].format(clients) for key, clients in found.items()]
    return " and ".join(parts)


def _name(record: Mapping[str, Any]) -> str:
    return f"round {record['round']}" if record["round"] else "the warm-up"


def _num_clients(record: Mapping[str, Any]) -> int:
    return int(record.get("num_clients", len(record.get("accuracies", ()))))
