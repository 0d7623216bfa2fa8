"""The whole configuration: the dataclasses of all layers in one, validated by pydantic.

The defaults are the paper's experiment.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Interval

import sofa_fl.errors
from sofa_fl.data.config import DataConfig
from sofa_fl.data.natural.federations import NATURAL, natural_config
from sofa_fl.engine.config import EngineName, FaultsConfig, LocalConfig
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.presets import preset_overrides
from sofa_fl.experiment.run.values import (
    adapter_of,
    merged,
    plain_values,
    put_value,
    read_setting,
    read_values,
    refuse_unknown_keys,
    validated,
    value_at,
)
from sofa_fl.experiment.tracking.observers import TrackerName
from sofa_fl.guard_config import GuardConfig
from sofa_fl.methods.config import (
    ApflConfig,
    CflConfig,
    DittoConfig,
    FedAlaConfig,
    FedDriftConfig,
    FedOptConfig,
    FedProxConfig,
    FedRepConfig,
    FedRodConfig,
    FlHcConfig,
    HierFavgConfig,
    HypClusterConfig,
    OracleConfig,
)
from sofa_fl.methods.registry import OPTIONS, built_in_methods, find_method
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.models.config import ModelConfig
from sofa_fl.present import EvaluateConfig
from sofa_fl.privacy.config import PrivacyConfig
from sofa_fl.sharing import SharingConfig

OwnPart = Literal["data", "network", "method", "metrics", "engine"]


# Keys that do not change the result of a run.
NEUTRAL = frozenset(
    {"out", "engine", "keep", "save_every", "score_levels", "track", "title", "preset", "own"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One experiment.

    Attributes:
        method: The method: a name that `sofa-fl run --help` lists, the name of an entry point in
            the group `sofa_fl.methods`, or `package.module:Class`.
        title: The method's name in tables and reports; by default its own title.
        preset: The preset whose values replaced defaults, such as `paper`.
        seed: The seed of every random draw.
        rounds: Rounds after the warm-up.
        warmup: Batches per client before the first round; every method gets them.
        participation: Fraction of the clients that take part in a round, newly sampled each time.
        warmup_participation: The same for the warm-up. With very many clients, a warm-up of all (1)
            may take longer than all rounds; clients that are left out join when they are first
            sampled.
        out: The run folder; by default a new one under `runs/`.
        engine: How local training is executed: `workers` on all cores, `stacked` on a GPU, `ray` on
            a cluster (`RAY_ADDRESS`), `sequential`, or `auto`, which selects the fastest on this
            machine.
        keep: Number of checkpoints to keep; the newest are kept.
        save_every: Rounds from one checkpoint to the next; the last round is always saved. A
            resumed run repeats at most this many rounds. With 0, only the last round is saved, and
            a run that was stopped starts over.
        track: Services that log every round besides TensorBoard: `wandb`, `mlflow`.
        score_levels: At the end of the run, score the models of every level, and those that clients
            use, on the whole test set; otherwise the summary has only the clients' scores on their
            own samples.
        own: Written by a run: the objects that were passed from Python and are therefore not in the
            run folder.
        options: The settings of a method that is not built in: the fields of the dataclass that it
            takes as `config`.
    """

    method: str = "sofa"
    title: str | None = None
    preset: str | None = None
    seed: Annotated[int, Ge(0)] = 0
    rounds: Annotated[int, Ge(1)] = 20
    warmup: Annotated[int, Ge(1)] = 25
    participation: Annotated[float, Interval(gt=0, le=1)] = 1.0
    warmup_participation: Annotated[float, Interval(gt=0, le=1)] = 1.0
    out: str | None = None
    engine: EngineName = "auto"
    keep: Annotated[int, Ge(1)] = 2
    save_every: Annotated[int, Ge(0)] = 1
    track: tuple[TrackerName, ...] = ()
    score_levels: bool = True
    own: tuple[OwnPart, ...] = ()
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    faults: FaultsConfig = field(default_factory=FaultsConfig)
    sharing: SharingConfig = field(default_factory=SharingConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    sofa: SofaConfig = field(default_factory=SofaConfig)
    hypcluster: HypClusterConfig = field(default_factory=HypClusterConfig)
    fedprox: FedProxConfig = field(default_factory=FedProxConfig)
    ditto: DittoConfig = field(default_factory=DittoConfig)
    cfl: CflConfig = field(default_factory=CflConfig)
    fl_hc: FlHcConfig = field(default_factory=FlHcConfig)
    hierfavg: HierFavgConfig = field(default_factory=HierFavgConfig)
    oracle: OracleConfig = field(default_factory=OracleConfig)
    feddrift: FedDriftConfig = field(default_factory=FedDriftConfig)
    apfl: ApflConfig = field(default_factory=ApflConfig)
    fedrep: FedRepConfig = field(default_factory=FedRepConfig)
    fedala: FedAlaConfig = field(default_factory=FedAlaConfig)
    fedrod: FedRodConfig = field(default_factory=FedRodConfig)
    fedadam: FedOptConfig = field(default_factory=FedOptConfig)
    fedyogi: FedOptConfig = field(default_factory=FedOptConfig)
    options: Any = field(default_factory=dict)


def load_config(
    file: Path | str | Mapping[str, Any] | None = None, settings: Sequence[str] = ()
) -> Config:
    """The defaults, changed by a preset, by a YAML file or its values, and by `key=value` settings.

    The file or a setting can name the preset under the key `preset`.
    """
    if not isinstance(file, Path | str):
        return parse_config(override(file or {}, dict(map(read_setting, settings))))
    values = read_values(Path(file))
    try:
        refuse_unknown_keys(values, Config)
    except ConfigError as error:  # which of its keys is wrong: it may be the file of an old run
        raise ConfigError(f"{file}: {error}") from None
    return parse_config(override(values, dict(map(read_setting, settings))))


def preset(name: str, **overrides: Any) -> Config:
    """The configuration of a preset; `overrides` are values by key, with sections as mappings.

    For example, `preset("paper", rounds=5, data={"num_clients": 50})`.
    """
    return parse_config(override(overrides, {"preset": name}))


def override(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Apply changes by dotted keys to nested values, on top of the preset that they name."""
    changed = copy.deepcopy(dict(values))
    for key, value in overrides.items():
        put_value(changed, key, value)
    name = changed.get("preset")
    if name is None:
        return changed
    base: dict[str, Any] = {}
    for key, value in preset_overrides(name).items():
        put_value(base, key, copy.deepcopy(value))
    return merged(base, changed)


def parse_config(values: Mapping[str, Any]) -> Config:
    """Check names, types and ranges; a ConfigError names what is wrong."""
    config = fit_to_data(validated(Config, values))
    return replace(config, options=_options(config))


def fit_to_data(config: Config) -> Config:
    """Where the data have clients of their own, say so, and let a network that suits the data take
    the place of the default one.
    """
    if config.data.name not in NATURAL or "data" in config.own:
        return config
    data, model, default = natural_config(config.data), config.model, ModelConfig()
    if model.name == default.name:  # for images, of which there are none
        model = replace(model, name="mlp")
    if model.name == "mlp" and model.hidden == default.hidden:
        model = replace(model, hidden=NATURAL[config.data.name].hidden)
    return replace(config, data=data, model=model)


def check_config(config: Config) -> Config:
    """Check a configuration that was created in Python just like one from a file."""
    checked = parse_config(plain_values(config))
    if checked.preset is not None:
        plain = config_to_dict(checked)
        wanted = preset_overrides(checked.preset)
        if all(value_at(plain, key) != value for key, value in wanted.items()):
            raise ConfigError(
                f"preset={checked.preset!r} was set, but without its values; create the "
                f"configuration with sofa_fl.preset({checked.preset!r})"
            )
    return checked


def check_private_config(config: Config, *, is_deployed: bool) -> None:
    """Raise if anything would leave clients without noise in a private run."""
    if config.sharing.largest_ratio:
        raise ConfigError(
            f"privacy.epsilon needs sharing.ratio=0, got {config.sharing.ratio}, because shared "
            "samples leave without noise"
        )
    if is_deployed:
        raise ConfigError(
            "privacy.epsilon is for simulations; in a deployment, each site sets it in its policy"
        )


def config_to_dict(config: Config) -> dict[str, Any]:
    """The complete configuration as plain values, for `config.yaml` and `parse_config`."""
    plain: dict[str, Any] = adapter_of(Config).dump_python(config, mode="json")
    return plain


def compared(config: Config) -> dict[str, Any]:
    """The plain configuration without the keys that do not affect results."""
    plain = {key: value for key, value in config_to_dict(config).items() if key not in NEUTRAL}
    return {**plain, "data": {**plain["data"], "dir": None}}


@cache
def code_digest() -> str:
    """A digest of the package's source: the same for the same code, wherever it is installed."""
    root = Path(sofa_fl.errors.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def provenance(config: Config, data: str) -> dict[str, Any]:
    """The origin of a run: the version, and digests of code, configuration and data."""
    text = json.dumps(compared(config), sort_keys=True, default=repr)
    return {
        "version": sofa_fl.__version__,
        "code": code_digest(),
        "config": hashlib.blake2b(text.encode(), digest_size=8).hexdigest(),
        "data": data,
        "precision": config.local.precision,
    }


def for_method(config: Config, method: str) -> Config:
    """The same experiment with another method; `options` are dropped for built-in methods."""
    options = {} if method in built_in_methods() else config.options
    return replace(config, method=method, options=options)


def _options(config: Config) -> Any:
    """The options as the method's dataclass; empty for a built-in method, which has a section."""
    if "method" in config.own:
        return config.options
    given = plain_values(config.options)
    ours = config.method in built_in_methods()
    kind = None if ours else find_method(config.method).config
    if kind is None:
        if given:
            instead = f"set keys in its own section, {config.method}" if ours else "remove them"
            raise ConfigError(f"the method {config.method} takes no options; {instead}")
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"options is a section with its own keys, got {given!r}")
    return validated(kind, given, f"{OPTIONS}.")
