"""The rules of the package that hold for the study, too."""

from __future__ import annotations

import tomllib
from pathlib import Path

import study
from tests.test_layers import imports

STUDY = Path(study.__file__).parent
MODULES = sorted(STUDY.rglob("*.py"))


def test_only_figures_need_matplotlib() -> None:
    for path in MODULES:
        if path.parent.name != "figures":
            assert not [name for name in imports(path) if name.startswith("matplotlib")], path


def test_the_study_is_not_in_the_package() -> None:
    """The wheel is made of `src`, and the study lies beside it."""
    settings = tomllib.loads((STUDY.parent / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["setuptools"]["packages"]["find"]["where"] == ["src"]
    assert not (STUDY.parent / "src" / "sofa_fl" / "study").exists()
