"""Presets: named sets of overrides, applied before a YAML file and `--set`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sofa_fl.errors import ConfigError

# By preset, the value of every key that it changes.
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "paper": {
            "local.prior": False,
            "local.final_rate": 1.0,
            "sofa.start": "own",
            "sofa.serve": "own",
            "sofa.clusters": "regularized",
            "sofa.linkage": "centroid",
            "sofa.dmac.increase": 1.2,
            "sofa.rules.graft": "paper",
            "sofa.rules.merge": "paper",
            "sofa.rules.split": "paper",
            "sofa.rules.passes": "paper",
            "sofa.steadiness": 0.0,
            "sofa.alert": 1e9,
            "sharing.accumulate": True,
            "sharing.reshare": True,
        },
    }
)


def preset_overrides(name: Any) -> Mapping[str, Any]:
    """The overrides of a preset, by dotted key."""
    if not isinstance(name, str) or name not in PRESETS:
        near = difflib.get_close_matches(str(name), list(PRESETS), n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(PRESETS)}"
        raise ConfigError(f"unknown preset {name}; {hint}")
    return PRESETS[name]
