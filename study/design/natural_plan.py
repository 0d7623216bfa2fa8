"""The runs on natural federations: every contender in every setting that it fits."""

from __future__ import annotations

from study.design.natural_contenders import fitting, fixed_in
from study.design.natural_settings import NATURAL_SETTINGS
from study.design.run_plan import Entry, Scope, make_entry


def natural(scope: Scope) -> list[Entry]:
    """Every contender in every setting that it fits, with every seed."""
    return [
        make_entry(scope, setting, contender, sharing, seed, {}, part=fixed_in(setting, contender))
        for setting in scope.settings
        for sharing in NATURAL_SETTINGS[setting].sharing
        for contender in fitting(setting)
        if contender.label in scope.methods
        for seed in scope.seeds
    ]
