"""The values of a configuration as plain data: read, changed by dotted keys, checked by type."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

import numpy as np
import pydantic
import yaml

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.storage.run_folder import load_yaml

Section = TypeVar("Section")
# Settings of earlier versions: what became of them, and what to do.
RETIRED: Mapping[str, str] = MappingProxyType(
    {
        "local.final_rate": "the learning rate is constant now; remove the key",
        "sofa.alert": "clients with new data look for another place at once; remove the key",
        "sofa.sketch": "positions are exact for any number of clients; remove the key",
    }
)
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def read_values(file: Path) -> dict[str, Any]:
    """The values in a YAML file, not yet checked."""
    try:
        values = load_yaml(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {file}: {error}") from None
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise ConfigError(f"{file} is not valid YAML: {where}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must contain keys and values, got a {type(values).__name__}")
    return values


def read_setting(setting: str) -> tuple[str, Any]:
    """The key and the value of `key=value`; the value is YAML."""
    key, text = split_setting(setting)
    try:
        return key, _numbers(yaml.safe_load(text))
    except yaml.YAMLError:
        raise ConfigError(f"cannot read the value of {key}: {text!r}") from None


def split_setting(
    setting: str, name: str = "a setting", form: str = "key=value"
) -> tuple[str, str]:
    """The key and the text of `key=value`; `name` and `form` are for the error."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{name} must be {form}, got {setting!r}")
    return key.strip(), text


def _numbers(value: Any) -> Any:
    """YAML reads 1e-3 as text."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def put_value(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key, creating missing sections on the way."""
    path = key.split(".")
    for name in path[:-1]:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{name} is a value, not a section, so {key} cannot be set")
        values = inner
    values[path[-1]] = value


def value_at(values: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key."""
    value: Any = values
    for name in key.split("."):
        value = value[name]
    return value


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values, in which `changes` replace values with the same key."""
    result = dict(base)
    for key, value in changes.items():
        inner = result.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            value = merged(inner, value)
        result[key] = value
    return result


def differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Dotted key, our value and theirs, wherever two plain configurations differ."""
    for key, value in ours.items():
        other = theirs.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            yield from ((f"{key}.{name}", a, b) for name, a, b in differences(value, other))
        elif value != other:
            yield key, value, other


def plain_values(value: Any) -> Any:
    """A configuration as the values that YAML would have, right or wrong."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_values(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value


@cache
def adapter_of(kind: Any) -> pydantic.TypeAdapter[Any]:
    """The pydantic adapter of a dataclass; slow to create, so it is cached."""
    return pydantic.TypeAdapter(kind)


def validated(kind: type[Section], values: Mapping[str, Any], prefix: str = "") -> Section:
    """Create a dataclass from values; a ConfigError names a wrong key, type or range."""
    refuse_unknown_keys(values, kind, prefix)
    dataclass_type: Any = kind
    try:
        section: Section = adapter_of(dataclass_type).validate_python(values)
        return section
    except pydantic.ValidationError as error:
        raise ConfigError(_sentence(error.errors()[0], kind, prefix)) from None


def unknown_key(key: str, prefix: str, known: Sequence[str]) -> ConfigError:
    """The error for a key that no section has; `prefix` names the section."""
    if why := RETIRED.get(f"{prefix}{key}"):
        return ConfigError(f"{prefix}{key} is no longer a setting: {why}")
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {prefix}{near[0]}?" if near else f"known: {', '.join(known)}"
    return ConfigError(f"unknown key {prefix}{key}; {hint}")


def without_retired(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values without settings of earlier versions: to read a run that has ended."""
    return {
        key: without_retired(value, f"{prefix}{key}.") if isinstance(value, Mapping) else value
        for key, value in values.items()
        if f"{prefix}{key}" not in RETIRED
    }


def refuse_unknown_keys(values: Mapping[str, Any], kind: type, prefix: str = "") -> None:
    """Raise if values have a key that the dataclass, or one of its sections, does not have."""
    hints = get_type_hints(kind)
    for key, value in values.items():
        if key not in hints:
            raise unknown_key(str(key), prefix, list(hints))
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{prefix}{key} is a section with its own keys, got {value!r}")
            assert isinstance(hints[key], type)
            refuse_unknown_keys(value, hints[key], f"{prefix}{key}.")


def _sentence(error: Mapping[str, Any], root: type, prefix: str) -> str:
    """`data.alpha: input should be greater than 0, got -1`."""
    key: list[str] = []
    kind: Any = root
    for part in error["loc"]:  # the rest of the location is about pydantic's unions
        hints = get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        if part not in hints:
            break
        key.append(str(part))
        kind = hints[part]
    name = f"{prefix}{'.'.join(key)}".removesuffix(".")
    if error["type"] == "value_error":  # raised by a section's own check: says it all
        return f"{name}: {error['ctx']['error']}"
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"{name}: {message}, got {error['input']!r}"
