"""One name for one thing: a class or function name is defined in one module, but for twins."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import sofa_fl

SOURCE = Path(sofa_fl.__file__).parent
# The same thing twice: as a command or for Python, of torch or of Triton.
TWINS = {
    "assign": {"cli/export", "experiment/serving/newcomers"},
    "compare": {"cli/compare", "api/runs"},
    "export": {"cli/export", "experiment/serving/model_files"},
    "patches": {"engine/kernels", "engine/windows"},
    "pool": {"engine/kernels", "engine/windows"},
    "resume": {"cli/run", "api/runs", "experiment/run/launch"},
    "run": {"cli/run", "api/runs", "experiment/run/launch"},
    "run_or_resume": {"api/runs", "experiment/run/launch"},
    "uniform": {"engine/kernels", "engine/draws"},
    "unpatch": {"engine/kernels", "engine/windows"},
    "unpool": {"engine/kernels", "engine/windows"},
}


def test_one_name_for_one_thing() -> None:
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for item in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(item, ast.FunctionDef | ast.ClassDef) and not item.name.startswith("_"):
                modules[item.name].add(path.relative_to(SOURCE).with_suffix("").as_posix())
    several = {name: where for name, where in modules.items() if len(where) > 1}
    assert several == TWINS


def test_one_file_name_for_one_thing() -> None:
    """Every layer has its settings in `config.py`; no other file name comes twice."""
    names = [path.name for path in SOURCE.rglob("*.py") if path.name != "__init__.py"]
    assert {name for name in names if names.count(name) > 1} == {"config.py"}
