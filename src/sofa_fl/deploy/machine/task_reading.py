"""The plain values of a training, read from a message and checked."""

from __future__ import annotations

from typing import Any, get_args

from sofa_fl.deploy.machine import limits
from sofa_fl.deploy.transport.message_checks import MessageError, checked_value
from sofa_fl.engine.base import Part
from sofa_fl.engine.task_codec import Header


def read_task_values(header: Header) -> dict[str, Any]:
    """How many batches, by which seed, at which pace, and of which part of the network."""
    values = {
        name: checked_value(header, name, kind)
        for name, kind in (("batches", int), ("seed", int), ("pace", float))
    }
    values["part"] = header.get("part", "all")
    if values["part"] not in get_args(Part):
        raise MessageError(f"part must be one of {get_args(Part)}, got {values['part']!r}")
    limits.check_number("pace", values["pace"], 0.0, 1.0)
    return values


def read_pulls(header: Header) -> dict[str, Any] | None:
    """The sum of all pulls, if there are some."""
    if (pulls := header.get("pulls")) is None:
        return None
    weights = {name: checked_value(pulls, name, float) for name in ("weight", "decay")}
    for name, weight in weights.items():
        limits.check_number(f"the {name} of a pull", weight, -limits.LARGEST, limits.LARGEST)
    return {**weights, "target": pulls.get("target")}
