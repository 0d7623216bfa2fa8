"""The threat model names tests: all of them exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text()


def path_of(name: str) -> Path:
    """A file by its name on the page, where files without a folder are of deployments."""
    return ROOT / name if "/" in name else ROOT / "packages" / "sofa-fl-flower" / "tests" / name


def test_every_file_that_is_named_exists() -> None:
    names = re.findall(r"`((?:tests/)?[\w/]*test_\w+\.py)`", TEXT)
    assert len(names) > 15
    assert [name for name in names if not path_of(name).is_file()] == []


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`([\w/]*test_\w+\.py)::(\w+)`", TEXT)
    assert len(named) > 30
    files = {file for file, _ in named}
    defined = {
        (file, node.name)
        for file in files
        for node in ast.parse(path_of(file).read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert [f"{file}::{name}" for file, name in named if (file, name) not in defined] == []
