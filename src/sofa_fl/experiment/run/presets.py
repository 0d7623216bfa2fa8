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
            "local.learning_rate": 1e-3,  # of the authors' code; the paper does not say
            "sofa.start": "own",
            "sofa.serve": "own",
            "sofa.clusters": "regularized",
            "sofa.position": "weights",
            "sofa.linkage": "centroid",
            "sofa.dmac.increase": 1.2,
            # Chosen on validation data of S1 and S4, seeds 100 and 101 (docs/rules.md).
            "sofa.pull_siblings": 1e-2,
            "sofa.pull_parent": 1e-2,
            "sofa.rules.graft": "paper",
            "sofa.rules.merge": "paper",
            "sofa.rules.split": "paper",
            "sharing.max_disclosure": 1.0,
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
