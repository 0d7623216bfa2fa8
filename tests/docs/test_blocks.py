"""Every code block of the docs runs; above the few that cannot, the page has the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.loop import Experiment, Own
from sofa_fl.report.live import LiveServer
from tests.docs.blocks import DOCS, Block, blocks_of, perform, small

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


def test_a_block_that_fails_is_noticed() -> None:
    with pytest.raises(AssertionError, match="unknown key rouds"):
        perform(Block("x.md", "sh", "", "sofa-fl run --set rouds=3", None), {})
    with pytest.raises(AssertionError, match="say why"):
        perform(Block("x.md", "sh", "", "rm -rf runs", None), {})
    with pytest.raises(AssertionError, match="nothing runs bash"):
        perform(Block("x.md", "bash", "", "sofa-fl demo", None), {})
