"""The summary of a run that has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sofa_fl.experiment.run.config import Config, provenance
from sofa_fl.experiment.run.records import disclosed, group_agreement, names, plain_numbers
from sofa_fl.experiment.run.titles import run_title
from sofa_fl.experiment.scoring.metrics import (
    Examiner,
    by_level,
    client_accuracies,
    fairness,
    full_accuracies,
    regression,
    scored_levels,
)
from sofa_fl.experiment.storage.events import count_edits
from sofa_fl.federation import Federation
from sofa_fl.methods.method import View
from sofa_fl.methods.registry import MethodInfo
from sofa_fl.topology.edits import Edit


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
        "title": run_title(config, info, has_classes=fed.data.train.y.dtype.kind != "f"),
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
            "accuracies": plain_numbers(accuracies),
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
    levels = [{**row, "full": plain_numbers([row["full"]])[0]} for row in rows]
    return {
        "full": plain_numbers([float(np.mean(full))])[0],
        "full_samples": len(examiner.test_set(len(full))),
        "root": levels[-1]["full"],
        "levels": levels,
    }
