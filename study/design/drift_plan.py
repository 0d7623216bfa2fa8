"""The runs of `reproduce drift` and `reproduce faults`, and those that FedDrift is tuned by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from study.design.choices import Choices
from study.design.run_plan import Entry, Scope, make_entry
from study.design.settings import SWEEP_SEEDS, Overrides
from study.design.situations import (
    DRIFTERS,
    FAULTY,
    IN_STILL,
    SCENARIOS,
    SITUATIONS,
    SOFA,
    VARIANTS,
)

VALIDATION: Overrides = {"data.score_on": "validation"}


def drift(scope: Scope, choices: Choices) -> list[Entry]:
    """Every contender in every scenario; where nothing changes, those whose trees could."""
    return [
        make_entry(scope, setting, DRIFTERS[label], sharing, seed, choices)
        for setting in scope.settings
        for sharing in SITUATIONS[setting].sharing
        for label in scope.methods
        if setting in SCENARIOS or label in IN_STILL
        for seed in scope.seeds
    ]


def trials(scope: Scope) -> list[Entry]:
    """What is tried on validation data, of other seeds, for those who have something to choose."""
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
    """SOFA-FL whole, and with everything that may go wrong."""
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
    """For a quick look, not as many rounds."""
    return {key: value for key, value in part.items() if key != "rounds"}
