"""The report in a real browser, as a person uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import opened
from playwright.sync_api import Browser, Page
from synthetic_run import events, write_synthetic

from sofa_fl.report.page import write_report
from tests.report.browser import browser_for_tests
from tests.report.test_live import serving
from tests.report.test_page import HOSTILE

pytestmark = pytest.mark.browser

SIZES = [20, 200, 1000]
MINUS = "\N{MINUS SIGN}"
# Keeps what the page shows at every step: the words, the edit under way, the nodes it touched.
NOTE_STAGES = """() => {
  window.seen = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  new MutationObserver(() => window.seen.push([
    document.querySelector(".edits-now").textContent,
    all(".edits li.doing .kind").map((item) => item.textContent).join(),
    all(".tree .changed").map((item) => Number(item.dataset.node)).sort(),
    all(".tree .cluster").map((item) => Number(item.dataset.node)).sort(),
  ])).observe(document.querySelector(".edits-now"), { childList: true });
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_for_tests() as found:
        yield found


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("reports")
    return {size: write_report([write_synthetic(folder / f"run {size}", size)]) for size in SIZES}


def slide(page: Page, share: float) -> None:
    """Drag the slider with the mouse."""
    box = page.locator("#slider").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    now = int(page.locator("#slider").input_value()) / int(
        page.locator("#slider").get_attribute("max") or 1
    )
    inside = box["width"] - 16  # the knob never hangs over the ends
    page.mouse.move(box["x"] + 8 + now * inside, y)
    page.mouse.down()
    page.mouse.move(box["x"] + 8 + share * inside, y, steps=6)
    page.mouse.up()


def picture(page: Page) -> str | None:
    return page.locator(".tree .edges path").get_attribute("d")


@pytest.mark.parametrize("size", SIZES)
def test_slide_hover_and_switch_the_theme(
    browser: Browser, reports: dict[int, Path], size: int
) -> None:
    made = events(size, 20)
    with opened(browser, reports[size].as_uri()) as page:
        assert page.locator(".tree .client").count() == size
        assert page.locator("#round").inner_text() == "Round 20 of 20"
        last = picture(page)

        slide(page, 0.0)
        assert page.locator("#round").inner_text() == "Warm-up"
        assert picture(page) != last
        assert page.locator(".edits li.now").count() == 0
        assert "DMAC" in page.locator(".edits-now").inner_text()

        round = next(e["round"] for e in made if e["round"] > 3 and e["edits"])
        slide(page, round / 20)
        assert page.locator("#round").inner_text() == f"Round {round} of 20"
        shown = page.locator(".edits li.now ul > li").all_inner_texts()
        assert len(shown) == len(made[round]["edits"])
        for words, edit in zip(shown, made[round]["edits"]):
            assert words.startswith(edit["edit"])
        assert page.locator(".edits li.now").get_attribute("data-round") == str(round)
        assert page.locator(".tree .changed").count() > 0

        worst = min(range(size), key=lambda client: made[round]["accuracies"][client])
        page.locator(f'.tree [data-node="{worst}"]').hover()
        tip = page.locator("#tip").inner_text()
        assert f"Client {worst}" in tip
        assert f"{made[round]['accuracies'][worst]:.2%}"[:4] in tip
        assert f"{made[round]['samples'][worst]:,}" in tip

        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator("#theme").click()
        assert page.locator("html").get_attribute("data-theme") == "dark"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != back


@pytest.mark.parametrize("size", SIZES)
def test_it_opens_at_once(browser: Browser, reports: dict[int, Path], size: int) -> None:
    """The best of three: what else this machine does is not the page's fault."""
    took = []
    for _ in range(3):
        with opened(browser, reports[size].as_uri()) as page:
            took.append(page.evaluate("performance.now()"))
        if min(took) < 2000:
            break
    assert min(took) < 2000


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("window", [(1280, 800), (390, 844)])
def test_nothing_hangs_over_the_side(
    browser: Browser, reports: dict[int, Path], size: int, window: tuple[int, int]
) -> None:
    with opened(browser, reports[size].as_uri(), size=window, scheme="dark") as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= window[0]
        assert page.locator("html").get_attribute("data-theme") == "dark"
        box = page.locator("#slider").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= window[1]


def test_play_and_the_keys(browser: Browser, reports: dict[int, Path]) -> None:
    with opened(browser, reports[20].as_uri()) as page:
        page.keyboard.press("Home")
        assert page.locator("#slider").input_value() == "0"
        page.keyboard.press("ArrowRight")
        assert page.locator("#slider").input_value() == "1"
        page.locator("#play").click()
        page.wait_for_function("() => Number(document.getElementById('slider').value) >= 3")
        page.locator("#play").click()
        assert page.locator("#play").get_attribute("aria-label") == "Play"


def test_played_edits_come_one_by_one(browser: Browser, tmp_path: Path) -> None:
    """Five edits in a round: four trees on the way to the last."""
    made = events(12, 1)
    parent: dict[str, int | None] = {str(c): 20 + c // 4 for c in range(12)}
    after: dict[str, int | None] = {str(c): 24 if c < 8 else 22 for c in range(12)}
    after |= {"0": 22, "24": 23, "22": 23, "23": None}
    made[0]["tree"] = parent | {"20": 23, "21": 23, "22": 23, "23": None}
    made[1]["tree"] = after
    made[1]["edits"] = [
        {"edit": "graft", "node": 0, "onto": 22},
        {"edit": "split", "node": 20, "into": [25, 26], "groups": [[1], [2, 3]]},
        {"edit": "prune", "node": 25},
        {"edit": "graft", "node": 1, "onto": 26},
        {"edit": "merge", "nodes": [21, 26], "into": 24},
    ]
    for record in made:
        record |= {"path_loss": {}, "shared": {}}
    folder = write_synthetic(tmp_path / "run", 12, 1)
    (folder / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in made))
    with opened(browser, write_report([folder]).as_uri()) as page:
        page.evaluate(NOTE_STAGES)
        page.locator("#play").click()
        page.wait_for_function("() => window.seen.some(([words]) => words.startsWith('In this'))")
        seen = page.evaluate("window.seen.filter(([words]) => !words.includes('DMAC'))")
        assert seen[:5] == [
            ["Round 1: edit 1 of 5.", "graft", [0], [20, 21, 22, 23]],
            ["Round 1: edit 2 of 5.", "split", [25, 26], [21, 22, 23, 25, 26]],
            ["Round 1: edit 3 of 5.", "prune", [], [21, 22, 23, 26]],
            ["Round 1: edit 4 of 5.", "graft", [1], [21, 22, 23, 26]],
            ["In this round: 2 grafts, 1 split, 1 prune, 1 merge.", "", [0, 1, 24], [22, 23, 24]],
        ]
        assert page.locator("#round").inner_text() == "Round 1 of 1"
        assert page.locator('.tree [data-node="24"]').count() == 1
        assert page.locator('.tree [data-node="26"]').count() == 0


def test_follow_a_client_through_all_views(browser: Browser, reports: dict[int, Path]) -> None:
    with opened(browser, reports[200].as_uri()) as page:
        page.locator('.tree [data-node="7"]').click()
        assert page.locator(".tree .picked").get_attribute("data-node") == "7"
        assert page.locator(".map circle.picked").get_attribute("data-node") == "7"
        assert "client 7" in page.locator("#clients-card .name").all_text_contents()
        page.locator(".find input").fill("9")
        page.keyboard.press("Enter")
        assert page.locator(".tree .picked").get_attribute("data-node") == "9"


def test_the_other_cards(browser: Browser, reports: dict[int, Path]) -> None:
    made = events(20, 20)[-1]
    with opened(browser, reports[20].as_uri()) as page:
        mean = page.locator('.tile[data-key="mean"] strong').inner_text()
        assert mean == f"{made['client']['mean']:.2%}"
        assert page.locator("#levels-card .rank").count() == len(set("012"))
        assert page.locator("#map-card .dots circle").count() == 20
        assert page.locator("#cost-card .bar").count() == 3 * 21
        page.locator("#sharing-card canvas").hover(position={"x": 30, "y": 3})
        assert "of" in page.locator("#tip").inner_text()
        page.locator("summary").click()
        assert page.locator(".config th").all_inner_texts()[:2] == ["method", "seed"]


def test_hostile_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "|")
    own = {HOSTILE: {"mean": 1.0, "min": 0.0, "max": 2.0, "values": []}}
    aside = {"set_aside": {"1": HOSTILE}, "absent": [2], "metric": "constructor", "metrics": own}
    settings = {"data": {"name": HOSTILE}, HOSTILE: HOSTILE, "method": HOSTILE}
    folder = write_synthetic(tmp_path / name, 6, 3, config=settings, extra=aside)
    left = {"0": {"models": 3, "epsilon": {HOSTILE: 1.0}}, "1": {"masked_models": HOSTILE}}
    (folder / "left.json").write_text(json.dumps(left))
    for runs in ([folder], [folder, folder]):
        file = write_report(runs, tmp_path / "page.html")
        with opened(browser, file.as_uri()) as page:
            page.on("dialog", lambda dialog: pytest.fail(dialog.message))
            assert page.locator("img").count() == 0
            assert page.locator("body script").count() == 1
            for summary in page.locator("summary").all():
                summary.click()
            shown = page.locator("body").inner_text()
            assert "<script>alert(1)</script>" in shown
            assert "<img src=x onerror=alert(2)>" in shown
            assert "colour: score" in shown


def test_a_deployment_says_what_left_each_site(browser: Browser, tmp_path: Path) -> None:
    folder = write_synthetic(tmp_path / "run", 6, 3)
    file = write_report([folder], tmp_path / "page.html")
    with opened(browser, file.as_uri()) as page:
        assert page.locator("#left-card").count() == 0
    left = {"0": {"models": 3, "bytes": 5000}, "1": {"masked_models": 2, "epsilon": {"train": 1.5}}}
    (folder / "left.json").write_text(json.dumps(left))
    file = write_report([folder], tmp_path / "page.html")
    with opened(browser, file.as_uri()) as page:
        rows = page.locator("#left-card tr").all_inner_texts()
    assert rows[0].split("\t")[:3] == ["site", "models", "masked models"]
    assert [row.split("\t")[1:3] for row in rows[1:]] == [["3", "0"], ["0", "2"]]
    assert rows[1].endswith("no noise")
    assert rows[2].endswith("train 1.50")


def test_clients_that_come_and_go(browser: Browser, tmp_path: Path) -> None:
    made = events(12, 4)
    for record in made[:2]:  # client 3 joins in round 2
        record["clients"] = [c for c in range(12) if c != 3]
        record["tree"].pop("3")
        for key in ("accuracies", "samples", "disclosed"):
            record[key].pop(3)
    made[2]["edits"].append({"edit": "join", "node": 3, "onto": made[2]["tree"]["3"]})
    made[3] |= {"absent": [5], "set_aside": {"6": "model not finite"}}
    for record in made:
        record["groups"] = {"ari": [0.5, 1.0], "purity": [0.9, 1.0]}
    folder = write_synthetic(tmp_path / "run", 12, 4)
    (folder / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in made))
    with opened(browser, write_report([folder]).as_uri()) as page:
        page.keyboard.press("Home")
        assert page.locator(".tree .client").count() == 11
        assert page.locator('.tree [data-node="3"]').count() == 0
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert "changed" in (page.locator('.tree [data-node="3"]').get_attribute("class") or "")
        assert "join" in page.locator(".edits li.now").inner_text()
        page.keyboard.press("ArrowRight")
        assert "absent" in (page.locator('.tree [data-node="5"]').get_attribute("class") or "")
        assert "model not finite" in page.locator("#aside-card").inner_text()
        assert page.locator("#groups-card .line").count() == 4


def test_runs_compared(browser: Browser, tmp_path: Path) -> None:
    runs = [write_synthetic(tmp_path / f"run {seed}", 30, 8, seed=seed) for seed in range(3)]
    file = write_report(runs, tmp_path / "all.html")
    for window in ((1280, 800), (390, 844)):
        with opened(browser, file.as_uri(), size=window) as page:
            assert page.locator(".runs tbody tr").count() == 3
            assert page.locator(".trees svg").count() == 3
            mean = page.locator(".runs tbody tr td:first-of-type").all_inner_texts()
            assert mean == [f"{events(30, 8, seed)[-1]['client']['mean']:.2%}" for seed in range(3)]
            slide(page, 0.5)
            assert page.locator("#round").inner_text() == "Round 4 of 8"
            assert page.locator(".runs tbody tr td:first-of-type").all_inner_texts() != mean
            assert "seed" in page.locator("#config-card").inner_text()
            assert page.evaluate("document.documentElement.scrollWidth") <= window[0]


def write_regression(folder: Path, seed: int = 0) -> Path:
    """A run whose R² is far below zero at first, with two metrics of its own."""
    write_synthetic(folder, 12, 4, seed=seed)
    lines = []
    for record in events(12, 4, seed):
        scores = [1 - 30 * (1 - accuracy) for accuracy in record["accuracies"]]
        found = {"mean": sum(scores) / 12, "min": min(scores), "bottom10": min(scores)}
        own = {"mae": 5.0 - record["round"], "loss_1": None}
        metrics = {
            name: {"mean": x, "min": x and x - 1, "max": x and x * 1e6, "values": []}
            for name, x in own.items()
        }
        told = {"metric": "r2", "accuracies": scores, "metrics": metrics}
        lines.append(json.dumps(record | told | {"client": record["client"] | found}) + "\n")
    (folder / "events.jsonl").write_text("".join(lines))
    return folder


def test_a_regression_is_called_by_its_name(browser: Browser, tmp_path: Path) -> None:
    folder = write_regression(tmp_path / "run")
    first = json.loads((folder / "events.jsonl").read_text().splitlines()[0])
    with opened(browser, write_report([folder]).as_uri()) as page:
        page.keyboard.press("Home")
        assert first["client"]["mean"] < -1
        tile = page.locator('.tile[data-key="mean"] strong').inner_text()
        assert tile == f"{first['client']['mean']:.3f}".replace("-", MINUS)
        assert page.locator('.tile[data-key="jain"] strong').inner_text() == "\N{EN DASH}"
        page.locator('.tree [data-node="0"]').hover()
        tip = page.locator("#tip").inner_text().split("\n")
        assert tip[1:3] == ["R²", f"{first['accuracies'][0]:.3f}".replace("-", MINUS)]
        assert "colour: R²" in page.locator(".legend").inner_text()
        ticks = page.locator("#clients-card .tick").all_text_contents()
        assert f"{MINUS}10" in ticks
        colours = page.locator(".tree .client circle:first-child").evaluate_all(
            "all => new Set(all.map((dot) => dot.style.fill)).size"
        )
        assert colours > 6  # told apart although all of them are below zero
        assert "ccuracy" not in page.locator("#app").inner_html()
        for words in page.locator("#tree-card, #clients-card, #fairness-card").all_inner_texts():
            assert "%" not in words


def test_own_metrics(browser: Browser, tmp_path: Path) -> None:
    folder = write_regression(tmp_path / "run")
    with opened(browser, write_report([folder]).as_uri()) as page:
        card = page.locator("#metrics-card")
        assert card.locator("h3").all_inner_texts() == ["mae", "loss_1"]
        chart = card.locator(".chart").first
        assert chart.locator(".line").count() == 3
        assert chart.locator(".band").get_attribute("d")
        assert "4M" in chart.locator(".tick").all_text_contents()
        chart.hover(position={"x": 60, "y": 60})
        assert page.locator("#tip").inner_text().split("\n")[1:] == [
            "max", "5M", "mean", "5", "min", "4"
        ]  # fmt: skip
        assert card.locator(".chart").last.locator(".line").first.get_attribute("d") == ""
    plain = write_synthetic(tmp_path / "plain", 12, 4)
    with opened(browser, write_report([plain]).as_uri()) as page:
        assert page.locator("#metrics-card").count() == 0
        assert "colour: accuracy" in page.locator(".legend").inner_text()


def test_regressions_compared(browser: Browser, tmp_path: Path) -> None:
    runs = [write_regression(tmp_path / f"run {seed}", seed) for seed in range(2)]
    with opened(browser, write_report(runs, tmp_path / "all.html").as_uri()) as page:
        assert "ccuracy" not in page.locator("#app").inner_html()
        assert "R² of the clients" in page.locator("#table-card").inner_text()
        assert page.locator("#metric-mae .line").count() == 2
    runs[0] = write_synthetic(tmp_path / "classes", 12, 4)
    with opened(browser, write_report(runs, tmp_path / "all.html").as_uri()) as page:
        assert "Score of the clients" in page.locator("#table-card").inner_text()


def test_a_live_page_goes_on_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    made = events(20, 6)
    folder = write_synthetic(tmp_path / "run", 20, 6, recorded=1)
    with serving(folder) as server, opened(browser, server.url) as page:
        page.evaluate("window.notReloaded = true")
        assert page.locator("#round").inner_text() == "Round 1 of 6"
        assert "live" in page.locator("#state").inner_text()
        for record in made[2:4]:
            with (folder / "events.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\n")
            words = f"Round {record['round']} of 6"
            page.wait_for_function(
                "words => document.getElementById('round').textContent === words", arg=words
            )
        slide(page, 0.0)  # who looks back is left there
        with (folder / "events.jsonl").open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in made[4:])
        (folder / "summary.json").write_text('{"rounds": 6}')
        page.wait_for_function("() => document.getElementById('slider').max === '6'")
        assert page.locator("#round").inner_text() == "Warm-up"
        page.wait_for_function("() => document.getElementById('state').textContent === 'ended'")
        assert page.evaluate("window.notReloaded") is True


def test_a_live_page_waits_for_the_warm_up(browser: Browser, tmp_path: Path) -> None:
    folder = write_synthetic(tmp_path / "run", 20, 6, recorded=-1)
    with serving(folder) as server, opened(browser, server.url) as page:
        assert "warm-up is in progress" in page.locator("body").inner_text()
        (folder / "events.jsonl").write_text(json.dumps(events(20, 6)[0]) + "\n")
        page.wait_for_selector(".tree .client")
        assert page.locator(".tree .client").count() == 20
