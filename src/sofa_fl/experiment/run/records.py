"""The record of a run: a line per round, and a summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sofa_fl.data.federated_data import ClientData
from sofa_fl.experiment.run.config import Config, provenance
from sofa_fl.experiment.run.round_end import RoundEnd
from sofa_fl.experiment.scoring.agreement import ari, fscore, purity
from sofa_fl.experiment.scoring.metrics import (
    Examiner,
    by_level,
    client_accuracies,
    fairness,
    full_accuracies,
    mean_curve,
    measured_accuracies,
    regression,
    scored_levels,
)
from sofa_fl.experiment.storage.events import (
    Event,
    are_many,
    count_edits,
    edit_to_json,
    remembered,
)
from sofa_fl.federation import Federation
from sofa_fl.methods.method import Notes, View
from sofa_fl.methods.registry import MethodInfo
from sofa_fl.sharing import contributions
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit


def describe_round(
    view: View, notes: Notes, examiner: Examiner, before: Event, end: RoundEnd
) -> Event:
    """Describe the federation's round in one line of `events.jsonl`.

    `before` is the event of the round before; it has the scores that are not taken in this one.
    Only `end` depends on what the next round changes, so a round can be described during it.
    """
    fed = examiner.fed
    listed = lists_of(fed)
    return {
        "event": "round",
        "round": fed.round,
        "rounds": fed.rounds,
        "clients": listed["clients"],
        **names(fed),
        **data_changes(fed),
        **scores(view, examiner, before),
        "samples": listed["samples"],
        **end.attendance,
        **group_agreement(view.tree, fed.stage.truth),
        "local_loss": mean_curve(list(notes.local_loss.values())),
        "path_loss": {
            str(client): {str(node): loss for node, loss in losses.items()}
            for client, losses in notes.path_loss.items()
        },
        **objective(notes),
        "tree": parents_of(view.tree.parent),
        "edits": [edit_to_json(edit) for edit in notes.edits],
        "pools": {str(node): len(rows) for node, rows in view.shared.pools.items()},
        "shared": {str(c): n for c, n in contributions(view.tree, view.shared.pools, fed.owned)},
        "disclosed": disclosed(view, fed),
        "positions": {str(client): place for client, place in notes.positions.items()},
        **end.costs,
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
        new = {"client": fairness(accuracies), "accuracies": _plain(accuracies)}
        return {**new, **regression(used, examiner)}
    old = old_accuracies(fed, before)
    if not fed.measured:
        kept = {key: before[key] for key in (*SCORED, "evaluated") if key in before}
        return {**kept, "accuracies": old, "measured": []}
    now = measured_accuracies(used, examiner)
    known, place = old.copy(), fed.present.place
    for client, score in zip(fed.measured, _plain(now)):
        known[place[client]] = score
    alone = {"scores": _plain(now)} if are_many(fed.clients) else {}
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


def summarize(
    config: Config,
    info: MethodInfo,
    view: View,
    edits: Sequence[Edit],
    examiner: Examiner,
    elapsed: Callable[[], float],
    on_step: Callable[[int, int], None] = lambda _done, _of: None,
) -> dict[str, Any]:
    """Summarize a run that has ended; fractions are in [0, 1].

    If the true groups are known, `groups` says how well the tree agrees with them, level by level
    from the finest. All models are scored on the whole test set, which may take long: `on_step`
    is called with how many of how many steps are done, and `elapsed` when all are.
    """
    fed = examiner.fed
    used = view.used_by(fed.clients)
    accuracies = client_accuracies(used, examiner)
    whole = score_whole(view, examiner, on_step) if config.score_levels else NOT_SCORED
    given = disclosed(view, fed)
    return {
        "method": info.name,
        "title": config.title or info.title,
        "data": config.data.label,
        "own": list(config.own),
        "seed": config.seed,
        "engine": config.engine,
        "rounds": config.rounds,
        "seconds": round(elapsed(), 3),
        "samples_trained": fed.meter.samples_trained,
        "bytes_down": fed.meter.bytes_down,
        "bytes_up": fed.meter.bytes_up,
        "client": {
            **fairness(accuracies),
            "clients": list(fed.clients),
            **names(fed),
            "accuracies": _plain(accuracies),
        },
        **regression(used, examiner),
        **whole,
        "test_samples": len(fed.data.test),
        "tree": {"num_clusters": len(view.tree.clusters), "depth": view.tree.depth},
        "edits": count_edits(edits),
        "sharing": {
            "disclosed_mean": float(np.mean(given)),
            "disclosed_max": float(np.max(given)),
        },
        **group_agreement(view.tree, fed.stage.truth),
        **privacy_spent(fed),
        "provenance": provenance(config, fed.data.digest()),
    }


def privacy_spent(fed: Federation) -> dict[str, Any]:
    """What the answers of clients have cost of their privacy budgets, if there are any."""
    if fed.privacy is None:
        return {}
    config, noise = fed.privacy.config, fed.privacy.noise.values()
    spent = fed.privacy.budgets.epsilon_spent()
    limits = {"epsilon": config.epsilon, "delta": config.delta}
    return {"privacy": {**limits, "spent": spent, "noise": [min(noise), max(noise)]}}


NOT_SCORED: dict[str, Any] = {"full": None, "full_samples": 0, "root": None, "levels": []}


def score_whole(
    view: View, examiner: Examiner, on_step: Callable[[int, int], None]
) -> dict[str, Any]:
    """The scores on the whole test set: of what clients use, of every level, and of the root."""
    fed, levels_there = examiner.fed, scored_levels(view)
    num_steps = 1 + len(levels_there)
    on_step(0, num_steps)
    used = list(view.used_by(fed.clients).values())
    full = full_accuracies(used, examiner, [fed.priors[client] for client in fed.clients])
    rows = by_level(view, examiner, lambda level: on_step(1 + levels_there.index(level), num_steps))
    levels = [{**row, "full": _plain([row["full"]])[0]} for row in rows]
    return {
        "full": _plain([float(np.mean(full))])[0],
        "full_samples": len(examiner.test_set(len(full))),
        "root": levels[-1]["full"],
        "levels": levels,
    }


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


def _plain(values: Sequence[float]) -> list[float | None]:
    """None for NaN (the score of a client without test samples), which JSON does not have."""
    return [None if np.isnan(value) else value for value in values]
