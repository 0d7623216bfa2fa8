"""`sofa-fl compare`: several methods on the same configuration, in one table.

Every run has its own folder in OUT, named by method and seed. Runs that have ended are not
repeated, so a comparison that was stopped continues when the command is repeated. At the end
`comparison.html` shows them side by side.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sofa_fl.cli.options import (
    CORRECTION,
    METHODS_HELP,
    AsJson,
    AsPublished,
    DataDir,
    Preset,
    Quiet,
    Rounds,
    Seed,
    Settings,
    SideBySide,
    check_published,
    read_config,
    seeds_of,
)
from sofa_fl.cli.report import COMPARISON
from sofa_fl.cli.run import run_all
from sofa_fl.cli.screen import put_plain, shell
from sofa_fl.errors import ConfigError, RunError
from sofa_fl.methods.registry import OPTIONS, built_in_methods, find_method

if TYPE_CHECKING:
    from sofa_fl.experiment.run.config import Config

MAY_DIFFER = ("method", OPTIONS, "seed")
AS_PUBLISHED = (
    "The baselines are as published: without SOFA-FL's class-mix correction (local.prior)."
)


def compare(
    methods: Annotated[
        list[str],
        typer.Argument(metavar="METHOD", help=METHODS_HELP),
    ],
    config: Annotated[
        Path | None,
        typer.Option(metavar="CONFIG.yaml", help="Configuration that all methods share."),
    ] = None,
    preset: Preset = None,
    settings: Settings = None,
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Run each method with these seeds, and show means."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder for the run folders; by default under runs/."),
    ] = None,
    data_dir: DataDir = None,
    jobs: SideBySide = 1,
    published: AsPublished = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run several methods on the same configuration, and compare them in one table."""
    check_options(settings or (), seed, seeds)
    check_published(settings or (), published=published)
    given = [
        read_config(
            values_for(method, config),
            settings_for(method, settings or ()),
            preset=preset,
            method=method,
            rounds=rounds,
            seed=draw,
            out=out,
            data_dir=data_dir,
        )
        for method in dict.fromkeys(methods)
        for draw in (seeds_of(seeds) if seeds is not None else [seed])
    ]  # all of them, before loading torch, which takes seconds
    configs = [_planned(each, published=published) for each in given]
    first = configs[0]
    folder = Path(first.out) if first.out else _default_folder(first, published=published)
    runs = {folder / f"{find_method(each.method).name}-{each.seed}": each for each in configs}
    if len(runs) < len(configs):
        raise ConfigError("two of the methods have the same name; use sofa_fl.compare from Python")
    check_folder(folder, runs)
    from sofa_fl.jobs.runner import Job

    work = []
    for i, (path, each) in enumerate(runs.items(), start=1):
        name = f"{each.title}, seed {each.seed} ({i} of {len(runs)})"
        work.append(Job(path, name, replace(each, out=str(path)), keep=each.keep))
    what = "compare" if jobs > 1 else ""
    summaries = run_all(work, what, jobs, quiet=quiet, again=f" with --out {shell(folder)}")
    page = write_comparison(list(runs), folder / COMPARISON)
    if not put_plain(summaries, folder, as_json=as_json, quiet=quiet):
        from sofa_fl.cli.show_comparison import show_comparison

        show_comparison(summaries, folder, page, note=AS_PUBLISHED if published else "")


def _planned(config: Config, *, published: bool) -> Config:
    """The configuration as the run records it; every method has its own title."""
    from sofa_fl.experiment.run.launch import recorded_config
    from sofa_fl.experiment.run.loop import Own
    from sofa_fl.experiment.run.titles import as_published

    config = replace(config, title=None)
    return recorded_config(as_published(config, config.method) if published else config, Own())


def check_options(settings: Sequence[str], seed: int | None, seeds: str | None) -> None:
    """Refuse what a comparison would otherwise ignore."""
    from sofa_fl.experiment.run.values import split_setting

    keys = [split_setting(setting)[0] for setting in settings]
    if "method" in keys:
        raise ConfigError(
            "compare runs the methods that are its arguments; remove --set method=..."
        )
    if seeds is not None and (seed is not None or "seed" in keys):
        raise ConfigError("give either --seeds or one seed, not both")


def values_for(method: str, file: Path | None) -> dict[str, Any]:
    """What the file says; `options` are only for methods that are not ours."""
    from sofa_fl.experiment.run.values import read_values

    values = {} if file is None else read_values(file)
    if method in built_in_methods():
        values.pop(OPTIONS, None)
    return values


def settings_for(method: str, settings: Sequence[str]) -> list[str]:
    """The settings that concern a method, likewise."""
    if method not in built_in_methods():
        return list(settings)
    return [setting for setting in settings if setting.split(".")[0].strip() != OPTIONS]


def write_comparison(runs: list[Path], file: Path) -> Path | None:
    """Write the page that shows the runs side by side; without it there is still the table."""
    from sofa_fl.report.page import write_report

    try:
        return write_report(runs, file)
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        typer.echo(f"warning: {file.name} was not written: {why}", err=True)
        return None


def _default_folder(config: Config, *, published: bool) -> Path:
    """The same folder for the same configuration, so that repeating a command continues it."""
    text = json.dumps(_common(config), sort_keys=True) + "as published" * published
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Path("runs") / f"compare-{Path(config.data.label).name}-{mark}"


def _common(config: Config) -> dict[str, Any]:
    """What the runs of a comparison must have in common."""
    from sofa_fl.experiment.run.config import compared

    return {key: value for key, value in compared(config).items() if key not in MAY_DIFFER}


def check_folder(folder: Path, runs: Mapping[Path, Config]) -> None:
    """Refuse a folder with runs that cannot be compared with these."""
    from sofa_fl.experiment.run.config import load_config
    from sofa_fl.experiment.run.values import differences
    from sofa_fl.experiment.storage.disk import explained

    if (folder / "config.yaml").exists():
        raise RunError(f"{folder} is itself a run folder; choose another folder with --out")
    with explained(f"cannot read {folder}"):
        found = sorted(folder.glob("*/config.yaml")) if folder.exists() else []
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is not a folder; choose another with --out")
    for file in found:
        there = load_config(file)
        run = runs.get(file.parent, next(iter(runs.values())))
        for key, ours, theirs in differences(_common(run), _common(there)):
            if key == CORRECTION and file.parent not in runs:
                continue  # of runs in one folder, some may have it and others not
            raise RunError(
                f"{file.parent} was run with {key}={theirs!r}, not {ours!r}; "
                "choose another folder with --out"
            )
        if file.parent in runs and (there.method, there.seed) != (run.method, run.seed):
            raise RunError(
                f"{file.parent} is a run of {there.method} with seed {there.seed}; "
                "choose another folder with --out"
            )
