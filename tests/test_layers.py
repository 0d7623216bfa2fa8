"""Imports go down only, and nothing unpickles: read off the source, not off what happens to run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sofa_fl

SOURCE = Path(sofa_fl.__file__).parent
LAYERS = (
    "topology", "data", "sharing", "models", "engine", "privacy", "guard_config", "guard",
    "present", "federation", "methods", "experiment",
)  # fmt: skip

# What of this package a layer may import besides itself; `errors` and `seeding` serve all.
BELOW = {
    "topology": set[str](),
    "data": set[str](),
    "sharing": {"data", "topology"},
    "models": set[str](),
    "engine": {"data", "models", "topology"},
    "guard_config": {"models"},
    "privacy": {"data", "engine", "models", "topology"},
    "guard": {"engine", "guard_config", "models", "topology"},
    "present": {"data", "engine", "topology"},
    "federation": {
        *("data", "engine", "guard", "guard_config", "models", "present", "privacy", "topology")
    },
    "methods": {"data", "engine", "federation", "models", "present", "sharing", "topology"},
    "experiment": set(LAYERS) - {"experiment"},
    "report": {"experiment", "topology"},
    "jobs": {"experiment", "report"},
    "deploy": set[str](),  # says only where it has gone
    "api": {"data", "experiment", "methods", "models", "report"},
    "cli": {*LAYERS, "report", "jobs"},
    "__main__": {"cli"},
}
REPORT_READS = {
    ("storage", "events"),
    ("storage", "run_folder"),
    ("storage", "disk"),
}
EXTRAS = (
    "PIL", "dp_accounting", "flwr", "httpx", "matplotlib", "mlflow", "onnx", "onnxscript",
    "pandas", "peft", "ray", "transformers", "triton", "wandb",
)  # fmt: skip
NEED_EXTRAS = (
    "sofa_fl.deploy", "sofa_fl.engine.ray_", "sofa_fl.engine.kernels",
    "sofa_fl.engine.first_layer", "sofa_fl.models.sum_kernels", "sofa_fl.jobs.plotting",
)  # fmt: skip
# What loads pickles, always or unless told not to; `weights_only` goes with `torch.load`.
UNPICKLERS = (
    "pickle", "torch.load", "weights_only", "np.load", "marshal", "shelve", "joblib", "dill",
)  # fmt: skip
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, at the top or anywhere else, by its full name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_imports_go_down_only() -> None:
    for path in MODULES:
        layer = layer_of(path)
        if layer in ("errors", "seeding"):
            assert not [name for name in imports(path) if name.startswith("sofa_fl")]
            continue
        assert layer in BELOW, f"a new layer: say in this test what {layer} may import"
        allowed = BELOW[layer] | {layer, "errors", "seeding"}
        if layer == "cli":
            allowed |= {"__version__"}
        for name in imports(path):
            parts = name.split(".")
            if parts[0] != "sofa_fl":
                continue
            assert len(parts) > 1, f"{path} imports sofa_fl itself, which imports everything"
            assert parts[1] in allowed, f"{path}: {layer} must not import {name}"
            if layer == "report" and parts[1] == "experiment":
                assert tuple(parts[2:4]) in REPORT_READS, f"{path} reads more than a run folder"


def test_nothing_unpickles() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8").replace(".eval(", "")
        for word in (*UNPICKLERS, "eval(", "exec("):
            lines = [line for line in text.splitlines() if word in line]
            assert all("no pickle" in line.lower() for line in lines), (path, lines)


def test_the_rules_see_what_they_forbid(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import torch.nn as x\nfrom sofa_fl.cli import main\n"
        "def f():\n    from typer import Option\n    import pickle, json\n"
    )
    assert sorted(imports(file)) == [
        "json", "pickle", "sofa_fl.cli.main", "torch.nn", "typer.Option"
    ]  # fmt: skip


def test_all_but_the_extras_works_without_them() -> None:
    """Every module can be imported where only what `pip install sofa-fl` brings is installed."""
    code = f"""
import importlib, pkgutil, sys, sofa_fl
for extra in {EXTRAS}:
    sys.modules[extra] = None
for found in pkgutil.walk_packages(sofa_fl.__path__, "sofa_fl."):
    if not found.name.startswith({NEED_EXTRAS}) and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("sofa_fl", {"torch", "sklearn", "pydantic"}),
        ("sofa_fl.topology.shape", {"torch", "pydantic", "sklearn"}),
        ("sofa_fl.data.federate", {"torch", "sklearn"}),
        ("sofa_fl.sharing", {"torch", "sklearn"}),
        ("sofa_fl.experiment.run.config", {"torch", "sklearn"}),
        ("sofa_fl.report.history", {"torch"}),
        ("study.pages.results_page", {"torch", "matplotlib"}),
        ("study.tuning", {"matplotlib"}),
        ("sofa_fl.cli.main", {"torch", "numpy", "sofa_fl_flower"}),
    ],
)
def test_light_parts_stay_light(module: str, never: set[str]) -> None:
    """By way of other modules too."""
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not never & set(loaded.stdout.split())
