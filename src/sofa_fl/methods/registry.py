"""The methods by name; each registers itself in its own file, and a user's own is found as well.

A method is named in one of four ways:

- one of ours: `sofa`, or a file in `methods/baselines`;
- `package.module:Class`: any class with `init`, `round` and `view`;
- an entry point in the group `sofa_fl.methods` of an installed package;
- a name that `register` was called with in this process.

Nothing is imported before a method is used, so that names can be listed without loading torch.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args, get_type_hints

from sofa_fl.errors import ConfigError
from sofa_fl.methods import baselines

if TYPE_CHECKING:
    from sofa_fl.methods.method import Method
    from sofa_fl.sharing import SharingConfig

GROUP = "sofa_fl.methods"
SOFA = "sofa_fl.methods.sofa"
OPTIONS = "options"
_PARTS = ("init", "round", "view")

MethodClass = TypeVar("MethodClass", bound=type)


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """What the rest of the package knows about a method.

    Attributes:
        name: Used in the names of run folders.
        title: Used in tables and reports.
        factory: Makes the method; it may take `config`, the method's section of the
            configuration, and `sharing`.
        config: The dataclass of that section, or None if the method has nothing to set.
        section: The section's key; our methods have one each, all others use `options`.
    """

    name: str
    title: str
    factory: Callable[..., Method[Any]]
    config: type[Any] | None = None
    section: str = OPTIONS


_BY_CLASS: dict[type, MethodInfo] = {}
_BY_NAME: dict[str, MethodInfo] = {}


def register(
    name: str, title: str, config: type[Any] | None = None, *, section: str = OPTIONS
) -> Callable[[MethodClass], MethodClass]:
    """Register a class as the method `name`, called `title` in tables and reports.

    `config` is a frozen dataclass of the method's settings; the class takes an instance of it as
    `config`. Registering a name again replaces the earlier class, except for built-in methods.
    """

    def keep(kind: MethodClass) -> MethodClass:
        if name in built_in_methods() and kind.__module__ != _module_of(name):
            raise ConfigError(
                f"{name} is a built-in method; register {kind.__name__} under another name"
            )
        _BY_CLASS[kind] = _BY_NAME[name] = MethodInfo(name, title, kind, config, section)
        return kind

    return keep


@cache
def built_in_methods() -> tuple[str, ...]:
    """The names of our methods; those in `methods/baselines` are named after their files."""
    return ("sofa", *sorted(module.name for module in pkgutil.iter_modules(baselines.__path__)))


def method_names() -> list[str]:
    """Every name that is known here: ours, those of installed packages, those registered."""
    installed = [point.name for point in entry_points(group=GROUP)]
    return list(dict.fromkeys([*built_in_methods(), *installed, *_BY_NAME]))


def find_method(name: str) -> MethodInfo:
    """Look a method up by name or import path; a name that is not known is a ConfigError."""
    if name in built_in_methods():
        importlib.import_module(_module_of(name))
    if name in _BY_NAME:
        return _BY_NAME[name]
    if ":" in name:
        return _load(name, name)
    for point in entry_points(group=GROUP, name=name):
        return replace(_load(name, point.value), name=name)
    known = method_names()
    near = difflib.get_close_matches(name, known, n=1)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else f"known: {', '.join(known)}; name your own method as package.module:Class"
    )
    raise ConfigError(f"unknown method {name}; {hint}")


def title_of(name: str) -> str:
    """What a method is called in tables and reports."""
    return find_method(name).title


def info_of(kind: type) -> MethodInfo:
    """What a class registered; a class that did not register goes by its own name."""
    if kind in _BY_CLASS:
        return _BY_CLASS[kind]
    name = kind.__name__.lower()
    if name in built_in_methods():
        name = f"own_{name}"
    return MethodInfo(name, kind.__name__, kind, _config_of(kind))


class MethodChoice(Protocol):
    """The parts of a configuration that every method is made from, besides its own section."""

    @property
    def method(self) -> str: ...
    @property
    def sharing(self) -> SharingConfig: ...


def make_method(config: MethodChoice) -> Method[Any]:
    """Make the configured method."""
    info = find_method(config.method)
    given = {"config": getattr(config, info.section), "sharing": config.sharing}
    if info.config is None:
        del given["config"]
    taken = inspect.signature(info.factory).parameters
    return info.factory(**{name: value for name, value in given.items() if name in taken})


def check_method(kind: type, what: str) -> None:
    """Raise unless a class has what a method must have."""
    if missing := [part for part in _PARTS if not callable(getattr(kind, part, None))]:
        raise ConfigError(
            f"{what} must have the functions init, round and view, but {kind.__name__} has no "
            f"{' and no '.join(missing)}; see sofa_fl.Method"
        )


def _module_of(name: str) -> str:
    return f"{SOFA}.method" if name == "sofa" else f"{baselines.__name__}.{name}"


def _config_of(kind: type) -> type[Any] | None:
    """The dataclass that a constructor's parameter `config` is annotated with, if any."""
    try:
        hint = get_type_hints(kind.__init__).get("config")  # type: ignore[misc]
    except NameError:  # an annotation that is not there at run time
        return None
    hints = [hint, *get_args(hint)]  # it may be optional
    return next((h for h in hints if isinstance(h, type) and dataclasses.is_dataclass(h)), None)


def _load(name: str, path: str) -> MethodInfo:
    """The method whose class is at `package.module:Class`; the current folder is searched last."""
    module_name, _, class_name = path.partition(":")
    try:
        module = _import(module_name)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"cannot import the method {name}: {why}") from None
    kind = getattr(module, class_name, None)
    if not isinstance(kind, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        near = difflib.get_close_matches(class_name, classes, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"unknown method {name}: {module_name} has no class {class_name!r}{hint}")
    check_method(kind, f"the method {name}")
    info = info_of(kind)
    _check_constructor(name, info)
    return info


def _check_constructor(name: str, info: MethodInfo) -> None:
    """Raise if a method cannot be made from a configuration."""
    given = {"sharing"} if info.config is None else {"config", "sharing"}
    for parameter in inspect.signature(info.factory).parameters.values():
        is_optional = parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if not is_optional and parameter.name not in given:
            raise ConfigError(
                f"the constructor of the method {name} needs {parameter.name!r}, but a "
                "configuration provides only 'config', annotated with a dataclass, and 'sharing'; "
                "give it a default, or pass an instance to sofa_fl.run(method=...)"
            )


def _import(name: str) -> Any:
    if not name or name.startswith("."):
        raise ModuleNotFoundError("a method is named package.module:Class")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        folder = str(Path.cwd())
        if not name.startswith(error.name or "?") or folder in sys.path:
            raise
        sys.path.append(folder)  # a console script does not search where it is called
        importlib.invalidate_caches()
        return importlib.import_module(name)
