"""Several methods on the same problem, which may be a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from sofa_fl.data.base import Arrays, FederatedData
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run import loop
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.observers import Observer
from sofa_fl.experiment.scoring.own_metrics import Metric
from sofa_fl.methods.base import Method
from sofa_fl.methods.registry import MethodName
from sofa_fl.models.networks import NetworkFactory


def compare(
    methods: Sequence[str] | Mapping[str, Method[Any] | None],
    config: Config | None = None,
    *,
    data: FederatedData | tuple[Arrays, Arrays] | None = None,
    network: NetworkFactory | None = None,
    metrics: Mapping[str, Metric] | None = None,
    observers: Sequence[Observer] = (),
) -> dict[str, loop.Result]:
    """Run several methods with the same data, network and budget; their results by name.

    `methods` are names, or a mapping in which own methods have names too (`{"sofa": None, "mine":
    Mine()}`). Every run has a folder `<method>-<seed>` in `config.out` (default `runs/compare`);
    what was stopped there goes on. The rest is as in `run`.
    """
    config = config or Config()
    own = dict.fromkeys(methods) if not isinstance(methods, Mapping) else dict(methods)
    known: tuple[MethodName, ...] = get_args(MethodName)
    if strange := [name for name, method in own.items() if method is None and name not in known]:
        raise ConfigError(f"unknown method {strange[0]}; known: {', '.join(known)}")
    results = {}
    for name, method in own.items():
        out = Path(config.out or Path("runs") / "compare") / f"{name}-{config.seed}"
        chosen = replace(config, out=str(out))
        for each in known:
            chosen = replace(chosen, method=each) if each == name else chosen
        if (out / "config.yaml").exists():
            start = partial(loop.resume, out)
        else:
            start = partial(loop.run, chosen)
        results[name] = start(
            data=data, network=network, method=method, metrics=metrics, observers=observers
        )
    return results
