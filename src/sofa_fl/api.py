"""What `sofa_fl.run`, `resume` and `compare` are: those of the experiment, with a report."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from sofa_fl.experiment.run import comparison, launch
from sofa_fl.report.page import write_report_at_end

Call = TypeVar("Call", bound=Callable[..., Any])


def with_report(call: Call) -> Call:
    """The same function, with the report as its last observer: it cannot break a run."""

    @wraps(call)
    def reporting(*args: Any, **kwargs: Any) -> Any:
        observers = [*kwargs.pop("observers", ()), write_report_at_end]
        return call(*args, observers=observers, **kwargs)

    return cast("Call", reporting)


run = with_report(launch.run)
resume = with_report(launch.resume)
run_or_resume = with_report(launch.run_or_resume)
compare = with_report(comparison.compare)
