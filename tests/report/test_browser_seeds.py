"""Several methods with several seeds on one page, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import opened
from playwright.sync_api import Browser
from synthetic_run import write_synthetic

from sofa_fl.report.page import write_report
from tests.report.browser import browser_for_tests
from tests.report.test_live import serving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_for_tests() as found:
        yield found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two methods, three seeds each."""
    folder = tmp_path_factory.mktemp("seeds")
    made = []
    for title in ("SOFA-FL", "FedAvg"):
        for seed in range(3):
            run = write_synthetic(folder / f"{title}-{seed}", 8)
            config = run / "config.yaml"
            lines = [
                line
                for line in config.read_text().splitlines()
                if not line.startswith(("seed:", "title:"))
            ]
            config.write_text("\n".join([*lines, f"seed: {seed}", f"title: {title}", ""]))
            made.append(run)
    return made


def test_a_line_and_a_row_per_method(browser: Browser, runs: list[Path], tmp_path: Path) -> None:
    page_file = write_report(runs, tmp_path / "comparison.html")
    with opened(browser, page_file.as_uri(), size=(1400, 900)) as page:
        assert page.locator("h1").inner_text() == "2 methods compared, 6 runs"
        names = page.locator("#mean-card text.name").all_text_contents()
        assert sorted(names) == ["FedAvg", "SOFA-FL"]
        assert page.locator("#mean-card .line.seed").count() == 6
        assert page.locator("#mean-card .line:not(.seed)").count() == 2
        rows = page.locator("#table-card tbody tr:not(.seed)")
        assert rows.count() == 2
        assert "±" in rows.first.inner_text()
        assert page.locator("#table-card tbody tr.seed").count() == 6
        assert "seed 2" in page.locator("#differ-card").inner_text()
        assert "95% interval" in page.locator("#differ-card").inner_text()


def test_runs_with_one_seed_each_are_named_as_before(
    browser: Browser, runs: list[Path], tmp_path: Path
) -> None:
    page_file = write_report([runs[0], runs[3]], tmp_path / "comparison.html")
    with opened(browser, page_file.as_uri(), size=(1400, 900)) as page:
        assert page.locator("h1").inner_text() == "2 runs compared"
        assert page.locator("#mean-card .line.seed").count() == 0
        assert page.locator("#differ-card h2").inner_text() == "Who gains, who loses"


def test_a_folder_of_runs_leads_to_its_runs(browser: Browser, runs: list[Path]) -> None:
    with serving(runs[0].parent) as server, opened(browser, server.url) as page:
        assert page.locator("tbody tr").count() == 6
        for name in ("SOFA-FL-0", "FedAvg-0"):
            page.get_by_label(f"compare {name}").check()
        page.get_by_role("button").click()
        page.wait_for_selector("[data-ready]")
        assert page.locator("h1").inner_text() == "2 runs compared"
        page.go_back()
        page.get_by_role("link", name="FedAvg-2").click()
        page.wait_for_selector("[data-ready]")
        assert page.locator("h1").inner_text().startswith("FedAvg on")
