"""Whether there is an nginx to test with."""

from __future__ import annotations

import os
import shutil

import pytest


def require_nginx() -> None:
    """Skip without nginx, or fail where CI is set."""
    if shutil.which("nginx") is None:
        missing = "nginx is not installed; install Debian's package nginx"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
