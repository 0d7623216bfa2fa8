"""Import this first to run a benchmark of a checkout with torch, NumPy, SciPy and YAML alone.

A machine with a GPU often has those and no more, and cannot install anything.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

BEGAN = time.perf_counter()  # before anything large is imported
ROOT = Path(__file__).resolve().parents[1]


class PlainAdapter:
    """What is used of pydantic's `TypeAdapter`, for dataclasses of right values: no checks."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def validate_python(self, values: Mapping[str, Any]) -> Any:
        hints = get_type_hints(self.kind)
        return self.kind(**{name: self._made(hints[name], value) for name, value in values.items()})

    def _made(self, hint: Any, value: Any) -> Any:
        if dataclasses.is_dataclass(hint):
            return PlainAdapter(hint).validate_python(value)
        return tuple(value) if isinstance(value, list) else value

    def dump_python(self, value: Any, mode: str) -> Any:
        return json.loads(json.dumps(dataclasses.asdict(value)))


def stand_in(name: str, **content: Any) -> None:
    """Put a module in the place of one that is not installed."""
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(content)


def no_limits(*_limits: object, **_named: object) -> None:
    """Stands for what says which numbers are allowed."""


FLOWER = ROOT / "packages" / "sofa-fl-flower"
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(FLOWER / "src")]
stand_in("annotated_types", **dict.fromkeys(("Ge", "Gt", "Interval", "Lt"), no_limits))
stand_in("pydantic", TypeAdapter=PlainAdapter, ValidationError=ValueError)
