"""`sofa_fl.run`, `resume`, `run_or_resume` and `compare`, and the progress that they show."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from sofa_fl.api.result import Comparison, Result
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run import launch, titles
from sofa_fl.experiment.run.config import Config, for_method
from sofa_fl.experiment.run.loop import Own, OwnData
from sofa_fl.experiment.scoring.own_metrics import Metric
from sofa_fl.experiment.storage.events import Event
from sofa_fl.experiment.tracking.observers import Observer, at_end
from sofa_fl.methods.method import Method
from sofa_fl.methods.registry import check_method, find_method, info_of
from sofa_fl.models.networks import NetworkFactory
from sofa_fl.report.page import write_run_report
from sofa_fl.report.words import duration, news_of

Methods = Sequence[str] | Mapping[str, Method[Any] | str | None]


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
    """Run an experiment in a new run folder, and write its report there.

    Args:
        config: The configuration; the default is the paper's experiment.
        data: Your own data instead of `config.data.name`: a pair of arrays (training, test), whose
            samples are assigned to clients as `config.data` specifies, or data that is already
            assigned.
        network: A function that creates your own network, instead of `config.model`.
        method: The name of a method, or an instance of your own, instead of `config.method`.
        metrics: Your own metrics by name: functions of outputs and targets (NumPy arrays) that
            return a number. They are computed every round for the model that each client uses, on
            its own test samples.
        observers: Functions that are called with every event as it happens; if one fails, this is
            reported once, and it is not called again.
        progress: Show a line per round on stderr; by default in a terminal and in a notebook.
    """
    config, own = with_own(config, Own(data, network, metrics=metrics), method)
    return Result.of(launch.run(config, own, _all(observers, progress)), own)


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
    """Continue a run from its last checkpoint; the result is the same as if it had not stopped.

    If the last checkpoint is damaged or missing, the one before is used, and the first event says
    so. Your own data, network or method must be passed again, since they are not in the folder;
    this does not apply to a method that was named by its import path. Metrics that are not passed
    again are no longer computed; a warning says so. `progress` is as in `run`.
    """
    own = Own(data, network, checked_method(method), metrics)
    return Result.of(launch.resume(Path(path), own, _all(observers, progress)), own)


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
    """Continue the run in `config.out` if there is one, otherwise start it there.

    An existing run must have the same configuration. `progress` is as in `run`.
    """
    config, own = with_own(config, Own(data, network, metrics=metrics), method)
    return Result.of(launch.run_or_resume(config, own, _all(observers, progress)), own)


@overload
def compare(
    methods: Methods,
    config: Config | None = None,
    *,
    seeds: None = None,
    data: OwnData | None = None,
    network: NetworkFactory | None = None,
    metrics: Mapping[str, Metric] | None = None,
    as_published: bool = False,
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
    as_published: bool = False,
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
    as_published: bool = False,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
) -> dict[str, Result] | Comparison:
    """Run several methods with the same data, network and budget.

    Args:
        methods: Names of methods; or a mapping from titles to methods, such as `{"sofa": None,
            "mine": Mine()}`, where None means the method of that name.
        config: The configuration that all methods share. Every run has a folder `<name>-<seed>` in
            `config.out` (default `runs/compare`); a run that was stopped there is resumed.
        seeds: Run every method once per seed, instead of with `config.seed`.
        data: As in `run`.
        network: As in `run`.
        metrics: As in `run`.
        as_published: Train baselines without SOFA-FL's class-mix correction, which is on by default
            for every method; the titles of baselines that have it end with a `+`. SOFA-FL and your
            own methods are run as configured.
        observers: As in `run`.
        progress: As in `run`.

    Returns:
        The result of every method by name; with `seeds`, a `Comparison`: a list of results by name,
        one per seed, with means, differences seed by seed, and their 95% intervals.
    """
    config, common = with_own(config, Own(data, network, metrics=metrics), None)
    folder = Path(config.out or Path("runs") / "compare")
    plans: dict[str, list[tuple[Config, Own]]] = {}
    for name, (title, method) in _named(methods).items():
        for seed in dict.fromkeys([config.seed] if seeds is None else seeds):
            each = replace(config, seed=seed, out=str(folder / f"{name}-{seed}"), title=title)
            each, own = with_own(each, common, method)
            if as_published:
                named = each.method if own.method is None else info_of(type(own.method)).name
                each = titles.as_published(each, named)
            launch.recorded_config(each, own)  # an error is raised now, not after hours of runs
            plans.setdefault(name, []).append((each, own))
    told = _all(observers, progress)
    results = Comparison(
        (name, [Result.of(launch.run_or_resume(each, own, told), own) for each, own in plan])
        for name, plan in plans.items()
    )
    return {name: runs[0] for name, runs in results.items()} if seeds is None else results


def _named(methods: Methods) -> dict[str, tuple[str | None, Method[Any] | str]]:
    """The title (None for the method's own) and the method, by the name of the run folder."""
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, Mapping):
        return {find_method(method).name: (None, method) for method in methods}
    return {
        name: (None, name) if method is None else (name, method) for name, method in methods.items()
    }


def with_own(config: Config | None, own: Own, method: object) -> tuple[Config, Own]:
    """The configuration and the objects passed with it; a method's name goes into the former."""
    config = Config() if config is None else config
    if not isinstance(config, Config):
        raise ConfigError(
            f"config must be a sofa_fl.Config, got {type(config).__name__}; create one with "
            "sofa_fl.Config(...) or sofa_fl.load_config(...)"
        )
    if isinstance(method, str):
        return for_method(config, method), own
    return config, replace(own, method=checked_method(method))


def checked_method(method: object) -> Any:
    """A method that was passed as an instance, or None."""
    if isinstance(method, type):
        raise ConfigError(
            f"method must be a name or an instance, got the class {method.__name__}; pass "
            f"{method.__name__}(...)"
        )
    if method is not None:
        check_method(type(method), "method")
    return method


def _all(observers: Sequence[Observer], progress: bool | None) -> list[Observer]:
    """The caller's observers; those that show progress and write the report cannot break a run."""
    shown = [ProgressLine()] if progress or (progress is None and is_watched()) else []
    return [*observers, *shown, at_end(write_run_report)]


def is_watched() -> bool:
    """Whether somebody is watching, in a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class ProgressLine:
    """An observer that shows the progress of a run, its scores, and the time left."""

    def __init__(self) -> None:
        self._width = 0
        self._title = ""
        self._mark: tuple[int, float] | None = None  # a round, and when it had ended

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if event["event"] == "start":
            self._mark = None if event["round"] is None else (event["round"], now)
            self._title = str(event["run"])
            self._say("warm-up" if event["round"] is None else f"continuing after {event['round']}")
        elif event["event"] == "round":
            self._mark = self._mark or (event["round"], now)
            self._round(event, now)
        elif event["event"] == "scoring":
            done = f"step {event['done'] + 1} of {event['of']}"
            self._say(f"scoring every level, {done}")
        elif event["event"] == "end":
            self._end(event["summary"])

    def _round(self, event: Event, now: float) -> None:
        round, rounds = event["round"], event["rounds"]
        parts = [f"round {round}/{rounds}" if round else "warm-up done", *news_of(event)]
        assert self._mark is not None
        first, since = self._mark
        if first < round < rounds:
            left = (now - since) / (round - first) * (rounds - round)
            parts.append(f"{duration(left)} left")
        self._say(", ".join(parts))

    def _end(self, summary: Event) -> None:
        self._say(f"done in {duration(summary['seconds'])}")
        print(file=sys.stderr, flush=True)
        for note in summary.get("notes", ()):
            print(f"note: {note}", file=sys.stderr, flush=True)
        self._width = 0

    def _say(self, words: str) -> None:
        """Overwrite the previous line."""
        line = f"{self._title}: {words}"
        print(f"\r{line:<{self._width}}", end="", file=sys.stderr, flush=True)
        self._width = len(line)
