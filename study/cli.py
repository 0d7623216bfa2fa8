"""`python -m study`: the paper's tables and figures, all methods on all data, drift, faults.

Every run has its own folder in runs/reproduce, named after its configuration. A run that has ended
is not repeated, so an interrupted command continues when it is entered again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from sofa_fl.cli.options import AsJson, DataDir, Quiet, Settings, seeds_of
from sofa_fl.cli.screen import StoppedError, errors_as_sentences, escape_unprintable
from sofa_fl.errors import ConfigError, DataError
from study.design.known_names import known_to
from study.design.settings import SEEDS, SWEEP_SEEDS
from study.design.tree_settings import TREE_SEEDS

if TYPE_CHECKING:
    from study.design.run_plan import Scope
    from study.targets import Study, TargetResult

# The order of `all`.
RUN = (
    "table1", "table2", "benchmark", "ablation", "disclosure", "drift", "faults", "natural",
    "natural_ablation", "tree", "privacy",
)  # fmt: skip
# `adapters` takes an encoder and queries that do not ship, so that it is asked for by name.
TARGETS = (*RUN, "adapters", "sweep", "natural_sweep", "figures", "docs", "all")
# All others have SEEDS.
SEEDS_OF = {"sweep": SWEEP_SEEDS, "natural_sweep": SWEEP_SEEDS, "tree": TREE_SEEDS}
QUICK_OUT = Path("runs") / "quick"
QUICK_WARNING = (
    "Quick runs are tiny: they only check that everything works. Their numbers say nothing about "
    "the methods, and cannot be compared with the paper's."
)


def reproduce(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=f"{', '.join(TARGETS)}.")],
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Seeds; by default 0 to 4, for a sweep 100 and 101, for the tree 300 to 309.",
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings",
            metavar="S1,S2,...",
            help="Settings; all by default. Drift has more: swap, emerge, ...",
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="NAME,NAME+,...", help="Contenders; all by default.")
    ] = None,
    sets: Settings = None,
    jobs: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Number of parallel runs; more than 1 pays off on a GPU."
        ),
    ] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Make tiny runs, to check that everything works.")
    ] = False,
    missing: Annotated[
        bool, typer.Option("--missing", help="Run only what is missing from the results.")
    ] = False,
    replaces: Annotated[
        bool, typer.Option("--replace", help="Recompute rows that the results already have.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the results; results/ by default."),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce the paper's tables and figures, and compare all methods."""
    if target not in TARGETS:
        raise ConfigError(f"unknown target {target!r}; known: {', '.join(TARGETS)}")
    scope = read_scope(target, seeds, settings, methods, sets, data_dir, quick=quick)
    may_replace = replaces or (quick and out is None)  # in QUICK_OUT there is nothing to lose
    out = out or (QUICK_OUT if quick else Path("results"))
    study = study_of(scope, out, jobs, quiet=quiet)
    outcome = carry_out(target, replace(study, only_missing=missing, may_replace=may_replace))
    from sofa_fl.cli.screen import console, put, shell

    if as_json:
        put(json.dumps(outcome.rows or [str(file) for file in outcome.files]))
        return
    if quiet:
        put("\n".join(map(str, outcome.files)))
        return
    screen = console()
    if quick:
        screen.print(QUICK_WARNING, style="yellow", soft_wrap=True)
    if outcome.text:
        screen.print(outcome.text, soft_wrap=True)
    for file in outcome.files:
        screen.print(shell(file), soft_wrap=True)


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
    """What is asked for; an unknown name is an error that lists the known ones."""
    known = known_to(target)
    if settings is None and quick:
        settings = ",".join(known.quick)
    chosen_settings = _names(settings, known.settings, f"setting of {target}")
    labels = _names(methods, known.methods, f"method of {target}")
    default = SEEDS_OF.get(target, SEEDS)
    numbers = seeds_of(seeds) if seeds is not None else default[:1] if quick else default
    from study.design.run_plan import Scope, configure, read_extra

    extra = read_extra(sets or ())
    scope = Scope(
        seeds=tuple(numbers),
        settings=chosen_settings,
        methods=labels,
        extra=extra,
        quick=quick,
        data_dir=data_dir,
    )
    configure({**extra, "seed": min(numbers)}, data_dir)  # a wrong key is reported first
    _check_data(target, scope)
    return scope


def study_of(scope: Scope, out: Path, num_processes: int, *, quiet: bool) -> Study:
    """The study that is asked for, with progress on stderr."""
    from sofa_fl.cli.progress import follow_jobs
    from sofa_fl.cli.screen import console
    from sofa_fl.jobs.runner import Job, OnSummary, Summary, run_jobs
    from study.targets import Study

    def run(jobs: Sequence[Job], what: str, on_summary: OnSummary) -> list[Summary]:
        with follow_jobs(what, jobs, quiet=quiet) as follower:
            return run_jobs(jobs, follower.of_many, num_processes, on_summary)

    def say(words: str) -> None:
        if not quiet:
            console(stderr=True).print(words, soft_wrap=True)

    study = Study(scope=scope, out=out, run=run, say=say)
    # A quick check must not touch the pages with the real results.
    return replace(study, pages=out, readme=None) if scope.quick else study


def carry_out(target: str, study: Study) -> TargetResult:
    """Make a target, or all of them; after Ctrl-C, say how to continue."""
    from study import (
        disclosure_targets,
        drift_targets,
        figure_targets,
        natural_targets,
        privacy_targets,
        targets,
        tree_targets,
    )
    from study.adapter_targets import adapters
    from study.design.choices import read_choices
    from study.tuning import sweep

    make: dict[str, Callable[[Study], TargetResult]] = {
        "table1": targets.table1,
        "table2": targets.table2,
        "benchmark": targets.benchmark,
        "ablation": targets.ablation,
        "disclosure": disclosure_targets.disclosure,
        "drift": drift_targets.drift,
        "faults": drift_targets.faults,
        "natural": natural_targets.natural,
        "natural_ablation": natural_targets.natural_ablation,
        "natural_sweep": natural_targets.natural_sweep,
        "tree": tree_targets.tree,
        "privacy": privacy_targets.privacy,
        "adapters": adapters,
        "sweep": sweep,
        "figures": figure_targets.figures,
        "docs": targets.docs,
    }

    def own_part(name: str) -> Study:
        scope = known_to(name).part_of(study.scope)
        if target == "all" and name in SEEDS_OF:
            scope = replace(scope, seeds=SEEDS_OF[name][: 1 if scope.quick else None])
        return replace(study, scope=scope)

    names = [target]
    if target == "all":
        figure_targets.need_matplotlib()  # now, not after hours
        names = [*RUN, "figures", "docs"]
        if not read_choices(study.out):
            carry_out("sweep", own_part("sweep"))
    try:
        made = [make[name](own_part(name)) for name in names]
    except KeyboardInterrupt:
        raise StoppedError(
            "repeat the command to continue: runs that have ended are kept"
        ) from None
    if target != "all":
        return made[0]
    return targets.TargetResult(tuple(file for outcome in made for file in outcome.files))


def _names(text: str | None, known: Iterable[str], what: str) -> tuple[str, ...]:
    """The names in `text`, separated by commas; all known ones if there is no text."""
    known = tuple(known)
    if text is None:
        return known
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown {what} {name!r}; known: {', '.join(known)}")
    return names


def _check_data(target: str, scope: Scope) -> None:
    """Report a missing dataset before the first run, not after hours."""
    from sofa_fl.data.datasets import given_folders, load_dataset
    from sofa_fl.data.natural.federations import NATURAL
    from study.targets import datasets

    if target not in ("benchmark", "ablation", "sweep", "all") and "natural" not in target:
        return
    folder = Path(scope.data_dir) if scope.data_dir else None
    for name, settings in datasets(known_to(target).part_of(scope).settings).items():
        try:
            if name in NATURAL:
                NATURAL[name].read(tuple(given_folders(folder)))
            else:
                load_dataset(name, folder)
        except DataError as error:
            left = ",".join(s for s in scope.settings if s not in settings)
            without = f"; or go without it: --settings {left}" if left else ""
            raise DataError(f"{', '.join(settings)} needs {name}: {error}{without}") from None


class Command(TyperCommand):
    """A command that reports errors as sentences, as those of `sofa-fl` do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with errors_as_sentences():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with errors_as_sentences():
            return super().invoke(ctx)


app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=Command)(reproduce)


def main() -> None:
    """The entry point."""
    escape_unprintable()
    app()
