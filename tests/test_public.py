"""The public names: exported on purpose, each one there, and cheap to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sofa_fl


def test_every_public_name_is_there() -> None:
    for name in sofa_fl.__all__:
        assert getattr(sofa_fl, name) is not None
        assert name in dir(sofa_fl)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'federated'"):
        sofa_fl.federated  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, sofa_fl; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
