"""From a setting, a contender and a seed to the configuration of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import Config, override, parse_config
from sofa_fl.experiment.run.values import read_setting
from study.design.choices import Choices, Key
from study.design.contenders import (
    ABLATED,
    ABLATION,
    ALL_CONTENDERS,
    CONTENDERS,
    TABLE1,
    TABLE2,
    TABLE2_CONTENDERS,
    Contender,
    table2_label,
)
from study.design.drift_settings import EVERY
from study.design.settings import (
    COMMON,
    PAPER,
    PAPER_SHARING,
    SEEDS,
    SETTINGS,
    Overrides,
    quick_of,
)

# Keys that change no result, or whose values a row has anyway.
UNTOLD = ("save_every", "keep", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The part of the study that is asked for.

    Attributes:
        seeds: The seeds of the runs.
        settings: Names of settings.
        methods: Labels of contenders.
        extra: Keys that are changed for all runs.
        quick: Small runs, to check that everything works.
        data_dir: Folder to look for datasets in first.
    """

    seeds: tuple[int, ...] = SEEDS
    settings: tuple[str, ...] = tuple(SETTINGS)
    methods: tuple[str, ...] = tuple(CONTENDERS)
    extra: Overrides = field(default_factory=dict)
    quick: bool = False
    data_dir: str | None = None

    def contenders(self, setting: str) -> list[Contender]:
        """The benchmark's contenders that are asked for and fit a setting."""
        asked = (CONTENDERS[label] for label in self.methods if label in CONTENDERS)
        return [contender for contender in asked if contender.fits(SETTINGS[setting])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A run to be made, and the keys of its row.

    Attributes:
        overrides: What was chosen for it, and what else distinguishes it in its table.
        choice: The key under which the sweep's choice for it is found.
    """

    setting: str
    method: str
    sharing: float
    seed: int
    overrides: Overrides
    choice: Key
    config: Config

    @property
    def keys(self) -> dict[str, Any]:
        """The first part of its row."""
        names = ("setting", "method", "sharing", "seed", "overrides")
        return {name: getattr(self, name) for name in names}

    @property
    def title(self) -> str:
        return f"{self.setting}, {self.method}, sharing {self.sharing:g}, seed {self.seed}"


def benchmark(scope: Scope, choices: Choices) -> list[Entry]:
    """Every contender in every setting, with and without sharing, with every seed."""
    return [
        make_entry(scope, setting, contender, sharing, seed, choices)
        for setting in scope.settings
        for sharing in SETTINGS[setting].sharing
        for contender in scope.contenders(setting)
        for seed in scope.seeds
    ]


def table1(scope: Scope, choices: Choices) -> list[Entry]:
    """SOFA-FL as written and ours; HypCluster with the paper's K and with the chosen one."""
    return [
        make_entry(scope, PAPER, ALL_CONTENDERS[label], PAPER_SHARING, seed, choices)
        for label in TABLE1
        for seed in scope.seeds
    ]


def table2(scope: Scope, choices: Choices) -> list[Entry]:
    """The paper's four ways of sharing, with SOFA-FL as written and with ours."""
    return [
        make_entry(
            scope,
            PAPER,
            ALL_CONTENDERS[contender],
            PAPER_SHARING,
            seed,
            choices,
            label=table2_label(contender, sharing),
            part=part,
        )
        for contender in TABLE2_CONTENDERS
        for sharing, (part, _, _) in TABLE2.items()
        for seed in scope.seeds
    ]


def ablation(scope: Scope, choices: Choices) -> list[Entry]:
    """SOFA-FL as a whole, and without each of its parts."""
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
    """One run: a contender with what was chosen for this setting and sharing, changed by `part`."""
    key = setting, contender.label, sharing
    if chosen is None:
        chosen = choices.get(key, {})
    part = part or {}
    told = {**chosen, **part, **scope.extra}
    values = {
        **COMMON,
        **EVERY[setting].overrides,
        **(quick_of(EVERY[setting]) if scope.quick else {}),
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
        overrides={name: value for name, value in told.items() if name not in UNTOLD},
        choice=key,
        config=config,
    )


def configure(values: Overrides, data_dir: str | None = None) -> Config:
    """A configuration from values by dotted key."""
    config = parse_config(override({}, values))
    return replace(config, data=replace(config.data, dir=data_dir)) if data_dir else config


def read_extra(settings: Sequence[str]) -> dict[str, Any]:
    """The values given with `--set`, by key."""
    extra = dict(map(read_setting, settings))
    for key in ("seed", "method", "out"):
        if key in extra:
            given = f"--set {key}={extra[key]}"
            raise ConfigError(f"the study sets {key} itself, got {given}; leave it out")
    return extra
