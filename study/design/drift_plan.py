"""The runs of the targets `drift` and `faults`, and those that tune FedDrift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from study.design.choices import Choices
from study.design.drift_settings import (
    DRIFTERS,
    FAULTY,
    IN_STILL,
    SCENARIOS,
    SITUATIONS,
    SOFA,
    VARIANTS,
)
from study.design.run_plan import Entry, Scope, make_entry
from study.design.settings import SWEEP_SEEDS, VALIDATION, Overrides


def drift(scope: Scope, choices: Choices) -> list[Entry]:
    """Every contender in every scenario; if nothing changes, those whose trees could."""
    return [
        make_entry(scope, setting, DRIFTERS[label], sharing, seed, choices)
        for setting in scope.settings
        for sharing in SITUATIONS[setting].sharing
        for label in scope.methods
        if setting in SCENARIOS or label in IN_STILL
        for seed in scope.seeds
    ]


def trials(scope: Scope) -> list[Entry]:
    """The runs on validation data and other seeds, for contenders with a parameter to choose."""
    seeds = SWEEP_SEEDS[:1] if scope.quick else SWEEP_SEEDS
    tried = replace(scope, extra={**scope.extra, **VALIDATION})
    return [
        make_entry(tried, setting, DRIFTERS[label], sharing, seed, {}, chosen=values)
        for setting in scope.settings
        if setting in SCENARIOS
        for sharing in SITUATIONS[setting].sharing
        for label in scope.methods
        for values in DRIFTERS[label].grid
        for seed in seeds
    ]


def faults(scope: Scope) -> list[Entry]:
    """SOFA-FL without and with every fault."""
    return [
        make_entry(
            scope,
            setting,
            DRIFTERS[SOFA],
            sharing,
            seed,
            {},
            label=label,
            part=_shortened(VARIANTS[label]) if scope.quick else VARIANTS[label],
        )
        for setting in scope.settings
        for sharing in FAULTY[setting].sharing
        for label in scope.methods
        for seed in scope.seeds
    ]


def _shortened(part: Overrides) -> Mapping[str, object]:
    """Without the longer run of a variant, for a quick check."""
    return {key: value for key, value in part.items() if key != "rounds"}
