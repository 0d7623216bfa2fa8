"""A real Chromium, Debian's or whichever is on the PATH, and pages opened in it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Timer
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Error, Page, sync_playwright
from process_tree import descendants

Scheme = Literal["light", "dark"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # in a container it may be too small for a page
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 240.0  # seconds that a page has, from being opened to being left
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
    """A page that has drawn itself, in a window of its own; afterwards, nothing went wrong.

    One that is stuck is an error after `PATIENCE` seconds, and Chromium is ended.
    """
    with limited(url, PATIENCE):
        yield from _opened(browser, url, size, scheme)


@contextmanager
def limited(url: str, seconds: float) -> Iterator[None]:
    """Not all that waits for a page has a limit of its own: then the browser must go."""
    is_over = Event()

    def end() -> None:
        is_over.set()
        end_chromium()

    timer = Timer(seconds, end)
    timer.start()
    try:
        yield
    except Error:
        if is_over.is_set():
            raise PageStuckError(
                f"{url} was stuck for {seconds:g} s, and Chromium was ended: open it by hand to "
                "see what it waits for"
            ) from None
        raise
    finally:
        timer.cancel()


class PageStuckError(Exception):
    """A page that did not get done in time."""


def end_chromium() -> None:
    """End the browsers that this process has started."""
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            if FLAGS[0].encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)


def _opened(browser: Browser, url: str, size: tuple[int, int], scheme: Scheme) -> Iterator[Page]:
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
    page.goto(url, timeout=0)  # it has the limit of all
    page.wait_for_selector("html[data-ready]", state="attached", timeout=0)
    yield page
    context.close()
    assert not wrong, wrong
