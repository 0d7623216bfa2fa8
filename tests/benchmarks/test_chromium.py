"""A page that is stuck is an error with a sentence, and does not hold up the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import chromium
import pytest
from chromium import PageStuckError, opened
from tests.report.browser import browser_for_tests

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
NEVER_READY = "<!doctype html><title>never</title>"
READY = "<!doctype html><html data-ready><title>ready</title>"


@pytest.mark.parametrize("page", [NEVER_READY, READY], ids=["never ready", "then stuck"])
def test_a_page_that_is_stuck_is_told(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page)
    monkeypatch.setattr(chromium, "PATIENCE", 5.0)
    with browser_for_tests() as browser:
        stuck = pytest.raises(PageStuckError, match=r"page.html was stuck for 5 s, and Chromium")
        with stuck as error, opened(browser, file.as_uri()) as window:
            window.evaluate("() => { for (;;) {} }")
        assert "\n" not in str(error.value)
        assert not browser.is_connected()


def test_one_that_is_not_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(READY)
    with browser_for_tests() as browser:
        with opened(browser, file.as_uri()) as window:
            assert window.title() == "ready"
        assert browser.is_connected()
