"""The record of a run, a line per round: each is described by what was known before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sofa_fl.data.federated_data import ClientData
from sofa_fl.experiment.scoring.agreement import ari, fscore, purity
from sofa_fl.experiment.scoring.metrics import (
    Examiner,
    client_accuracies,
    fairness,
    mean_curve,
    measured_accuracies,
    regression,
)
from sofa_fl.experiment.scoring.own_metrics import OwnMetrics, warn_of_missing
from sofa_fl.experiment.scoring.training import training_of
from sofa_fl.experiment.storage.events import (
    Event,
    are_many,
    edit_to_json,
    remembered,
    to_line,
)
from sofa_fl.federation import Federation
from sofa_fl.methods.method import Notes, View
from sofa_fl.sharing import contributions
from sofa_fl.topology.tree import NodeId, Tree


class Recorder:
    """Describes rounds in their order, and remembers the last."""

    def __init__(self, own_metrics: OwnMetrics | None) -> None:
        self.own_metrics = own_metrics
        self.last_event: Event = {}

    def describe(
        self, view: View, notes: Notes, examiner: Examiner, seconds: float
    ) -> tuple[Event, Event]:
        """Score a round; return its line of `events.jsonl` and its event."""
        event = describe_round(view, notes, examiner, self.last_event, seconds)
        if self.own_metrics is not None and examiner.fed.measured:
            event |= self.own_metrics.measure(view, examiner.fed)
        line, self.last_event = to_line(event, self.last_event), event
        return line, event

    def warn_of_missing(self) -> None:
        """Warn of metrics that the last round had, and that the next one will not have."""
        warn_of_missing(self.last_event, self.own_metrics.metrics if self.own_metrics else ())


def describe_round(
    view: View, notes: Notes, examiner: Examiner, before: Event, seconds: float
) -> Event:
    """Describe the federation's round in one line of `events.jsonl`.

    `before` is the event of the round before; it has the scores that are not taken in this one.
    Who was there, and what the run has cost, is told as it was before the scoring.
    """
    fed = examiner.fed
    listed, attended, costs = lists_of(fed), attendance(fed), costs_of(fed, seconds)
    return {
        "event": "round",
        "round": fed.round,
        "rounds": fed.rounds,
        "clients": listed["clients"],
        **names(fed),
        **data_changes(fed),
        **scores(view, examiner, before),
        "samples": listed["samples"],
        **attended,
        **group_agreement(view.tree, fed.stage.truth),
        "local_loss": mean_curve(list(notes.local_loss.values())),
        "training": training_of(notes.local_loss, fed, before.get("training", {})),
        "path_loss": {
            str(client): {str(node): loss for node, loss in losses.items()}
            for client, losses in notes.path_loss.items()
        },
        **objective(notes),
        "tree": parents_of(view.tree.parent),
        "edits": [edit_to_json(edit) for edit in notes.edits],
        "pools": {
            str(node): len(rows)
            for node, rows in view.shared.pools.items()
            if node not in view.tree.members
        },
        "shared": {str(c): n for c, n in contributions(view.tree, view.shared.pools, fed.owned)},
        "disclosed": disclosed(view, fed),
        "positions": {str(client): place for client, place in notes.positions.items()},
        **costs,
    }


def scores(view: View, examiner: Examiner, before: Event) -> dict[str, Any]:
    """The clients' scores and, if not all are measured in every round, which are new.

    A client that is not measured keeps its last score. `evaluated` is the round of the last
    evaluation, and `measured` has the clients whose scores are of this round. Of many clients,
    `scores` has theirs alone.
    """
    fed = examiner.fed
    used = view.used_by(fed.measured)
    if fed.evaluate.is_complete:
        accuracies = client_accuracies(used, examiner)
        new = {"client": fairness(accuracies), "accuracies": plain_numbers(accuracies)}
        return {**new, **regression(used, examiner)}
    old = old_accuracies(fed, before)
    if not fed.measured:
        kept = {key: before[key] for key in (*SCORED, "evaluated") if key in before}
        return {**kept, "accuracies": old, "measured": []}
    now = measured_accuracies(used, examiner)
    known, place = old.copy(), fed.present.place
    for client, score in zip(fed.measured, plain_numbers(now)):
        known[place[client]] = score
    alone = {"scores": plain_numbers(now)} if are_many(fed.clients) else {}
    return {
        **alone,
        "client": fairness(now),
        "accuracies": known,
        **regression(used, examiner),
        "measured": list(fed.measured),
        "evaluated": fed.round,
    }


def old_accuracies(fed: Federation, before: Event) -> list[float | None]:
    """The last score of every client that was ever measured."""
    scores: list[float | None] = before.get("accuracies", [])
    if before.get("clients") is fed.present.lists["clients"]:  # many, and the same as before
        return scores
    known = dict(zip(before.get("clients", ()), scores))
    return [known.get(client) for client in fed.clients]


def lists_of(fed: Federation) -> Mapping[str, list[Any]]:
    """What is told of every client of a stage; of many clients the same objects in every round."""
    lists = fed.present.lists
    return lists if are_many(fed.clients) else {key: list(each) for key, each in lists.items()}


@remembered
def parents_of(parent: Mapping[NodeId, NodeId | None]) -> dict[str, NodeId | None]:
    """The parent of every node, for JSON."""
    return {str(node): up for node, up in parent.items()}


SCORED = ("client", "metric", "rmse", "unscored")


def names(fed: Federation) -> dict[str, list[str]]:
    """The names of the clients of a round, in their order; empty if they have none."""
    return {"names": lists_of(fed)["names"]} if fed.data.names else {}


def data_changes(fed: Federation) -> dict[str, dict[str, list[int]]]:
    """The clients whose data changed since the round before, that joined, and that left."""
    before, now = fed.data.stage(max(0, fed.round - 1)), fed.stage
    if before is now:
        return {}
    both = [client for client in now.clients if client in before.clients]
    changes = {
        "changed": [c for c in both if not _same_rows(now.clients[c], before.clients[c])],
        "joined": [client for client in now.clients if client not in before.clients],
        "left": [client for client in before.clients if client not in now.clients],
    }
    changes = {key: clients for key, clients in changes.items() if clients}
    return {"data": changes} if changes else {}


def _same_rows(a: ClientData, b: ClientData) -> bool:
    return a is b or (np.array_equal(a.train, b.train) and np.array_equal(a.test, b.test))


def group_agreement(tree: Tree, truth: Sequence[Sequence[int]]) -> dict[str, Any]:
    """How well a tree agrees with the true groups, if they are known."""
    levels = [[level[client] for client in tree.clients] for level in truth]
    if not levels:
        return {}
    agreement = {
        "ari": [ari(tree, level) for level in levels],
        "purity": [purity(tree, level) for level in levels],
        "fscore": [fscore(tree, level) for level in levels],
    }
    return {"groups": agreement}


def objective(notes: Notes) -> dict[str, Any]:
    """The value of the objective and its terms; nothing for methods without one."""
    terms = {name: value for name, value in notes.objective.items() if np.isfinite(value)}
    return {"objective": {"value": sum(terms.values()), **terms}} if terms else {}


def disclosed(view: View, fed: Federation) -> list[float]:
    """The fraction of every client's samples that has been shared with others so far."""
    ledger = view.shared.ledger
    if not len(ledger.gone) and not any(map(len, ledger.received.values())):
        return lists_of(fed)["nothing"]
    given = ledger.disclosed(fed.owned)
    return [len(given[client]) / fed.size(client) for client in fed.clients]


def costs_of(fed: Federation, seconds: float) -> dict[str, Any]:
    """What the run has cost so far: samples, bytes and seconds."""
    return {
        "samples_trained": fed.meter.samples_trained,
        "bytes_down": fed.meter.bytes_down,
        "bytes_up": fed.meter.bytes_up,
        "seconds": round(seconds, 3),
    }


def plain_numbers(values: Sequence[float]) -> list[float | None]:
    """None for NaN (the score of a client without test samples), which JSON does not have."""
    return [None if np.isnan(value) else value for value in values]


def attendance(fed: Federation) -> dict[str, Any]:
    """The clients whose update was not used in a round, by reason; empty if all were used.

    Clients in quarantine count as absent too. A client whose last permitted flaw was in this round
    is set aside now, and in quarantine from the next round on. Of many clients only
    those who were `asked` can be absent.
    """

    def is_quarantined(client: NodeId) -> bool:
        is_heard = client in fed.roll.heard or client in fed.roll.set_aside
        return not is_heard and client in fed.owned and fed.register.is_out(client, fed.round)

    asked = fed.cohort if are_many(fed.clients) else ()
    expected = set(asked or fed.clients)
    absent = sorted(expected - fed.roll.heard - fed.roll.set_aside.keys())
    lists = {
        "asked": list(asked),
        "absent": absent,
        "set_aside": {str(client): flaw for client, flaw in fed.roll.set_aside.items()},
        "quarantined": sorted(c for c in fed.register.back_at if is_quarantined(c)),
    }
    return {key: value for key, value in lists.items() if value}
