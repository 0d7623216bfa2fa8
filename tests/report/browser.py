"""A real Chromium for the tests of the page, Debian's or whichever is on the PATH.

CI must have one (`.ci/run` installs it); elsewhere its tests are skipped, and say why.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING = "no Chromium on the PATH, so the report was not opened: try 'apt-get install chromium'"


@contextmanager
def chromium() -> Iterator[Browser]:
    path = os.environ.get("SOFA_FL_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser,
    url: str,
    *,
    size: tuple[int, int] = (1280, 800),
    scheme: Literal["light", "dark"] = "light",
) -> Iterator[Page]:
    """A page that has drawn itself, in a window of its own; afterwards, nothing went wrong."""
    wrong: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def on_error(error: Error) -> None:
        wrong.append(str(error))

    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.on("console", on_console)
    page.on("pageerror", on_error)
    page.goto(url)
    page.wait_for_selector("html[data-ready]", state="attached")
    yield page
    context.close()
    assert not wrong
