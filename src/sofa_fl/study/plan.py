"""From a setting, a contender and a seed to the configuration of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import Config, load_config
from sofa_fl.experiment.run.values import read_setting
from sofa_fl.methods.registry import built_in_methods
from sofa_fl.study.choices import Choices
from sofa_fl.study.contenders import (
    ABLATED,
    ABLATION,
    CONTENDERS,
    TABLE2,
    Contender,
)
from sofa_fl.study.settings import COMMON, QUICK, SEEDS, SETTINGS, Overrides
from sofa_fl.study.situations import EVERY

PAPER, PAPER_SHARING = "S1", 0.1  # the paper's own experiment
# What changes no result, or stands in a row already.
UNTOLD = ("save_every", "keep", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What of the study is asked for.

    Attributes:
        seeds: Where the draws come from.
        settings: Names of settings.
        methods: Labels of contenders.
        extra: Keys that are changed for all runs.
        quick: Small runs, to see whether everything works.
        data_dir: Folder to look for datasets in first.
    """

    seeds: tuple[int, ...] = SEEDS
    settings: tuple[str, ...] = tuple(SETTINGS)
    methods: tuple[str, ...] = tuple(CONTENDERS)
    extra: Overrides = field(default_factory=dict)
    quick: bool = False
    data_dir: str | None = None

    def contenders(self, setting: str) -> list[Contender]:
        """Those asked for that run in a setting."""
        asked = (CONTENDERS[label] for label in self.methods)
        return [c for c in asked if c.fits(SETTINGS[setting]) and c.method in built_in_methods()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A run to be made, and the keys of its row; `overrides` is what was chosen for it."""

    setting: str
    method: str
    sharing: float
    seed: int
    overrides: Overrides
    config: Config

    @property
    def keys(self) -> dict[str, Any]:
        """What its row begins with."""
        names = ("setting", "method", "sharing", "seed", "overrides")
        return {name: getattr(self, name) for name in names}

    @property
    def title(self) -> str:
        return f"{self.setting}, {self.method}, sharing {self.sharing:g}, seed {self.seed}"


def benchmark(scope: Scope, choices: Choices) -> list[Entry]:
    """Every contender in every setting, with and without sharing, by every seed."""
    return [
        make_entry(scope, setting, contender, sharing, seed, choices)
        for setting in scope.settings
        for sharing in SETTINGS[setting].sharing
        for contender in scope.contenders(setting)
        for seed in scope.seeds
    ]


def table1(scope: Scope, choices: Choices) -> list[Entry]:
    """SOFA-FL and HypCluster with the chosen number of clusters, as in the paper."""
    return [
        make_entry(scope, PAPER, CONTENDERS[label], PAPER_SHARING, seed, choices)
        for label in ("sofa", "hypcluster")
        for seed in scope.seeds
    ]


def table2(scope: Scope, choices: Choices) -> list[Entry]:
    """SOFA-FL with the paper's four ways of sharing."""
    return [
        make_entry(
            scope, PAPER, CONTENDERS["sofa"], PAPER_SHARING, seed, choices, label=label, part=part
        )
        for label, (part, _, _) in TABLE2.items()
        for seed in scope.seeds
    ]


def ablation(scope: Scope, choices: Choices) -> list[Entry]:
    """SOFA-FL whole, and without each of its parts."""
    return [
        make_entry(
            scope,
            setting,
            CONTENDERS["sofa"],
            SETTINGS[setting].sharing[-1],
            seed,
            choices,
            label=label,
            part=ABLATION[label],
        )
        for setting in scope.settings
        for label in ABLATED[setting]
        for seed in scope.seeds
    ]


def make_entry(
    scope: Scope,
    setting: str,
    contender: Contender,
    sharing: float,
    seed: int,
    choices: Choices,
    *,
    label: str = "",
    part: Overrides | None = None,
    chosen: Overrides | None = None,
) -> Entry:
    """One run: a contender as chosen for this setting and sharing, and then changed by `part`."""
    if chosen is None:
        chosen = choices.get((setting, contender.label, sharing), {})
    part = part or {}
    told = {**chosen, **part, **scope.extra}
    values = {
        **COMMON,
        **EVERY[setting].overrides,
        **(QUICK if scope.quick else {}),
        "sharing.ratio": sharing,
        **contender.overrides,
        **told,
    }
    if contender.method == "hypcluster" and told.get("hypcluster.num_clusters") == 1:
        method = "fedavg"  # one cluster is FedAvg, so its run is this one's too
        values.pop("hypcluster.num_clusters")
    else:
        method = contender.method
    config = configure({**values, "method": method, "seed": seed}, scope.data_dir)
    ratio = config.sharing.ratio
    return Entry(
        setting=setting,
        method=label or contender.label,
        sharing=ratio if isinstance(ratio, float) else sharing,
        seed=seed,
        overrides={key: value for key, value in told.items() if key not in UNTOLD},
        config=config,
    )


def configure(values: Overrides, data_dir: str | None = None) -> Config:
    """A configuration out of dotted keys."""
    config = load_config(settings=[f"{key}={json.dumps(value)}" for key, value in values.items()])
    return replace(config, data=replace(config.data, dir=data_dir)) if data_dir else config


def read_extra(settings: Sequence[str]) -> dict[str, Any]:
    """What `--set` gives, by key."""
    extra = dict(map(read_setting, settings))
    for key in ("seed", "method", "out"):
        if key in extra:
            raise ConfigError(f"{key} is set by the study, got --set {key}={extra[key]}")
    return extra
