"""The options that several commands share, and the configuration they add up to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sofa_fl.errors import ConfigError

if TYPE_CHECKING:
    from sofa_fl.experiment.run.config import Config

METHODS_HELP = (
    "sofa, local, fedavg, fedavg_ft, fedprox, ditto, hypcluster, cfl, fl_hc, hierfavg, oracle, "
    "feddrift or regroup."
)

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one key, for example [bold]data.num_clients=50[/]; may be repeated.",
    ),
]
Rounds = Annotated[int | None, typer.Option(metavar="N", help="Rounds after the warm-up.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Where every draw comes from.")]
DataDir = Annotated[
    str | None, typer.Option(metavar="DIR", help="Folder to look for the dataset in first.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, and of the result only where it is.")
]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Also tell wandb or mlflow; may be repeated."),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def seeds_of(text: str) -> list[int]:
    """The seeds in `0,1,2`, each once."""
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise ConfigError(f"--seeds must be whole numbers with commas, got {text!r}") from None


def read_config(
    file: Path | None,
    settings: Sequence[str] | None,
    *,
    method: str | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    out: str | None = None,
    data_dir: str | None = None,
    track: Sequence[str] | None = None,
) -> Config:
    """The defaults, changed by a file, then by settings, then by options of their own."""
    from sofa_fl.experiment.run.config import load_config

    given = {"method": method, "rounds": rounds, "seed": seed, "track": track or None}
    options = [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
    config = load_config(file, [*(settings or ()), *options])
    # Not as settings: a path is taken as it is, and not read as YAML.
    if out is not None:
        config = replace(config, out=out)
    if data_dir is not None:
        config = replace(config, data=replace(config.data, dir=data_dir))
    return config
