"""Only `flower/` knows Flower, nothing unpickles, and what a machine starts with stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sofa_fl_flower

SOURCE = Path(sofa_fl_flower.__file__).parent
PARTS = {"transport", "masked_sum", "machine", "server", "flower", "commands"}
# What of this package a part may import besides itself.
BELOW = {
    "transport": {"masked_sum"},
    "masked_sum": {"transport"},
    "machine": {"transport", "masked_sum"},
    "server": {"transport", "masked_sum"},
    "flower": PARTS - {"commands"},
    "commands": PARTS,
}
# What of others only some may import.
OUTSIDE = {
    "flwr": {"flower"},
    "httpx": {"flower"},
    "fastapi": {"flower/fleet_guard"},
    "cryptography": {"flower", "masked_sum", "machine/secure_sums"},
    "yaml": {"server/server"},
    "torch": PARTS,
    "typer": {"commands"},
}
UNPICKLERS = (
    "pickle", "torch.load", "weights_only", "np.load", "marshal", "shelve", "joblib", "dill",
    "eval(", "exec(",
)  # fmt: skip
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, at the top or anywhere else, by its full name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield f"{node.module}.{node.names[0].name}"


def test_imports_go_down_only() -> None:
    for path in MODULES:
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for name in imports(path):
            if name.split(".")[0] == "sofa_fl_flower":
                assert name.split(".")[1] in BELOW[part] | {part}, f"{path} must not import {name}"


def test_others_are_imported_where_they_belong() -> None:
    known = {*sys.stdlib_module_names, "sofa_fl", "sofa_fl_flower", "numpy", "annotated_types"}
    for path in MODULES:
        inside = path.relative_to(SOURCE).with_suffix("")
        here = {str(inside), *map(str, inside.parents)}
        for name in imports(path):
            package = name.split(".")[0]
            if package in OUTSIDE:
                assert here & OUTSIDE[package], f"{path} must not import {name}"
            else:
                assert package in known, f"{name} is new: say in this test who may import it"


def test_nothing_unpickles() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8").replace(".eval(", "")
        for word in UNPICKLERS:
            lines = [line for line in text.splitlines() if word in line]
            assert all("no pickle" in line.lower() for line in lines), (path, lines)


def test_files_are_written_in_one_place() -> None:
    """By the core's `storage.disk`; but keys have their rights from the first moment on."""
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        for word in (".write_text(", ".write_bytes(", '"w"', '"wb"', "json.dump("):
            assert word not in text or path == SOURCE / "flower" / "keys.py", f"{path}: {word}"


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("sofa_fl_flower.commands", {"torch", "numpy", "flwr"}),
        ("sofa_fl_flower.server.server", {"flwr", "sklearn"}),
        ("sofa_fl_flower.flower.new_app", {"torch"}),
        ("sofa_fl_flower.flower.supernode, sofa_fl_flower.machine.site_report", {"torch"}),
    ],
)
def test_light_parts_stay_light(module: str, never: set[str]) -> None:
    """By way of other modules too."""
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not never & set(loaded.stdout.split())
