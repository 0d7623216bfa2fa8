"""`sofa-fl run` and `sofa-fl resume`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sofa_fl.cli.options import (
    METHODS_HELP,
    AsJson,
    AsPublished,
    DataDir,
    Preset,
    Quiet,
    Rounds,
    RunPath,
    Seed,
    Settings,
    Track,
    check_published,
    read_config,
)
from sofa_fl.cli.screen import StoppedError, put_plain, shell
from sofa_fl.errors import ConfigError

if TYPE_CHECKING:
    from sofa_fl.cli.progress import Follower
    from sofa_fl.experiment.run.loop import RunResult
    from sofa_fl.experiment.tracking.observers import Observer
    from sofa_fl.jobs.runner import Job

T = TypeVar("T")


def run(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.yaml", help="A configuration file."),
    ] = None,
    preset: Preset = None,
    settings: Settings = None,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=METHODS_HELP),
    ] = None,
    rounds: Rounds = None,
    seed: Seed = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The run folder; by default a new one under runs/."),
    ] = None,
    data_dir: DataDir = None,
    track: Track = None,
    published: AsPublished = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment; by default the paper's experiment on MNIST."""

    def start(follower: Follower) -> RunResult:
        check_published(settings or (), published=published)
        chosen = read_config(
            config,
            settings,
            preset=preset,
            method=method,
            rounds=rounds,
            seed=seed,
            out=out,
            data_dir=data_dir,
            track=track,
        )
        from sofa_fl.experiment.run.titles import as_published, is_baseline

        if published and not is_baseline(chosen.method):
            raise ConfigError(
                f"--as-published is for baselines, and {chosen.method} is none; for SOFA-FL as the "
                "paper writes it, use --preset paper"
            )
        if published:
            chosen = as_published(chosen, chosen.method)
        from sofa_fl.experiment.run import launch

        return launch.run(chosen, observers=with_report(follower))

    finish(with_progress(start, quiet=quiet), as_json=as_json, quiet=quiet)


def resume(run: RunPath, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Continue a run that was stopped; the result is the same as if it had not been."""

    def start(follower: Follower) -> RunResult:
        from sofa_fl.experiment.storage.run_folder import RunFolder

        RunFolder.open(run)  # before loading torch, which takes seconds
        from sofa_fl.experiment.run import launch

        return launch.resume(run, observers=with_report(follower))

    finish(with_progress(start, quiet=quiet), as_json=as_json, quiet=quiet)


def with_progress(start: Callable[[Follower], T], *, quiet: bool) -> T:
    """Run something to its end and show its progress; after Ctrl-C, say how to continue."""
    from sofa_fl.cli.progress import follow

    with follow(quiet=quiet) as follower:
        try:
            return start(follower)
        except KeyboardInterrupt:
            if follower.run is None:
                raise
            command = f"sofa-fl resume {shell(follower.run)}"
            quoted = command if "'" in command else f"'{command}'"
            raise StoppedError(f"continue with {quoted}") from None


def with_report(follower: Follower) -> list[Observer]:
    """The observers of a run: its progress, and its report at the end."""
    from sofa_fl.experiment.tracking.observers import at_end
    from sofa_fl.report.page import write_run_report

    return [follower, at_end(write_run_report)]


def run_all(
    jobs: Sequence[Job], what: str, num_processes: int, *, quiet: bool, again: str = ""
) -> list[dict[str, Any]]:
    """The summaries of several runs, with their progress; `again` are options to continue with."""
    from sofa_fl.cli.progress import follow_jobs
    from sofa_fl.jobs.runner import run_jobs

    with follow_jobs(what, jobs, quiet=quiet) as follower:
        try:
            return run_jobs(jobs, follower.of_many, num_processes)
        except KeyboardInterrupt:
            raise StoppedError(f"repeat the command{again} to continue") from None


def finish(result: RunResult, *, as_json: bool, quiet: bool) -> None:
    """Print the result of a run on stdout."""
    if not put_plain(result.summary, result.run, as_json=as_json, quiet=quiet):
        from sofa_fl.cli.show import show_run
        from sofa_fl.report.history import read_round

        show_run(result.summary, read_round(result.run))
