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
    "topology", "data", "sharing", "models", "engine", "privacy", "guard", "present", "federation",
    "methods", "experiment",
)  # fmt: skip

# What of this package a layer may import besides itself; `errors` and `seeding` serve all.
BELOW = {
    "topology": set[str](),
    "data": set[str](),
    "sharing": {"data", "topology"},
    "models": set[str](),
    "engine": {"data", "models", "topology"},
    "privacy": {"data", "engine", "models", "topology"},
    "guard": {"engine", "models", "topology"},
    "present": {"data", "engine", "topology"},
    "federation": {"data", "engine", "guard", "models", "present", "privacy", "topology"},
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
# What of others only some may import.
OUTSIDE = {
    "torch": {"models", "engine", "methods", "experiment", "cli", "federation", "guard"},
    "triton": {"engine/kernels", "engine/first_layer", "models/sum_kernels"},
    "ray": {"engine/ray_cluster", "engine/ray_worker"},
    "safetensors": {"experiment"},
    "PIL": {"data/pictures"},
    "onnx": {"experiment/serving/model_files"},
    "onnxscript": {"experiment/serving/model_files"},
    "tensorboard": {"experiment/tracking/observers"},
    "pydantic": {"experiment"},
    "yaml": {"experiment", "report", "cli"},
    "pandas": {"api/result"},
    "dp_accounting": {"privacy/accounting"},
    "typer": {"cli"},
    "rich": {"cli", "data/download"},
    "sklearn": {"topology", "data/natural/heart"},
    "threadpoolctl": {"topology"},
    "scipy": {"topology", "data", "methods", "report/intervals", "experiment/scoring/agreement"},
    "matplotlib": {"jobs/plotting"},
    "study": {"cli/reproduce"},  # the repository's, not in the wheel
}
# What loads pickles, always or unless told not to; `weights_only` goes with `torch.load`.
UNPICKLERS = (
    "pickle", "torch.load", "weights_only", "np.load", "marshal", "shelve", "joblib", "dill",
)  # fmt: skip
# Who writes files, and how each makes sure that they are whole: by the disk module, by a flushed
# line or a checksum, by the published checksum; a user's own data are the user's to check.
WRITERS = {
    "experiment/storage/disk.py",
    "experiment/storage/checkpoint.py",
    "experiment/storage/run_folder.py",
    "experiment/tracking/observers.py",
    "data/download.py",
}
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


def test_others_are_imported_where_they_belong() -> None:
    """Packages that build on this one, such as sofa_fl_flower, are never among them."""
    known = {*sys.stdlib_module_names, "sofa_fl", "numpy", "annotated_types"}
    for path in MODULES:
        here = {str(part) for part in path.relative_to(SOURCE).with_suffix("").parents}
        here |= {str(path.relative_to(SOURCE).with_suffix(""))}
        for name in imports(path):
            package = name.split(".")[0]
            if package in OUTSIDE:
                assert here & OUTSIDE[package], f"{path} must not import {name}"
            else:
                assert package in known, f"{name} is new: say in this test who may import it"


def test_nothing_unpickles() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8").replace(".eval(", "")
        for word in (*UNPICKLERS, "eval(", "exec("):
            lines = [line for line in text.splitlines() if word in line]
            assert all("no pickle" in line.lower() for line in lines), (path, lines)


def test_files_are_written_in_one_place() -> None:
    """`storage.disk` writes a file whole or not at all."""
    for path in MODULES:
        if str(path.relative_to(SOURCE)) in WRITERS:
            continue
        text = path.read_text(encoding="utf-8")
        # Pictures are drawn into memory first.
        for word in (".write_text(", ".write_bytes(", '"w"', '"wb"', "json.dump(", "savefig(path"):
            assert word not in text, f"{path}: {word}: use sofa_fl.experiment.storage.disk"


def test_the_rules_see_what_they_forbid(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import torch.nn as x\nfrom sofa_fl.cli import main\n"
        "def f():\n    from typer import Option\n    import pickle, json\n"
    )
    assert sorted(imports(file)) == [
        "json", "pickle", "sofa_fl.cli.main", "torch.nn", "typer.Option"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("sofa_fl", {"torch", "sklearn", "pydantic"}),
        ("sofa_fl.topology.clustering.shape", {"torch", "pydantic", "sklearn"}),
        ("sofa_fl.data.federate", {"torch", "sklearn"}),
        ("sofa_fl.sharing", {"torch", "sklearn"}),
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
