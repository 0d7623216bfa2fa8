"""A real Chromium, Debian's or whichever is on the PATH, and pages opened in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Error, Page, sync_playwright

Scheme = Literal["light", "dark"]
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


def find_chromium() -> str | None:
    """Where it is; SOFA_FL_CHROMIUM names another."""
    named = os.environ.get("SOFA_FL_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def started(path: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser, url: str, *, size: tuple[int, int] = (1280, 800), scheme: Scheme = "light"
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
    assert not wrong, wrong
