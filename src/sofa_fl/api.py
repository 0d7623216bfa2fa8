"""What `sofa_fl.run` and `sofa_fl.resume` are: the loop's, with a report at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from sofa_fl.experiment.run import loop
from sofa_fl.report.page import write_report_at_end

P = ParamSpec("P")


def reporting(call: Callable[P, loop.Result]) -> Callable[P, loop.Result]:
    """The same function, with the report as its last observer: it cannot break the run."""

    @wraps(call)
    def with_report(*args: P.args, **kwargs: P.kwargs) -> loop.Result:
        given: dict[str, Any] = dict(kwargs)
        given["observers"] = [*given.get("observers", ()), write_report_at_end]
        return call(*args, **given)

    return with_report


run = reporting(loop.run)
resume = reporting(loop.resume)
