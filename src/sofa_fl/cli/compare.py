"""`sofa-fl compare`: several methods on the same configuration, in one table.

Every run has a folder of its own in OUT, named by method and seed. Those that have ended are
not run again, so a comparison that was stopped goes on when the command is repeated. At the end
`comparison.html` has them beside each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sofa_fl.cli.failures import StoppedError
from sofa_fl.cli.options import (
    METHODS_HELP,
    AsJson,
    DataDir,
    Quiet,
    Rounds,
    Seed,
    Settings,
    read_config,
    seeds_of,
)
from sofa_fl.cli.report import COMPARISON
from sofa_fl.cli.run import watch
from sofa_fl.errors import RunError
from sofa_fl.report.words import title_of

if TYPE_CHECKING:
    from sofa_fl.cli.progress import Follower
    from sofa_fl.experiment.run.config import Config
    from sofa_fl.experiment.run.loop import Result

MAY_DIFFER = ("method", "seed", "out", "engine", "track")
Plain = dict[str, Any]


def compare(
    methods: Annotated[
        list[str],
        typer.Argument(metavar="METHOD", help=METHODS_HELP),
    ],
    config: Annotated[
        Path | None, typer.Option(metavar="CONFIG.yaml", help="What all of them run.")
    ] = None,
    settings: Settings = None,
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Run with each of these seeds, and show means."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of the run folders; by default under runs/."),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run several methods on the same configuration, and show them in one table."""
    base = read_config(config, settings, rounds=rounds, seed=seed, out=out, data_dir=data_dir)
    runs = [
        read_config(config, settings, method=method, rounds=rounds, seed=draw, data_dir=data_dir)
        for method in dict.fromkeys(methods)
        for draw in (seeds_of(seeds) if seeds is not None else [base.seed])
    ]
    folder = Path(base.out) if base.out else _default_folder(base)
    runs = [replace(run, out=str(folder / f"{run.method}-{run.seed}")) for run in runs]
    check_folder(folder, runs)
    summaries = []
    for i, run in enumerate(runs, start=1):
        name = f"{title_of(run.method)}, seed {run.seed} ({i} of {len(runs)})"
        summaries.append(_summary(run, folder, name, quiet=quiet))
    page = write_page([Path(run.out or "") for run in runs], folder / COMPARISON)
    from sofa_fl.cli.screen import put

    if as_json:
        put(json.dumps(summaries))
    elif quiet:
        put(str(folder))
    else:
        from sofa_fl.cli.show_comparison import show_comparison

        show_comparison(summaries, folder, page)


def write_page(runs: list[Path], file: Path) -> Path | None:
    """The runs beside each other, to open in a browser; without it there still is the table."""
    from sofa_fl.report.page import write_report

    try:
        return write_report(runs, file)
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        typer.echo(f"warning: {file.name} was not written: {why}", err=True)
        return None


def _default_folder(base: Config) -> Path:
    """The same folder for the same configuration: repeating a command continues it."""
    text = json.dumps(_common(base), sort_keys=True)
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Path("runs") / f"compare-{Path(base.data.name).name}-{mark}"


def _common(config: Config) -> Plain:
    """What the runs of a comparison have in common."""
    from sofa_fl.experiment.run.config import config_to_dict

    return {k: v for k, v in config_to_dict(config).items() if k not in MAY_DIFFER}


def check_folder(folder: Path, runs: list[Config]) -> None:
    """Refuse a folder with runs that cannot be compared with these."""
    from sofa_fl.experiment.run.config import load_config

    if (folder / "config.yaml").exists():
        raise RunError(f"{folder} is itself a run; choose another folder with --out")
    try:
        found = sorted(folder.glob("*/config.yaml")) if folder.exists() else []
    except OSError as error:
        raise RunError(f"cannot read {folder}: {error.strerror}") from None
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is not a folder; choose another with --out")
    wanted = {Path(run.out or "").name: run for run in runs}
    for file in found:
        there = load_config(file)
        run = wanted.get(file.parent.name, runs[0])
        for key, ours, theirs in _differences(_common(run), _common(there)):
            raise RunError(
                f"{file.parent} was run with {key}={theirs!r}, not {ours!r}; "
                "choose another folder with --out"
            )
        if file.parent.name in wanted and (there.method, there.seed) != (run.method, run.seed):
            raise RunError(f"{file.parent} is a run of {there.method} with seed {there.seed}")


def _differences(ours: Plain, theirs: Plain) -> Iterator[tuple[str, Any, Any]]:
    """Key, our value and theirs, of all that is not the same."""
    for key, value in ours.items():
        other = theirs.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            inner = _differences(dict(value), dict(other))
            yield from ((f"{key}.{name}", a, b) for name, a, b in inner)
        elif value != other:
            yield key, value, other


def _summary(run: Config, folder: Path, name: str, *, quiet: bool) -> Plain:
    """The summary of a run: of the one that is there, or else run now."""
    from sofa_fl.cli.screen import shell
    from sofa_fl.experiment.run import loop
    from sofa_fl.experiment.storage.run_folder import RunFolder

    path = Path(run.out or "")

    def start(follower: Follower) -> Result:
        if (path / "config.yaml").exists():
            return loop.resume(path, observers=[follower])
        return loop.run(run, observers=[follower])

    try:
        if (summary := RunFolder(path).summary()) is not None:
            return {**summary, "run": str(path)}  # it may have been moved
    except ValueError:
        raise RunError(f"{path / 'summary.json'} is damaged; delete it and repeat") from None
    try:
        return watch(start, quiet=quiet, name=name).summary
    except StoppedError:
        again = f"repeat the command with --out {shell(folder)} to continue"
        raise StoppedError(again) from None
