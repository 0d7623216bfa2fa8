"""A user's own metrics: for the model that each client uses, on its own test samples, every round.

They are computed in the main process, so they are the same with every engine, and may be any
function of all outputs and targets. A metric that fails is reported once, as a warning of the
logger `sofa_fl`; it has no value for that client, and the run goes on.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.scoring.outputs import ClientOutputs
from sofa_fl.experiment.storage.events import Event
from sofa_fl.federation import Federation
from sofa_fl.methods.method import View
from sofa_fl.models.networks import NetworkFactory
from sofa_fl.topology.tree import NodeId

Metric = Callable[[NDArray[Any], NDArray[Any]], float]  # of outputs and targets
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
logger = logging.getLogger("sofa_fl")


def check_metrics(metrics: Mapping[Any, Any]) -> None:
    """Raise unless these are functions by name."""
    if not isinstance(metrics, Mapping):
        raise ConfigError(
            f"metrics must map names to functions, like {{'mae': f}}, got {type(metrics).__name__}"
        )
    for name, metric in metrics.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ConfigError(
                "the name of a metric must be a letter followed by letters, digits, '_' or '-', "
                f"at most 40 characters in all, got {name!r}"
            )
        if not callable(metric):
            raise ConfigError(
                f"the metric {name} must be a function of outputs and targets, got {metric!r}"
            )


class OwnMetrics:
    """Computes metrics for every client."""

    def __init__(self, metrics: Mapping[str, Metric] | None, factory: NetworkFactory) -> None:
        check_metrics(metrics or {})
        self.metrics = dict(metrics or {})
        self._outputs = ClientOutputs(factory)
        self._failed: set[str] = set()

    def measure(self, view: View, fed: Federation) -> dict[str, Any]:
        """The metrics of a round, as its event holds them."""
        by_metric: dict[str, list[float | None]] = {name: [] for name in self.metrics}
        for client, model in view.used_by(fed.clients).items():
            rows = fed.stage.clients[client].test
            given = self._outputs(model, rows, fed.priors[client], fed) if len(rows) else None
            for name in self.metrics:
                value = None if given is None else self._value(name, client, *given)
                by_metric[name].append(value)
        return {"metrics": {name: spread(values) for name, values in by_metric.items()}}

    def _value(
        self, name: str, client: NodeId, outputs: NDArray[Any], targets: NDArray[Any]
    ) -> float | None:
        try:
            # Copies, so that no metric can change what the next one sees.
            value = float(self.metrics[name](outputs.copy(), targets.copy()))
        except Exception as error:
            if name not in self._failed:
                self._failed.add(name)
                why = " ".join((str(error) or type(error).__name__).split())
                logger.warning(
                    "the metric %s failed for client %d: %s; its value is missing where it fails",
                    name,
                    client,
                    why,
                )
                logger.debug("how it failed", exc_info=True)
            return None
        return value if math.isfinite(value) else None


def warn_of_missing(event: Event, given: Collection[str]) -> None:
    """Warn if a run that goes on after `event` had metrics that are not given again."""
    if missing := [name for name in event.get("metrics", {}) if name not in given]:
        logger.warning(
            "the run continues without the metrics that it started with and that were not passed "
            "again: %s",
            ", ".join(missing),
        )


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """The values with their mean and range; clients without one do not count."""
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "min": None, "max": None, "values": list(values)}
    mean = float(np.mean(known))
    return {"mean": mean, "min": min(known), "max": max(known), "values": list(values)}
