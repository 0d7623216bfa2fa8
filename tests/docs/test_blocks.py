"""Every code block of the docs runs; the few that cannot are listed here, with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.loop import Experiment, Own
from sofa_fl.report.live import LiveServer
from tests.docs.blocks import DOCS, KINDS, Block, blocks_of, perform, small

# Pages whose blocks are run elsewhere, or take hours.
ELSEWHERE = {
    **dict.fromkeys(
        (
            "results.md",
            "drift.md",
            "disclosure.md",
            "privacy.md",
            "natural.md",
            "tree.md",
        ),
        "made by `python -m study docs`; its commands take hours",
    ),
    "own.md": "has a test of its own",
    "ray.md": "has a test of its own",
    "deploy.md": "has a test of its own",
}
NOT_RUN = {
    ("index.md", "make setup # .venv"): "installs the package, which a test has already",
    ("scale.md", "sofa-fl run --set engine=stacked"): "needs a GPU",
    ("runs.md", "python -m study table1 --seeds"): "minutes to hours",
    ("rules.md", "sofa-fl sweep --preset paper"): "minutes to hours",
}
PAGES = {page.name: list(blocks_of(page)) for page in sorted(DOCS.glob("*.md"))}
RUN = {name: blocks for name, blocks in PAGES.items() if name not in ELSEWHERE}


@pytest.fixture(autouse=True)
def in_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of its own, small experiments, and a page that is served until the first moment."""
    begin = Experiment.__init__

    def begin_small(self: Experiment, config: Config, own: Own) -> None:
        begin(self, small(config, own), own)

    class Glimpse(LiveServer):
        def __init__(self, run: Path, host: str, port: int) -> None:
            super().__init__(run, host, 0)

        def serve_forever(self, poll_interval: float = 0.5) -> None:
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Experiment, "__init__", begin_small)
    monkeypatch.setattr("sofa_fl.report.live.LiveServer", Glimpse)


@pytest.mark.parametrize("page", [name for name, blocks in RUN.items() if blocks])
def test_the_blocks_of_a_page_run(page: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in RUN[page]:
        if block.reason is None:
            perform(block, names)


def test_what_is_not_run_is_listed() -> None:
    marked = {(b.page, b.first): b.reason for blocks in RUN.values() for b in blocks if b.reason}
    assert marked == NOT_RUN


@pytest.mark.parametrize("page", RUN)
def test_every_block_says_what_it_is(page: str) -> None:
    assert [block.first for block in RUN[page] if block.kind not in KINDS] == []


def test_a_block_that_fails_is_noticed() -> None:
    with pytest.raises(AssertionError, match="unknown key rouds"):
        perform(Block("x.md", "sh", "", "sofa-fl run --set rouds=3", None), {})
    with pytest.raises(AssertionError, match="say why"):
        perform(Block("x.md", "sh", "", "rm -rf runs", None), {})


def test_the_speeds_of_other_systems_are_those_measured() -> None:
    """The table of `systems.md` against `results/peers.json`: the first round is a warm-up."""
    page = (DOCS / "systems.md").read_text(encoding="utf-8")
    results = json.loads((DOCS.parent / "results" / "peers.json").read_text(encoding="utf-8"))
    for contestant in results["contestants"].values():
        rounds = sorted(s for run in contestant["runs"] for s in run["seconds"][1:])
        middle = (rounds[(len(rounds) - 1) // 2] + rounds[len(rounds) // 2]) / 2
        (row,) = [
            line for line in page.splitlines() if line.startswith(f"| {contestant['label']} |")
        ]
        assert row.split("|")[3].strip() == f"{middle:.1f}"


def test_what_own_batches_cost_is_what_was_measured() -> None:
    page = (DOCS / "deploy.md").read_text(encoding="utf-8").replace("\N{MINUS SIGN}", "-")
    file = DOCS.parent / "results" / "own-batches.json"
    for found in json.loads(file.read_text(encoding="utf-8"))["settings"].values():
        pairs = zip(found["own_batches"], found["server_batches"], strict=True)
        differences = [own - other for own, other in pairs]
        assert sum(differences) / len(differences) == pytest.approx(found["difference"], abs=0.02)
        assert f"{found['difference']:.2f} ± {found['half_interval']:.2f}" in page
