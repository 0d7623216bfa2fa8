"""A browser for tests: CI must have one (`.ci/run` installs it), elsewhere they are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from chromium import MISSING, find_chromium, started
from playwright.sync_api import Browser


@contextmanager
def browser_for_tests() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with started(path) as browser:
        yield browser
