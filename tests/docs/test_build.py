"""The site builds without a warning, and a page of it loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.report.browser import browser_for_tests

ROOT = Path(__file__).parent.parent.parent
LOADS = re.compile(
    r"""<(?:script|img|iframe|source)[^>]+src=["'](?:https?:)?//|<link(?![^>]*canonical)[^>]+href=["'](?:https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None and not os.environ.get("CI"):
        pytest.skip("MkDocs is not installed: try pip install 'sofa-fl[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").is_file()


def test_what_is_made_of_the_code_is_in_it(site: Path) -> None:
    assert "sofa.shape.tolerance" in (site / "config.html").read_text(encoding="utf-8")
    assert "sofa-fl compare" in (site / "commands.html").read_text(encoding="utf-8")
    assert "Continue a run from its last checkpoint" in (site / "api.html").read_text("utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not LOADS.search(page.read_text(encoding="utf-8")), page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", style.read_text(encoding="utf-8"))


def test_nothing_is_cut_off_at_a_usual_width(site: Path) -> None:
    """Columns of the results were hidden at 1400 pixels."""
    hidden = """() => [...document.querySelectorAll(".md-typeset__scrollwrap")]
      .map((box) => box.scrollWidth - box.clientWidth).filter((width) => width > 2)"""
    with browser_for_tests() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        for file in sorted(site.glob("*.html")):
            page.goto(file.as_uri())
            page.wait_for_selector("article")
            if file.name in ("results.html", "drift.html"):
                page.wait_for_selector(".md-typeset__scrollwrap")
            assert page.evaluate(hidden) == [], file.name


def test_on_a_phone_rows_keep_their_names(site: Path) -> None:
    """A wide table scrolls below its first column, and no button lies on code."""
    with browser_for_tests() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto((site / "results.html").as_uri())
        page.wait_for_selector(".md-typeset__scrollwrap")
        left = page.evaluate(
            """() => {
              const box = [...document.querySelectorAll(".md-typeset__scrollwrap")]
                .find((one) => one.scrollWidth > one.clientWidth + 100);
              box.scrollLeft = 100;
              const name = box.querySelector("tbody td").getBoundingClientRect();
              return name.left - box.getBoundingClientRect().left;
            }"""
        )
        assert 0 <= left < 40
        assert page.locator(".md-clipboard:visible").count() == 0
