"""What a node needs, with the hashes of its files: writes the package's requirements-node.txt.

    python docs_build/node_requirements.py

Versions are those of constraints.txt, dependencies those of the packages installed here, and hashes
those that the package index tells. torch is not among them: its files depend on its index.
"""

from __future__ import annotations

import importlib.metadata
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
FILE = ROOT / "packages" / "sofa-fl-flower" / "requirements-node.txt"
INDEX = "https://pypi.org/simple"
# All that a node imports itself; its test_node_requirements.py tries without the rest.
NEEDED = (
    "flwr", "dp-accounting", "cryptography", "numpy", "scipy", "pydantic", "annotated-types",
    "typer", "rich", "PyYAML", "httpx",
)  # fmt: skip
TAGS = r"-(py2\.py3|py3|cp31[123]|cp3\d+-abi3)-.*(any|linux.*_(x86_64|aarch64))\.whl$"
LINUX = re.compile(TAGS)
PYTHONS = ("3.11", "3.12", "3.13")
HEAD = """\
# What a node needs on Linux, besides torch and sofa-fl itself.
# Written by docs_build/node_requirements.py.
# pip install --require-hashes -r requirements-node.txt
"""


def pinned() -> dict[str, str]:
    """The version of every package in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("==") for line in lines if "==" in line]
    return {str(canonicalize_name(name)): version for name, _, version in pairs}


def closure(names: tuple[str, ...]) -> list[str]:
    """Packages, and all that they depend on, on any supported Python."""
    found: set[str] = set()
    left: list[tuple[str, frozenset[str]]] = [(name, frozenset()) for name in names]
    while left:
        name, extras = left.pop()
        found.add(str(canonicalize_name(name)))
        for needed, wanted in _needed(name, extras):
            if canonicalize_name(needed) not in found:
                left.append((needed, wanted))
    return sorted(found - {"torch"})


def _needed(name: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        marker = requirement.marker
        places: list[dict[str, Any]] = [
            {**default_environment(), "python_version": python, "extra": extra}
            for python in PYTHONS
            for extra in (*extras, "")
        ]
        if marker is None or any(marker.evaluate(place) for place in places):
            yield requirement.name, frozenset(requirement.extras)


def hashes(name: str, version: str) -> list[str]:
    """Of a version's files for Linux, as the index tells them."""
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        page = answer.read().decode()
    files = re.findall(r'href="[^"]*#sha256=([0-9a-f]{64})"[^>]*>\s*([^<\s]+)\s*<', page)
    start = re.compile(rf"{re.sub('-', '[-_.]', name)}-{re.escape(version)}-", re.IGNORECASE)
    found = sorted({sha for sha, file in files if start.match(file) and LINUX.search(file)})
    if not found:
        raise SystemExit(f"{INDEX} has no wheel of {name} {version} for Linux")
    return found


def text() -> str:
    """All of requirements-node.txt."""
    versions, lines = pinned(), [HEAD]
    for name in closure(NEEDED):
        of = [f"    --hash=sha256:{digest}" for digest in hashes(name, versions[name])]
        lines.append(" \\\n".join([f"{name}=={versions[name]}", *of]) + "\n")
    return "".join(lines)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
