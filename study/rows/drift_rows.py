"""Rows with one value per round, from a run's summary and its `events.jsonl`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from sofa_fl.data.groups import client_groups
from sofa_fl.engine.config import FaultsConfig
from sofa_fl.engine.faulty import draw_bad
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.scoring.agreement import ari, moved
from sofa_fl.experiment.storage.events import Event
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.report.history import tree_in
from sofa_fl.topology.edits import Leave, apply_all
from sofa_fl.topology.tree import NodeId, Tree
from study.design.drift_settings import BAD
from study.design.run_plan import Entry
from study.rows.row_files import ORIGIN, Row

DIGITS = 5


def drift_row(entry: Entry, summary: Mapping[str, Any], folder: Path) -> Row:
    """What happened in every round; round 0 is the warm-up.

    `changes` are the rounds in which something changes. The agreement with true groups is that of
    the level with the least.
    """
    events = list(RunFolder.open(folder).events())
    config = entry.config
    row: Row = {
        **_begin(entry, summary, events),
        "changes": changes_of(config),
        **_agreement(events),
        "edits": [len(event["edits"]) for event in events],
        "moved": _moved([tree_in(event) for event in events]),
    }
    if config.data.scenario.name == "churn":
        first = range(config.data.num_clients)
        row["newcomers"] = [_mean_of(event, lambda c: c not in first) for event in events]
        row["old"] = [_mean_of(event, lambda c: c in first) for event in events]
    return row


def faults_row(entry: Entry, summary: Mapping[str, Any], folder: Path) -> Row:
    """What happened to the honest clients: those that are not bad in any variant of this seed."""
    events = list(RunFolder.open(folder).events())
    config = entry.config
    data = config.data
    bad = set(draw_bad(FaultsConfig(bad=BAD), data.num_clients, config.seed))
    row: Row = {
        **_begin(entry, summary, events),
        **_agreement(events),
        "honest": [_mean_of(event, lambda c: c not in bad) for event in events],
        "heard": [_heard(event) for event in events],
        "set_aside": [len(event.get("set_aside", ())) for event in events],
        "finite": all(_is_finite(event) for event in events),
    }
    if data.partition == "groups":
        truth = client_groups(data.num_clients, data.num_rotations, data.num_swaps).tolist()
        row["honest_ari"] = [rounded(honest_ari(tree_in(event), truth, bad)) for event in events]
    return row


def changes_of(config: Config) -> list[int]:
    """The rounds of the run in which something changes, or starts to."""
    scenario = config.data.scenario
    rounds = {"none": [], "recur": [scenario.at, scenario.at + scenario.lasts]}
    found = rounds.get(scenario.name, [scenario.at])
    return [number for number in found if number <= config.rounds]


def honest_ari(tree: Tree, truth: Sequence[int], bad: Collection[NodeId]) -> float:
    """How well a tree agrees with the true groups, without bad clients."""
    left = apply_all(tree, [Leave(client) for client in tree.clients if client in bad])
    return ari(left, [truth[client] for client in left.clients])


def rounded(number: float) -> float:
    """Few digits, so that files stay small."""
    return round(number, DIGITS)


def _begin(entry: Entry, summary: Mapping[str, Any], events: Sequence[Event]) -> Row:
    return {
        **{key: value for key, value in entry.keys.items() if key != "overrides"},
        **{key: summary[key] for key in ("samples_trained", "seconds", "engine")},
        "overrides": dict(sorted(entry.overrides.items())),
        "accuracy": [rounded(event["client"]["mean"]) for event in events],
        "worst": [rounded(event["client"]["min"]) for event in events],
        **({ORIGIN: summary[ORIGIN]} if ORIGIN in summary else {}),
    }


def _agreement(events: Sequence[Event]) -> Row:
    if "groups" not in events[0]:
        return {}
    return {"ari": [rounded(min(event["groups"]["ari"])) for event in events]}


def _moved(trees: Sequence[Tree]) -> list[int]:
    """How many clients changed their cluster in every round; none in the first."""
    return [0, *(moved(before, after) for before, after in pairwise(trees))]


def _mean_of(event: Event, is_meant: Callable[[int], bool]) -> float | None:
    """The mean accuracy of some clients; None if there are none."""
    found = [
        accuracy
        for client, accuracy in zip(event["clients"], event["accuracies"])
        if accuracy is not None and is_meant(client)
    ]
    return rounded(fmean(found)) if found else None


def _heard(event: Event) -> int:
    """The number of clients whose update was used."""
    return len(event["clients"]) - sum(len(event.get(key, ())) for key in ("absent", "set_aside"))


def _is_finite(event: Event) -> bool:
    """Whether every model that a client could use has a finite loss for it."""
    return all(isfinite(x) for losses in event["path_loss"].values() for x in losses.values())
