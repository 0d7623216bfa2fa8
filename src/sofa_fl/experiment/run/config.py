"""The whole configuration: the dataclasses of all layers under one roof, validated by pydantic.

The defaults are the paper's experiment.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import pydantic
import yaml
from annotated_types import Ge, Interval

from sofa_fl.data.config import DataConfig
from sofa_fl.engine.base import LocalConfig
from sofa_fl.engine.faulty import FaultsConfig
from sofa_fl.engine.select import EngineName
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.tracking.trackers import TrackerName
from sofa_fl.guard import GuardConfig
from sofa_fl.methods.baselines.cfl import CflConfig
from sofa_fl.methods.baselines.ditto import DittoConfig
from sofa_fl.methods.baselines.feddrift import FedDriftConfig
from sofa_fl.methods.baselines.fedprox import FedProxConfig
from sofa_fl.methods.baselines.fl_hc import FlHcConfig
from sofa_fl.methods.baselines.hierfavg import HierFavgConfig
from sofa_fl.methods.baselines.hypcluster import HypClusterConfig
from sofa_fl.methods.baselines.oracle import OracleConfig
from sofa_fl.methods.registry import MethodName
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.models.networks import ModelConfig
from sofa_fl.sharing import SharingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One experiment.

    Attributes:
        method: Who trains.
        seed: Where every draw comes from.
        rounds: Rounds after the warm-up.
        warmup: Batches per client before the first round; every method gets them.
        participation: Fraction of the clients that are asked in a round, drawn anew each time; in
            the warm-up all are.
        out: The run folder; by default a new one under `runs/`.
        engine: How local training is executed: `workers` on all cores, `stacked` on a GPU,
            `ray` on a cluster (`RAY_ADDRESS`), `sequential`, or `auto`, what suits this machine.
        keep: How many checkpoints are kept, the newest.
        save_every: Rounds from one checkpoint to the next; the last round is always saved. A stop
            costs up to as many rounds more.
        track: Who is told of every round besides TensorBoard: `wandb`, `mlflow`.
    """

    method: MethodName = "sofa"
    seed: Annotated[int, Ge(0)] = 0
    rounds: Annotated[int, Ge(1)] = 20
    warmup: Annotated[int, Ge(1)] = 25
    participation: Annotated[float, Interval(gt=0, le=1)] = 1.0
    out: str | None = None
    engine: EngineName = "auto"
    keep: Annotated[int, Ge(1)] = 2
    save_every: Annotated[int, Ge(1)] = 1
    track: tuple[TrackerName, ...] = ()
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    faults: FaultsConfig = field(default_factory=FaultsConfig)
    sharing: SharingConfig = field(default_factory=SharingConfig)
    sofa: SofaConfig = field(default_factory=SofaConfig)
    hypcluster: HypClusterConfig = field(default_factory=HypClusterConfig)
    fedprox: FedProxConfig = field(default_factory=FedProxConfig)
    ditto: DittoConfig = field(default_factory=DittoConfig)
    cfl: CflConfig = field(default_factory=CflConfig)
    fl_hc: FlHcConfig = field(default_factory=FlHcConfig)
    hierfavg: HierFavgConfig = field(default_factory=HierFavgConfig)
    oracle: OracleConfig = field(default_factory=OracleConfig)
    feddrift: FedDriftConfig = field(default_factory=FedDriftConfig)


def load_config(file: Path | dict[str, Any] | None = None, settings: Sequence[str] = ()) -> Config:
    """The defaults, changed by a YAML file or its values, then by `key=value` settings."""
    values = read_values(file) if isinstance(file, Path) else file or {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"a setting must be key=value, got {setting!r}")
        _put(values, key.strip().split("."), _scalar(key, text))
    return parse_config(values)


def parse_config(values: Mapping[str, Any]) -> Config:
    """Check names, types and ranges; a wrong one is an error that names it."""
    _check_keys(values, Config, "")
    try:
        return pydantic.TypeAdapter(Config).validate_python(values)
    except pydantic.ValidationError as error:
        raise ConfigError(_sentence(error.errors()[0])) from None


def config_to_dict(config: Config) -> dict[str, Any]:
    """Complete and plain: what `config.yaml` holds and `parse_config` takes."""
    plain: dict[str, Any] = pydantic.TypeAdapter(Config).dump_python(config, mode="json")
    return plain


def read_values(file: Path) -> dict[str, Any]:
    """What a YAML file says, not checked yet."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {file}: {error}") from None
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise ConfigError(f"{file} is not valid YAML: {where}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold keys and values, got a {type(values).__name__}")
    return values


def _scalar(key: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"cannot read the value of {key}: {text!r}") from None


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{name} is a value, so {'.'.join(path)} cannot be set")
        values = inner
    values[path[-1]] = value


def _check_keys(values: Mapping[str, Any], kind: type, prefix: str) -> None:
    hints = get_type_hints(kind)
    for key, value in values.items():
        if key not in hints:
            near = difflib.get_close_matches(str(key), list(hints), n=1, cutoff=0.5)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known: {', '.join(hints)}"
            raise ConfigError(f"unknown key {prefix}{key}; {hint}")
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{prefix}{key} is a section with keys of its own, got {value!r}")
            assert isinstance(hints[key], type)
            _check_keys(value, hints[key], f"{prefix}{key}.")


def _sentence(error: Mapping[str, Any]) -> str:
    """`data.alpha: input should be greater than 0, got -1`."""
    key: list[str] = []
    kind: Any = Config
    for part in error["loc"]:  # the rest of the location is about pydantic's unions
        hints = get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        if part not in hints:
            break
        key.append(str(part))
        kind = hints[part]
    if error["type"] == "value_error":  # raised by a section's own check: says it all
        return f"{'.'.join(key)}: {error['ctx']['error']}"
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"{'.'.join(key)}: {message}, got {error['input']!r}"
