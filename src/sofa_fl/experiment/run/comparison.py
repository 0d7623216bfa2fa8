"""Several methods on the same problem, which may be a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.launch import OwnData, recorded_config, run_or_resume, with_own
from sofa_fl.experiment.run.loop import Result
from sofa_fl.experiment.scoring.own_metrics import Metric
from sofa_fl.experiment.tracking.observers import Observer
from sofa_fl.methods.base import Method
from sofa_fl.methods.registry import find_method
from sofa_fl.models.networks import NetworkFactory

Methods = Sequence[str] | Mapping[str, Method[Any] | str | None]


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
) -> dict[str, list[Result]]: ...


def compare(
    methods: Methods,
    config: Config | None = None,
    *,
    seeds: Sequence[int] | None = None,
    data: OwnData | None = None,
    network: NetworkFactory | None = None,
    metrics: Mapping[str, Metric] | None = None,
    observers: Sequence[Observer] = (),
) -> dict[str, Result] | dict[str, list[Result]]:
    """Run several methods with the same data, network and budget, as `sofa_fl.compare` says."""
    config, _ = with_own(config, data, network, None, metrics)
    named = _named([methods] if isinstance(methods, str) else methods)
    draws = [config.seed] if seeds is None else list(dict.fromkeys(seeds))
    plans: dict[str, list[tuple[Config, Method[Any] | None]]] = {}
    for name, (title, method) in named.items():
        for seed in draws:
            out = str(Path(config.out or Path("runs") / "compare") / f"{name}-{seed}")
            each = replace(config, seed=seed, out=out, title=title)
            each, own = with_own(each, data, network, method, metrics)
            recorded_config(each, own)  # an error is raised before the first run, not hours later
            plans.setdefault(name, []).append((each, own.method))
    results = {
        name: [
            run_or_resume(
                each,
                data=data,
                network=network,
                method=method,
                metrics=metrics,
                observers=observers,
            )
            for each, method in plan
        ]
        for name, plan in plans.items()
    }
    return {name: runs[0] for name, runs in results.items()} if seeds is None else results


def _named(methods: Methods) -> dict[str, tuple[str | None, Method[Any] | str]]:
    """By the name that a run folder has, the title (None for the method's own) and the method."""
    if not isinstance(methods, Mapping):
        return {find_method(method).name: (None, method) for method in methods}
    return {
        name: (None, name) if method is None else (name, method) for name, method in methods.items()
    }
