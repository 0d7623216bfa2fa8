"""`sofa_fl.run`, `resume`, `run_or_resume` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from sofa_fl.api.comparison import Comparison
from sofa_fl.api.progress_line import ProgressLine, is_watched
from sofa_fl.api.result import Result
from sofa_fl.experiment.run import comparison, launch
from sofa_fl.experiment.run.comparison import Methods
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.launch import OwnData
from sofa_fl.experiment.scoring.own_metrics import Metric
from sofa_fl.experiment.tracking.observers import Observer
from sofa_fl.methods.base import Method
from sofa_fl.models.networks import NetworkFactory
from sofa_fl.report.page import write_report_at_end


def run(
    config: Config | None = None,
    *,
    data: OwnData | None = None,
    network: NetworkFactory | None = None,
    method: Method[Any] | str | None = None,
    metrics: Mapping[str, Metric] | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
) -> Result:
    """Run an experiment into a new run folder, and write its report there.

    Args:
        config: What to run; the default is the paper's experiment.
        data: Your own data in place of `config.data.name`: a pair of arrays (training, test), which
            is dealt out to clients as `config.data` says, or data that is already dealt out.
        network: A function that makes your own network, in place of `config.model`.
        method: The name of a method, or a method of your own, in place of `config.method`.
        metrics: Your own metrics by name: functions of outputs and targets (NumPy arrays) that
            return a number. They are computed every round for the model that each client uses, on
            its own test samples.
        observers: Called with every event as it happens; one that fails is reported once and then
            left out.
        progress: Show a line per round on stderr; by default on a terminal and in a notebook.
    """
    done = launch.run(
        config,
        data=data,
        network=network,
        method=method,
        metrics=metrics,
        observers=_all(observers, progress),
    )
    return Result.of(done, network, method)


def resume(
    path: Path | str,
    *,
    data: OwnData | None = None,
    network: NetworkFactory | None = None,
    method: Method[Any] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
) -> Result:
    """Continue a run from its last checkpoint, to the same end as if it had not stopped.

    If the last checkpoint is damaged or missing, the one before is used; the first event says so.
    Data, a network or a method of your own must be passed again, since they are not in the folder;
    a method that was named by its import path need not. Metrics that are not passed again are no
    longer computed, with a warning. `progress` is as in `run`.
    """
    done = launch.resume(
        path,
        data=data,
        network=network,
        method=method,
        metrics=metrics,
        observers=_all(observers, progress),
    )
    return Result.of(done, network, method)


def run_or_resume(
    config: Config,
    *,
    data: OwnData | None = None,
    network: NetworkFactory | None = None,
    method: Method[Any] | str | None = None,
    metrics: Mapping[str, Metric] | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
) -> Result:
    """Continue the run in `config.out` if there is one, else run it there.

    A run that is there must be of the same configuration. `progress` is as in `run`.
    """
    done = launch.run_or_resume(
        config,
        data=data,
        network=network,
        method=method,
        metrics=metrics,
        observers=_all(observers, progress),
    )
    return Result.of(done, network, method)


@overload
def compare(
    methods: Methods,
    config: Config | None = None,
    *,
    seeds: None = None,
    data: OwnData | None = None,
    network: NetworkFactory | None = None,
    metrics: Mapping[str, Metric] | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
) -> dict[str, Result]: ...


@overload
def compare(
    methods: Methods,
    config: Config | None = None,
    *,
    seeds: Sequence[int],
    data: OwnData | None = None,
    network: NetworkFactory | None = None,
    metrics: Mapping[str, Metric] | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
) -> Comparison: ...


def compare(
    methods: Methods,
    config: Config | None = None,
    *,
    seeds: Sequence[int] | None = None,
    data: OwnData | None = None,
    network: NetworkFactory | None = None,
    metrics: Mapping[str, Metric] | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
) -> dict[str, Result] | Comparison:
    """Run several methods with the same data, network and budget.

    Args:
        methods: Names of methods; or methods by the title they shall have, such as
            `{"sofa": None, "mine": Mine()}`, where None stands for the method of that name.
        config: What all of them run. Every run has a folder `<name>-<seed>` in `config.out`
            (default `runs/compare`); a run that was stopped there is resumed.
        seeds: Run every method once per seed, in place of `config.seed`.
        data: As in `run`.
        network: As in `run`.
        metrics: As in `run`.
        observers: As in `run`.
        progress: As in `run`.

    Returns:
        The result of every method by name; with `seeds`, a `Comparison`: a list of results by name,
        one per seed, with means, differences seed by seed, and their 95% intervals.
    """
    done = comparison.compare(
        methods,
        config,
        seeds=[config.seed if config else 0] if seeds is None else seeds,
        data=data,
        network=network,
        metrics=metrics,
        observers=_all(observers, progress),
    )
    own = methods if isinstance(methods, Mapping) else {}
    results = Comparison(
        (name, [Result.of(each, network, own.get(name)) for each in runs])
        for name, runs in done.items()
    )
    return {name: runs[0] for name, runs in results.items()} if seeds is None else results


def _all(observers: Sequence[Observer], progress: bool | None) -> list[Observer]:
    """The caller's observers; those that show progress and write the report cannot break a run."""
    shown = [ProgressLine()] if progress or (progress is None and is_watched()) else []
    return [*observers, *shown, write_report_at_end]
