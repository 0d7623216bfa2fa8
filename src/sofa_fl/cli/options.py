"""The options that several commands share, and the configuration that results from them."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.presets import PRESETS
from sofa_fl.methods.registry import built_in_methods

if TYPE_CHECKING:
    from sofa_fl.experiment.run.config import Config

HOME = "sofa_fl.experiment.run.config"
CORRECTION = "local.prior"
FREE = "options"  # a section whose keys a user's method defines
Keys = dict[str, "Keys"]  # of a value, none
METHODS_HELP = f"{', '.join(built_in_methods())}; or your own method, as package.module:Class."

Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Start from a preset, which the file and --set can change: "
        f"{', '.join(f'[bold]{name}[/]' for name in PRESETS)}.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one key, for example [bold]data.num_clients=50[/]; may be repeated.",
    ),
]
Rounds = Annotated[int | None, typer.Option(metavar="N", help="Rounds after the warm-up.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="The seed of every random draw.")]
DataDir = Annotated[
    str | None, typer.Option(metavar="DIR", help="Look for the dataset in this folder first.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress, and print only the run folder.")
]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Also log to wandb or mlflow; may be repeated."),
]
AsPublished = Annotated[
    bool,
    typer.Option(
        "--as-published",
        help="Train baselines without SOFA-FL's class-mix correction, which is on by default for "
        "every method; a [bold]+[/] marks baselines that have it.",
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def seeds_of(text: str) -> list[int]:
    """The seeds in `0,1,2`, without repetitions."""
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise ConfigError(
            f"--seeds must be whole numbers separated by commas, got {text!r}"
        ) from None


def read_config(
    file: Path | dict[str, Any] | None,
    settings: Sequence[str] | None,
    *,
    preset: str | None = None,
    method: str | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    out: str | None = None,
    data_dir: str | None = None,
    track: Sequence[str] | None = None,
) -> Config:
    """The defaults, changed by the preset, the file, `--set`, and then the other options."""
    from sofa_fl.experiment.run.values import read_values

    values = read_values(file) if isinstance(file, Path) else file or {}
    check_keys(values, settings or ())  # first, because loading torch takes seconds
    from sofa_fl.experiment.run.config import load_config

    given = {
        "preset": preset,
        "method": method,
        "rounds": rounds,
        "seed": seed,
        "track": track or None,
    }
    options = [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
    config = load_config(values, [*(settings or ()), *options])
    # Not as settings: a path is taken literally, not read as YAML.
    if out is not None:
        config = replace(config, out=out)
    if data_dir is not None:
        config = replace(config, data=replace(config.data, dir=data_dir))
    return config


def check_published(settings: Sequence[str], *, published: bool) -> None:
    """Refuse `--as-published` together with the key that it sets."""
    from sofa_fl.experiment.run.values import split_setting

    if published and any(split_setting(setting)[0] == CORRECTION for setting in settings):
        raise ConfigError(f"give either --as-published or --set {CORRECTION}=..., not both")


@cache
def config_keys(module: str = HOME, name: str = "Config") -> Keys:
    """The fields of a dataclass by name, and the fields of those that are dataclasses.

    They are read off the source, to refuse a misspelt key before torch loads.
    """
    tree = ast.parse(_source(module))
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    fields = [n for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    homes = _sections(tree, module)
    return {
        field.target.id: config_keys(*homes[kind])
        if (kind := getattr(field.annotation, "id", "")) in homes
        else {}
        for field in fields
        if isinstance(field.target, ast.Name)
    }


def check_keys(values: Mapping[str, Any], settings: Sequence[str]) -> None:
    """Raise if a file or a setting has a key that does not exist."""
    from sofa_fl.experiment.run.values import put_value, read_setting

    for setting in settings:
        key, value = read_setting(setting)
        nested: dict[str, Any] = {}
        put_value(nested, key, value)
        _check(nested, config_keys(), "")
    _check(values, config_keys(), "")


def _check(values: Mapping[str, Any], keys: Keys, prefix: str) -> None:
    from sofa_fl.experiment.run.values import unknown_key

    for key, value in values.items():
        if key not in keys:
            raise unknown_key(str(key), prefix, list(keys))
        if keys[key] and isinstance(value, Mapping) and key != FREE:
            _check(value, keys[key], f"{prefix}{key}.")


def _sections(tree: ast.Module, module: str) -> dict[str, tuple[str, str]]:
    """The modules of the dataclasses that a module defines or imports, by their names there."""
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    own = {name: (module, name) for name in classes if name.endswith("Config")}
    return own | {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sofa_fl.")
        for alias in node.names
        if alias.name.endswith("Config")
    }


def _source(module: str) -> str:
    """The text of a module of ours, which is not imported."""
    package, *parts = module.split(".")
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent.joinpath(*parts).with_suffix(".py")).read_text("utf-8")
