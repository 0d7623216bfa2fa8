"""The runs on natural federations: every contender in every setting that it fits."""

from __future__ import annotations

from dataclasses import replace

from study.design.choices import Choices
from study.design.natural_contenders import NATURALS, PARTS, fitting, fixed_in
from study.design.natural_settings import NATURAL_SETTINGS
from study.design.run_plan import Entry, Scope, make_entry
from study.design.settings import VALIDATION


def natural(scope: Scope, choices: Choices) -> list[Entry]:
    """Every contender that is asked for, with what was chosen for it, with every seed."""
    return [
        make_entry(
            scope, setting, contender, sharing, seed, choices, part=fixed_in(setting, contender)
        )
        for setting in scope.settings
        for sharing in NATURAL_SETTINGS[setting].sharing
        for contender in fitting(setting)
        if contender.label in scope.methods
        for seed in scope.seeds
    ]


def parts(scope: Scope) -> list[Entry]:
    """SOFA-FL as a whole, and without each of its parts; a stop costs seeds, not parts."""
    return [
        make_entry(
            scope, setting, NATURALS["sofa"], sharing, seed, {}, label=label, part=PARTS[label]
        )
        for seed in scope.seeds
        for setting in scope.settings
        for sharing in NATURAL_SETTINGS[setting].sharing
        for label in scope.methods
    ]


def trials(scope: Scope) -> list[Entry]:
    """The runs on validation data, for contenders with a parameter to choose."""
    tried = replace(scope, extra={**scope.extra, **VALIDATION})
    return [
        make_entry(
            tried,
            setting,
            contender,
            sharing,
            seed,
            {},
            part=fixed_in(setting, contender),
            chosen=values,
        )
        for setting in scope.settings
        for sharing in NATURAL_SETTINGS[setting].sharing
        for contender in fitting(setting)
        if contender.label in scope.methods
        for values in contender.grid
        for seed in scope.seeds
    ]
