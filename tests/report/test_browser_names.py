"""Clients with names, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import opened
from playwright.sync_api import Browser
from synthetic_run import write_synthetic

from sofa_fl.report.page import write_report
from tests.report.browser import browser_for_tests

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_for_tests() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve clients called `site 0` to `site 11`."""
    run = write_synthetic(tmp_path_factory.mktemp("names") / "run", 12)
    lines = (run / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    for event in events:
        numbers = event.get("clients", range(len(event["accuracies"])))
        event["names"] = [f"<site {client}>" for client in numbers]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return write_report([run])


def test_names_in_the_tree_the_ranks_and_the_tooltip(browser: Browser, report: Path) -> None:
    with opened(browser, report.as_uri()) as page:
        shown = page.locator(".tree .name").all_text_contents()
        assert len(shown) == page.locator(".tree .client").count() > 0
        assert "<site 3>" in shown
        assert page.locator("div.worst").inner_text().startswith("<site ")
        page.locator('.tree [data-node="3"] circle').first.hover()
        assert page.locator("#tip").inner_text().startswith("<site 3>")
        assert "client 3" not in page.locator("body").inner_text()


def test_a_client_is_found_by_its_name(browser: Browser, report: Path) -> None:
    with opened(browser, report.as_uri()) as page:
        find = page.get_by_label("Find a client by its name or number")
        for text in ("<site 7>", "7", "<SITE 7"):
            find.fill(text)
            find.press("Enter")
            assert page.locator(".tree .picked").get_attribute("data-node") == "7"
            assert find.input_value() == "<site 7>"
            find.fill("")
            find.press("Enter")
            assert page.locator(".tree .picked").count() == 0


def test_what_happened_to_the_data_and_what_to_know(browser: Browser, tmp_path: Path) -> None:
    """A round whose data changed says so, and a run that got worse says since when."""
    run = write_synthetic(tmp_path / "run", 6, 3)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    for event, mean in zip(events, (0.9, 0.92, 0.7, 0.71)):
        event["client"]["mean"] = mean
    events[2]["data"] = {"changed": [1, 2], "joined": [0]}
    events[2]["names"] = [f"site {client}" for client in range(6)]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    with opened(browser, write_report([run]).as_uri()) as page:
        remark = page.locator(".remark").all_text_contents()
        assert len(remark) == 1
        assert remark[0].startswith(
            "The mean has fallen 21.0 points since round 1, most of it in round 2"
        )
        assert not page.locator(".data-news").is_visible()
        page.keyboard.press("ArrowLeft")
        said = page.locator(".data-news").inner_text()
        assert said == "The data of site 1, site 2 changed; site 0 joined."
        dots = page.locator(".ticks .data")
        assert dots.count() == 1, "and the slider has a dot there"
        assert dots.get_attribute("style") == f"left: {200 / 3:.4f}%;"


def test_a_click_on_an_edit_shows_it(browser: Browser, tmp_path: Path) -> None:
    report = write_report([write_synthetic(tmp_path / "run", 20)])
    with opened(browser, report.as_uri()) as page:
        first = page.locator(".edits ul > li").first
        round = page.locator(".edits > li").first.get_attribute("data-round")
        first.click()
        assert page.locator("#round").inner_text() == f"Round {round} of 20"
        picked = page.locator(".tree .picked").first.get_attribute("data-node")
        assert picked is not None
        assert f" {picked}" in first.inner_text()


def test_scores_are_in_view_and_bars_tell_clients_apart(browser: Browser, tmp_path: Path) -> None:
    run = write_synthetic(tmp_path / "run", 100)
    with opened(browser, write_report([run]).as_uri(), size=(1280, 700)) as page:
        last = json.loads((run / "events.jsonl").read_text().splitlines()[-1])
        told = page.locator("#headline").inner_text()
        assert f"{last['client']['mean']:.2%}" in told
        box = page.locator("#headline").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 120, "without scrolling"
        assert f"{max(last['disclosed']):.1%} of a client's samples disclosed (maximum)" in told
        side = page.locator("#clients-card").inner_text()
        assert "The worst 8 of 100 in this round" in side
        assert "four fifths of the clients" in side


def test_the_map_cuts_no_dot_off(browser: Browser, tmp_path: Path) -> None:
    """Clients at one place are moved apart, also at the edge."""
    run = write_synthetic(tmp_path / "run", 60, 2)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    for event in events:
        event["positions"] = {str(c): [0.0 if c < 55 else 1.0, 0.0] for c in range(60)}
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    with opened(browser, write_report([run]).as_uri()) as page:
        outside = page.evaluate(
            """() => {
              const frame = document.querySelector("svg.map").viewBox.baseVal;
              const cut = (c) => [["cx", frame.width], ["cy", frame.height]].some(([at, size]) => {
                const [x, r] = [Number(c.getAttribute(at)), Number(c.getAttribute("r"))];
                return x - r < 0 || x + r > size;
              });
              return [...document.querySelectorAll("svg.map circle")].filter(cut).length;
            }"""
        )
        assert outside == 0
        pressed = page.evaluate(
            """() => [...document.querySelectorAll("svg.map circle")].filter((c) =>
              Number(c.getAttribute("cx")) - Number(c.getAttribute("r")) < 4).length"""
        )
        assert pressed < 6, "they are given room, not pressed against the edge"


@pytest.mark.parametrize("width", [390, 1400])
def test_names_of_clusters_are_whole_or_left_out(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    """They were cut off at the right edge, and touched the next cluster on a phone."""
    sizes = {0: 8, 1: 8, 2: 200}
    runs = [write_synthetic(tmp_path / f"run {s}", num, seed=s) for s, num in sizes.items()]
    page_file = write_report(runs, tmp_path / "compared.html")
    with opened(browser, page_file.as_uri(), size=(width, 900)) as page:
        cut = page.evaluate(
            """() => [...document.querySelectorAll(".tree")].flatMap((tree) => {
              const room = tree.getBoundingClientRect();
              const boxes = [...tree.querySelectorAll("circle, .guides text")]
                .map((circle) => [circle, circle.getBoundingClientRect()]);
              return [...tree.querySelectorAll("text.beside")].filter((text) => {
                const box = text.getBoundingClientRect();
                const covers = boxes.some(([circle, other]) => circle.parentNode !== text.parentNode
                  && box.right > other.left + 1 && box.left < other.right - 1
                  && box.bottom > other.top + 1 && box.top < other.bottom - 1);
                return box.right > room.right + 1 || box.left < room.left - 1 || covers;
              }).map((text) => text.textContent);
            })"""
        )
        assert cut == []
        assert page.locator(".tree text.beside").count() > 0


def test_clients_that_stand_side_by_side_have_their_numbers(
    browser: Browser, tmp_path: Path
) -> None:
    run = write_synthetic(tmp_path / "run", 20)
    with opened(browser, write_report([run]).as_uri()) as page:
        assert page.locator(".tree .client text.in").count() == 20


def test_clusters_of_many_clients_have_their_names(browser: Browser, tmp_path: Path) -> None:
    """Edits name clusters: who reads of one must find it, also where clients are mere dots."""
    run = write_synthetic(tmp_path / "run", 200)
    with opened(browser, write_report([run]).as_uri(), size=(1400, 900)) as page:
        assert page.locator(".tree .client text.in").count() == 0, "dots"
        assert page.locator(".tree text.beside").count() > 0


def test_on_a_phone_the_theme_button_is_beside_the_title(browser: Browser, report: Path) -> None:
    with opened(browser, report.as_uri(), size=(390, 844)) as page:
        title = page.locator("h1").bounding_box()
        button = page.locator("#theme").bounding_box()
        assert title is not None
        assert button is not None
        assert button["y"] < title["y"] + title["height"]
