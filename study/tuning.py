"""`python -m study sweep`: choose hyperparameters on validation data, with seeds of its own.

First the learning rate, then the method's own parameters at the best rate, per setting and
sharing. No test sample is used: a sixth of the training images takes the test set's place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sofa_fl.errors import RunError
from study.design.choices import FILE, TRIED, Key, best_choices, choices_table, key_of
from study.design.contenders import CONTENDERS, RATE
from study.design.run_plan import Entry, Scope, make_entry
from study.design.settings import SETTINGS, VALIDATION, Overrides
from study.rows.row_files import Row, add_rows, read_rows
from study.targets import Study, TargetResult, whole_key


@dataclass(frozen=True, slots=True)
class TuningRun:
    """What is tried for a contender in a setting with a sharing and a seed."""

    key: Key
    overrides: Overrides
    seed: int


def sweep(study: Study) -> TargetResult:
    """Try everything, record every run, and choose."""
    scope = study.scope
    keys = [
        (setting, contender.label, sharing)
        for setting in scope.settings
        for sharing in SETTINGS[setting].sharing
        for contender in scope.contenders(setting)
        if contender.is_swept(SETTINGS[setting])
    ]
    first = [
        TuningRun(key, {**rate, **CONTENDERS[key[1]].start_in(SETTINGS[key[0]])}, seed)
        for key in keys
        for rate in ([{RATE: rate} for rate in CONTENDERS[key[1]].rates] or [{}])
        for seed in scope.seeds
    ]
    rows = _try(study, first, "learning rates")
    rates = best_choices(rows)
    second = [
        TuningRun(key, {**rates[key]["overrides"], **values}, seed)
        for key in keys
        for values in CONTENDERS[key[1]].grid_in(SETTINGS[key[0]])
        if values != CONTENDERS[key[1]].start_in(SETTINGS[key[0]])
        for seed in scope.seeds
    ]
    rows += _try(study, second, "own parameters") if second else []
    chosen = best_choices(rows)
    file = study.out / FILE
    before = {key_of(row): row["overrides"] for row in read_rows(file)}
    others = [
        key for key, row in chosen.items() if before.get(key, row["overrides"]) != row["overrides"]
    ]
    if others and not study.may_replace:
        raise RunError(
            f"{len(others)} of the {len(before)} choices in {file} would change; --replace changes "
            "them, and --out DIR writes elsewhere; all trials are recorded"
        )
    everything = add_rows(file, chosen.values(), key=key_of)
    return TargetResult(
        (study.out / TRIED, file), tuple(chosen.values()), choices_table(everything)
    )


def _try(study: Study, trials: Sequence[TuningRun], what: str) -> list[Row]:
    entries = [_entry(study.scope, trial) for trial in trials]

    def save(rows: Sequence[Row]) -> None:
        add_rows(study.out / TRIED, [_tried(row, extra) for row in rows], key=_trial_key)

    extra = study.scope.extra
    there = [
        {**row, "overrides": {**row["overrides"], **row["extra"], **VALIDATION}}
        for row in read_rows(study.out / TRIED)
    ]
    rows = study.run_missing(entries, what, save, there, key=whole_key)
    return [_tried(row, extra) for row in rows]


def _tried(row: Row, extra: Overrides) -> Row:
    """The part of a row that a sweep keeps; overrides of all runs are not a choice."""
    given = {**VALIDATION, **extra}
    values = {key: value for key, value in row["overrides"].items() if key not in given}
    kept = ("setting", "method", "sharing", "seed", "mean", "min")
    told = {key: value for key, value in row["overrides"].items() if key in extra}
    return {**{key: row[key] for key in kept}, "overrides": values, "extra": told}


def _entry(scope: Scope, trial: TuningRun) -> Entry:
    setting, label, sharing = trial.key
    tried = replace(scope, extra={**scope.extra, **VALIDATION})
    contender = CONTENDERS[label]
    return make_entry(tried, setting, contender, sharing, trial.seed, {}, chosen=trial.overrides)


def _trial_key(row: Row) -> tuple[Any, ...]:
    return *key_of(row), json.dumps(row["overrides"]), row["seed"]
