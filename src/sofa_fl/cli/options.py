"""The options that several commands share, and the configuration that results from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.presets import PRESETS
from sofa_fl.methods.registry import built_in_methods

if TYPE_CHECKING:
    from sofa_fl.experiment.run.config import Config

CORRECTION = "local.prior"
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
SideBySide = Annotated[
    int, typer.Option("--jobs", metavar="N", min=1, help="Number of runs in parallel.")
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
    from sofa_fl.experiment.run.config import load_config

    given = {
        "preset": preset,
        "method": method,
        "rounds": rounds,
        "seed": seed,
        "track": track or None,
    }
    options = [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
    config = load_config(file, [*(settings or ()), *options])
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
