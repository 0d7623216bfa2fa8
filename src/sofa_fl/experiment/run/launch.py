"""Start new runs and resume stopped ones."""

from __future__ import annotations

import dataclasses
import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sofa_fl.data.config import DataConfig
from sofa_fl.data.csv_clients import CSV, csv_clients
from sofa_fl.data.download import PUBLISHED
from sofa_fl.data.federated_data import Arrays, FederatedData
from sofa_fl.errors import ConfigError, RunError
from sofa_fl.experiment.run.config import (
    Config,
    check_config,
    compared,
    config_to_dict,
    load_config,
)
from sofa_fl.experiment.run.loop import Experiment, Own, RunResult
from sofa_fl.experiment.run.titles import run_title
from sofa_fl.experiment.run.values import differences, plain_values
from sofa_fl.experiment.storage.frozen_file import with_frozen_of
from sofa_fl.experiment.storage.run_folder import RunFolder, fresh_folder
from sofa_fl.experiment.tracking.observers import Observer, all_observers
from sofa_fl.methods.method import Method
from sofa_fl.methods.registry import OPTIONS, find_method, info_of
from sofa_fl.models.config import ModelConfig
from sofa_fl.sharing import SharingConfig

OWN = "own"  # recorded in place of the name of what was passed from Python
PAPER_RATIO = 0.1  # of samples shared in the paper's experiment


def run(config: Config, own: Own | None = None, observers: Sequence[Observer] = ()) -> RunResult:
    """Run an experiment in a new run folder."""
    own = own or Own()
    return _start(recorded_config(config, own), own, observers)


def resume(path: Path, own: Own | None = None, observers: Sequence[Observer] = ()) -> RunResult:
    """Continue a run from its last checkpoint; the result is the same as if it had not stopped.

    If the last checkpoint is damaged or missing, the one before is used; the first event says so.
    """
    return _continue(path, own or Own(), observers)


def run_or_resume(
    config: Config, own: Own | None = None, observers: Sequence[Observer] = ()
) -> RunResult:
    """Continue the run in `config.out` if there is one, otherwise start it there.

    A run that is there must be of the same configuration.
    """
    own = own or Own()
    config, path = recorded_config(config, own), Path(config.out or "")
    if config.out is None or not (path / "config.yaml").exists():
        return _start(config, own, observers)
    check_same(path, config)
    return _continue(path, own, observers)


def run_once(config: Config, observers: Sequence[Observer] = ()) -> dict[str, Any]:
    """The summary of the run in `config.out`, which is run or resumed now unless it has ended."""
    path = Path(config.out or "")
    try:
        summary = RunFolder(path).summary() if config.out is not None else None
    except ValueError:
        raise RunError(
            f"{path / 'summary.json'} is damaged; delete it and repeat the command"
        ) from None
    if summary is None:
        summary = run_or_resume(config, observers=observers).summary
    return {**summary, "run": str(path) if config.out is not None else summary["run"]}


def _start(config: Config, own: Own, observers: Sequence[Observer]) -> RunResult:
    """Run in a new folder."""
    with Experiment(config, own) as experiment, old_objects_spared():
        name = f"{experiment.info.name}-{Path(config.data.label).name}-{config.seed}"
        path = Path(config.out).expanduser() if config.out else fresh_folder(name)
        with RunFolder(path).locked():
            recorded = config_to_dict(replace(experiment.config, out=str(path)))
            folder = RunFolder.create(path, recorded)
            return experiment.run(folder, all_observers(config.track, observers))


def _continue(path: Path, own: Own, observers: Sequence[Observer]) -> RunResult:
    """Continue the run in a folder."""
    folder = RunFolder.open(path)
    with folder.locked():
        config = replace(load_config(folder.config_file), out=str(path))
        check_passed_again(path, config.own, own)
        if own.network is not None:
            own = replace(own, network=with_frozen_of(path, own.network))
        with Experiment(config, own) as experiment, old_objects_spared():
            return experiment.run(folder, all_observers(config.track, observers))


@contextmanager
def old_objects_spared() -> Iterator[None]:
    """With a GPU, spare Python's full collections the objects that are there already.

    Torch alone has 300,000. To look through them takes 0.1 to 0.2 s, as long as two rounds.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        yield
        return
    gc.collect()  # else what a run before this one left on the GPU would stay there
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def recorded_config(config: Config, own: Own) -> Config:
    """The configuration for `config.yaml`: checked, and adjusted to what Python code passed."""
    if own.method is not None:
        config = _with_method(config, own.method)
    config = check_config(replace(config, own=own.parts))
    if config.data.name == OWN and own.data is None:
        raise ConfigError(
            "data.name=own means that Python code passes the data; pass data=..., or name a dataset"
        )
    train: Any = None  # whatever a caller passed
    if own.data is not None:
        name = OWN if config.data.name == DataConfig().name else config.data.name
        config = replace(config, data=replace(config.data, name=name))
        train = own.data.train if isinstance(own.data, FederatedData) else own.data[0]
        if isinstance(train, Arrays) and train.x.ndim != 4 and own.engine is None:
            config = _without_images(config)
    elif config.data.name == CSV:
        found = csv_clients(replace(config.data, score_on="test"), 0)
        train = found.train
        data = replace(config.data, num_clients=len(found.clients), partition="natural")
        if data != config.data:
            config = _without_images(replace(config, data=data))
    if isinstance(own.data, FederatedData):
        size = len(own.data.clients)
        config = replace(config, data=replace(config.data, num_clients=size, partition="own"))
    if own.network is not None:
        config = replace(config, model=replace(config.model, name="own"))
    info = find_method(config.method) if own.method is None else info_of(type(own.method))
    has_classes = not (isinstance(train, Arrays) and train.y.dtype.kind == "f")
    title = run_title(config, info, has_classes=has_classes)
    return replace(config, title=title, sharing=_settled_sharing(config))


def _settled_sharing(config: Config) -> SharingConfig:
    """The sharing with its ratio: where none was set, only the paper's own datasets are shared."""
    if config.sharing.ratio is not None:
        return config.sharing
    is_paper = config.data.name in PUBLISHED and not {"data", "engine"} & set(config.own)
    return replace(config.sharing, ratio=PAPER_RATIO if is_paper else 0.0)


def _without_images(config: Config) -> Config:
    """Replace the default network, a CNN for images, with an MLP for other inputs."""
    model = ModelConfig(name="mlp") if config.model == ModelConfig() else config.model
    return replace(config, model=model)


def check_passed_again(path: Path | str, before: Sequence[str], own: Own) -> None:
    """Raise if objects that Python code passed to the run are not passed again."""
    for part in before:
        if part in ("data", "network", "method") and part not in own.parts:
            raise RunError(
                f"{path} was run with your own {part}, which is not stored in the folder; continue "
                f"it from Python with sofa_fl.resume(..., {part}=...)"
            )


def check_same(path: Path, config: Config) -> None:
    """Raise if the run in a folder has another configuration."""
    recorded = load_config(path / "config.yaml")
    for key, ours, theirs in differences(compared(config), compared(recorded)):
        raise RunError(
            f"{path} was run with {key}={theirs!r}, not {ours!r}; choose another folder with 'out'"
        )


def _with_method(config: Config, method: Method[Any]) -> Config:
    """The configuration with the name and the settings of the method that was passed."""
    info = info_of(type(method))
    config = replace(config, method=info.name, options={})
    section, sharing = getattr(method, "config", None), getattr(method, "sharing", None)
    if isinstance(sharing, SharingConfig):
        config = replace(config, sharing=sharing)
    if not dataclasses.is_dataclass(section) or isinstance(section, type):
        return config
    if info.section != OPTIONS:
        own_section: dict[str, Any] = {info.section: section}
        return replace(config, **own_section)
    # Only a record: it may hold anything, and the object itself is passed again on resuming.
    plain = json.loads(json.dumps(plain_values(section), default=repr))
    return replace(config, options=plain)
