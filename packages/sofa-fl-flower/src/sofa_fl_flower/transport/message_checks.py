"""Checks of what another computer wrote; without torch, since SuperNodes do not load it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from sofa_fl.data.federated_data import Arrays
from sofa_fl.errors import DataError, SofaError

LARGEST_INT = 1 << 64  # of whole numbers; Python's have no limit
LONGEST_REASON = 400  # characters of a reason that are shown
MAX_NUMBER = 1e6  # in an input or a target of shared samples
MAX_TEXT = 64  # characters of a hash, or of a name


class MessageError(SofaError, ValueError):
    """A message does not hold what it must."""


class RefusalError(MessageError):
    """A machine declines what it was asked: its site's policy does not allow it."""


def shown(reason: object) -> str:
    """A reason that another computer gave, fit for a log: printable, and not too long."""
    text = "".join(c if c.isprintable() else " " for c in str(reason)[:LONGEST_REASON])
    return " ".join(text.split())


def safe_reason(error: BaseException) -> str:
    """What the server may know of a site's error: one in its samples may quote some of them."""
    if isinstance(error, SofaError) and not isinstance(error, DataError):
        return shown(error)
    return "this site could not answer; the reason is in its own log"


def checked_value(values: Any, name: str, kind: type[Any]) -> Any:
    """Return `values[name]`, checked for its type; a whole number is also a float."""
    found = values.get(name) if isinstance(values, Mapping) else None
    if isinstance(found, int) and not isinstance(found, bool) and kind is float:
        if abs(found) >= LARGEST_INT:
            raise MessageError(f"{name} must be below {LARGEST_INT:g}")
        return float(found)
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise MessageError(f"{name} must be of type {kind.__name__}, got {shown(repr(found))}")
    return found


def flaw_of_name(name: object) -> str | None:
    """Why this cannot be what a client is called, if it cannot; an empty name is none.

    What stands for a client by its number would let one pass for another.
    """
    if not isinstance(name, str):
        return f"a client's name must be text, got {shown(repr(name))}"
    if len(name) > MAX_TEXT or not name.isprintable() or name != name.strip():
        return (
            f"a client's name must be at most {MAX_TEXT} printable characters, without spaces at "
            f"either end, got {shown(repr(name))}"
        )
    if re.fullmatch(r"(client\W*)?\d+", name, re.IGNORECASE):
        return f"a client's name must not be a number, got {shown(repr(name))}"
    return None


def check_samples(samples: Arrays, num_outputs: int) -> None:
    """Raise if samples of others cannot be trained on; the server and the receiver both check."""
    if samples.y.dtype.kind != "f":
        if len(samples) and not 0 <= samples.y.min() <= samples.y.max() < num_outputs:
            raise MessageError(
                f"labels of shared samples must be from 0 to {num_outputs - 1}, got "
                f"{samples.y.min()} to {samples.y.max()}"
            )
    elif not (np.abs(samples.y) <= MAX_NUMBER).all():
        raise MessageError(
            f"targets of shared samples must be from -{MAX_NUMBER:g} to {MAX_NUMBER:g}"
        )
    if samples.x.dtype.kind == "f" and not (np.abs(samples.x) <= MAX_NUMBER).all():
        raise MessageError(
            f"inputs of shared samples must be from -{MAX_NUMBER:g} to {MAX_NUMBER:g}"
        )
