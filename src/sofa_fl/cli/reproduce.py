"""`sofa-fl reproduce`: the paper's tables and figures, and the benchmark of all methods.

Every run has a folder of its own in runs/reproduce, named after its configuration. Those that
have ended are not run again, so what was stopped goes on when the command is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sofa_fl.cli.failures import StoppedError
from sofa_fl.cli.options import AsJson, DataDir, Quiet, Settings, seeds_of
from sofa_fl.errors import ConfigError, DataError

if TYPE_CHECKING:
    from sofa_fl.study.plan import Scope
    from sofa_fl.study.targets import Outcome, Study

TARGETS = ("table1", "table2", "sweep", "benchmark", "ablation")
QUICK_OUT = Path("runs") / "quick"


def reproduce(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=f"{', '.join(TARGETS)}.")],
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="By default 0 to 4; of a sweep 100, 101.")
    ] = None,
    settings: Annotated[
        str | None, typer.Option("--settings", metavar="S1,S2,...", help="By default all five.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="NAME,NAME+,...", help="By default all.")
    ] = None,
    sets: Settings = None,
    jobs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Runs side by side; more than 1 for a GPU.")
    ] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny runs, to see that everything works.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the results; by default results/."),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce the paper's tables and figures, and compare all methods."""
    if target not in TARGETS:
        raise ConfigError(f"unknown target {target!r}; known: {', '.join(TARGETS)}")
    scope = read_scope(target, seeds, settings, methods, sets, data_dir, quick=quick)
    out = out or (QUICK_OUT if quick else Path("results"))
    outcome = carry_out(target, scope, out, jobs, quiet=quiet)
    from sofa_fl.cli.screen import console, put, shell

    if as_json:
        put(json.dumps(outcome.rows))
    elif quiet:
        put(str(outcome.file))
    else:
        screen = console()
        screen.print(outcome.text, soft_wrap=True)
        screen.print(f"Rows  {shell(outcome.file)}", soft_wrap=True)


def read_scope(
    target: str,
    seeds: str | None,
    settings: str | None,
    methods: str | None,
    sets: Sequence[str] | None,
    data_dir: str | None,
    *,
    quick: bool,
) -> Scope:
    """What is asked for; a name that there is not is an error that names those there are."""
    from sofa_fl.study.contenders import CONTENDERS
    from sofa_fl.study.settings import SEEDS, SETTINGS, SWEEP_SEEDS

    chosen_settings = _names(settings, SETTINGS, "setting")
    labels = _names(methods, CONTENDERS, "method")
    default = SWEEP_SEEDS if target == "sweep" else SEEDS
    numbers = seeds_of(seeds) if seeds is not None else default[:1] if quick else default
    from sofa_fl.study.plan import Scope, configure, read_extra

    extra = read_extra(sets or ())
    scope = Scope(
        seeds=tuple(numbers),
        settings=chosen_settings,
        methods=labels,
        extra=extra,
        quick=quick,
        data_dir=data_dir,
    )
    configure({**extra, "seed": min(numbers)}, data_dir)  # a wrong key is told before all else
    _check_data(target, scope)
    return scope


def carry_out(target: str, scope: Scope, out: Path, num_processes: int, *, quiet: bool) -> Outcome:
    """Make a target; Ctrl-C says how to go on."""
    from sofa_fl.cli.study_progress import follow_jobs
    from sofa_fl.study import targets
    from sofa_fl.study.runner import Job, OnSummary, Summary, run_jobs
    from sofa_fl.study.sweep import sweep

    def run(jobs: Sequence[Job], what: str, on_summary: OnSummary) -> list[Summary]:
        with follow_jobs(what, jobs, quiet=quiet) as follower:
            return run_jobs(jobs, follower, num_processes, on_summary)

    def say(words: str) -> None:
        if not quiet:
            from sofa_fl.cli.screen import console

            console(stderr=True).print(words, soft_wrap=True)

    study = targets.Study(scope=scope, out=out, run=run, say=say)
    make: dict[str, Callable[[Study], Outcome]] = {
        "table1": targets.table1,
        "table2": targets.table2,
        "sweep": sweep,
        "benchmark": targets.benchmark,
        "ablation": targets.ablation,
    }
    try:
        return make[target](study)
    except KeyboardInterrupt:
        raise StoppedError("repeat the command to go on: what has ended is kept") from None


def _names(text: str | None, known: Iterable[str], what: str) -> tuple[str, ...]:
    """The names with commas in `text`; without any, all that are known."""
    known = tuple(known)
    if text is None:
        return known
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown {what} {name!r}; known: {', '.join(known)}")
    return names


def _check_data(target: str, scope: Scope) -> None:
    """A dataset that is not there is told before the first run, not hours later."""
    from sofa_fl.data.datasets import load_dataset
    from sofa_fl.study.targets import datasets

    if target in ("table1", "table2"):
        return
    for name, settings in datasets(scope.settings).items():
        try:
            load_dataset(name, Path(scope.data_dir) if scope.data_dir else None)
        except DataError as error:
            left = ",".join(s for s in scope.settings if s not in settings)
            without = f"; or go without it: --settings {left}" if left else ""
            raise DataError(f"{', '.join(settings)} needs {name}: {error}{without}") from None
