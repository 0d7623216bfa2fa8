"""The reference of the configuration, as Markdown: made of the dataclasses, not by hand."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Interval, Le, Lt

from sofa_fl.experiment.run.config import Config, config_to_dict

PLAIN = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "`true` or `false`",
    Any: "values by key",
}


def config_page() -> str:
    """A table per section, of every key with its type, range, default and meaning."""
    return "\n".join(_section(Config, "", config_to_dict(Config())))


def keys(kind: type = Config, prefix: str = "") -> Iterator[str]:
    """Every key that can be set, as `--set` takes it."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        inner = hints[field.name]
        if dataclasses.is_dataclass(inner):
            assert isinstance(inner, type)
            yield from keys(inner, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def attributes(kind: type) -> dict[str, str]:
    """What the `Attributes:` of a docstring say, by name."""
    _, _, listed = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for name, text in re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", listed, re.MULTILINE):
        found[name] = " ".join(text.split())
    return found


def words(hint: Any) -> str:
    """A type and its range: `whole number, at least 1`."""
    if hint in PLAIN:
        return PLAIN[hint]
    if hint is type(None):
        return "`null`"
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = [words_of for mark in args[1:] for words_of in _bounds(mark)]
        return ", ".join([words(args[0]), *bounds])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in args)
    if origin in (Union, types.UnionType):
        return "; or ".join(dict.fromkeys(map(words, args)))
    if origin is tuple:
        return f"list of: {words(args[0])}"
    if origin is dict:
        return f"{words(args[1])}, by {words(args[0])}"
    raise TypeError(f"no words for the type {hint}")


def _bounds(mark: object) -> Iterator[str]:
    if isinstance(mark, Interval):
        mark_of = {"ge": mark.ge, "gt": mark.gt, "le": mark.le, "lt": mark.lt}
    elif isinstance(mark, Ge | Gt | Le | Lt):
        mark_of = {type(mark).__name__.lower(): next(iter(dataclasses.astuple(mark)))}
    else:
        return
    names = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    yield from (f"{names[key]} {bound}" for key, bound in mark_of.items() if bound is not None)


def _section(kind: type, prefix: str, defaults: dict[str, Any]) -> Iterator[str]:
    hints, texts = get_type_hints(kind, include_extras=True), attributes(kind)
    name = prefix.removesuffix(".")
    about = inspect.cleandoc(kind.__doc__ or "").splitlines()[0]
    yield from ((f"## `{name}`", "", about, "") if name else ("## At the top", ""))
    inner: list[tuple[str, type]] = []
    rows: list[str] = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            inner.append((field.name, hint))
            continue
        value, default = words(hint), _plain(defaults[field.name])
        about = f"{texts[field.name]}<br><small>{value}; default `{default}`</small>"
        rows.append(f"| `{prefix}{field.name}` | {about} |")
    if rows:
        yield from ("| key | meaning |", "| --- | --- |", *rows, "")
    for field_name, section in inner:
        yield from _section(section, f"{prefix}{field_name}.", defaults[field_name])


def _plain(value: object) -> str:
    """A default as YAML has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
