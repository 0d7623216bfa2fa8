"""The keys of a configuration, read off the source: to refuse a misspelt one before torch loads.

Loading torch takes seconds; whether a key exists is told at once. All else is checked later.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

HOME = "sofa_fl.experiment.run.config"
FREE = "options"  # a section whose keys a user's method defines
Keys = dict[str, "Keys"]  # of a value, none


@cache
def config_keys(module: str = HOME, name: str = "Config") -> Keys:
    """The fields of a dataclass by name, and the fields of those that are dataclasses."""
    tree = ast.parse(_source(module))
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    fields = [n for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    homes = _sections(tree, module)
    return {
        field.target.id: config_keys(*homes[kind])
        if (kind := getattr(field.annotation, "id", "")) in homes
        else {}
        for field in fields
        if isinstance(field.target, ast.Name)
    }


def check_keys(values: Mapping[str, Any], settings: Sequence[str]) -> None:
    """Raise if a file or a setting has a key that does not exist."""
    from sofa_fl.experiment.run.values import put_value, read_setting

    for setting in settings:
        key, value = read_setting(setting)
        nested: dict[str, Any] = {}
        put_value(nested, key, value)
        _check(nested, config_keys(), "")
    _check(values, config_keys(), "")


def _check(values: Mapping[str, Any], keys: Keys, prefix: str) -> None:
    from sofa_fl.experiment.run.values import unknown_key

    for key, value in values.items():
        if key not in keys:
            raise unknown_key(str(key), prefix, list(keys))
        if keys[key] and isinstance(value, Mapping) and key != FREE:
            _check(value, keys[key], f"{prefix}{key}.")


def _sections(tree: ast.Module, module: str) -> dict[str, tuple[str, str]]:
    """The modules of the dataclasses that a module defines or imports, by their names there."""
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    own = {name: (module, name) for name in classes if name.endswith("Config")}
    return own | {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sofa_fl.")
        for alias in node.names
        if alias.name.endswith("Config")
    }


def _source(module: str) -> str:
    """The text of a module of ours, which is not imported."""
    package, *parts = module.split(".")
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent.joinpath(*parts).with_suffix(".py")).read_text("utf-8")
