"""The code blocks of the docs: read off the pages, and run as a reader would, only smaller."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from sofa_fl.cli.main import app
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.loop import Own

DOCS = Path(__file__).parent.parent.parent / "docs"
FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>.+?) -->\n)?"
    r"^(?P<indent> *)```(?P<kind>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
BEFORE = re.compile(r"^<!-- before: (.+?) -->$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `reason` says why it is not run, where it is not."""

    page: str
    kind: str
    title: str
    code: str
    reason: str | None


def blocks_of(page: Path) -> Iterator[Block]:
    """In order; commands that a page asks for before any of its blocks are the first."""
    markdown = page.read_text(encoding="utf-8")
    for command in BEFORE.findall(markdown):
        yield Block(page.name, "sh", "", command, None)
    for found in FENCE.finditer(markdown):
        kind, _, rest = found["kind"].strip().partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        yield Block(page.name, kind, title[1] if title else "", found["code"], found["reason"])


def perform(block: Block, names: dict[str, Any]) -> None:
    """Run a block in the folder that this is; Python blocks of a page share their names."""
    match block.kind:
        case "python":
            exec(compile(block.code, block.page, "exec"), names)
        case "sh":
            for line in block.code.replace("\\\n", " ").splitlines():
                command(line)
        case "yaml":
            assert block.title, f"{block.page}: a YAML block needs title=, the file it is"
            Path(block.title).write_text(block.code, encoding="utf-8")
        case kind:
            assert kind == "text", f"{block.page}: nothing runs {kind}: {block.code}"


def command(line: str) -> None:
    """A line of a shell: `sofa-fl ...`, perhaps into a file."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    assert words[0] == "sofa-fl", f"this is not run, so say why: {line}"
    into = None
    if ">" in words:
        at = words.index(">")
        into, words = words[at + 1], words[:at]
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, f"{line}\n{result.output}"
    if into is not None:
        Path(into).write_text(result.stdout, encoding="utf-8")


def small(config: Config, own: Own) -> Config:
    """The same experiment of few samples, with a small network; all that happens still does."""
    scenario, data = config.data.scenario, config.data
    least = 3 if scenario.name == "none" else max(3, scenario.at)
    if own.data is None and data.partition != "natural":  # those keep all their samples
        num_train = max(1200, 12 * data.num_clients)
        data = replace(data, num_train=min(data.num_train or num_train, num_train), num_test=240)
    return replace(
        config,
        rounds=min(config.rounds, least),
        warmup=min(config.warmup, 2),
        engine="sequential" if config.engine == "auto" else config.engine,
        local=replace(config.local, batches=1, batch_size=20),
        model=replace(config.model, name="mlp", hidden=8),
        data=data,
    )
