"""The page on own problems shows the example as it is, and names only what there is."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

import sofa_fl
from sofa_fl.cli.main import app
from tests.examples.test_examples import EXAMPLES, LEAST, code_lines

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "own.md").read_text(encoding="utf-8")


def test_the_page_shows_the_example_of_twenty_lines() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    text = (EXAMPLES / "own_csv.py").read_text(encoding="utf-8")
    assert text.endswith(block)
    assert code_lines(EXAMPLES / "own_csv.py") <= 20


def test_every_name_and_command_is_there() -> None:
    for name in re.findall(r"sofa_fl\.(?!methods`)(\w+)", PAGE):  # that is a group of entry points
        assert name in sofa_fl.__all__, name
    commands = set(re.findall(r"`?sofa-fl (\w+)", PAGE))
    assert {"init", "sweep", "export", "run", "report"} <= commands
    for command in commands:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command


def test_every_linked_file_is_there_and_every_example_is_linked() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", PAGE)
    assert all((ROOT / "docs" / link).exists() for link in links)
    assert {f"../examples/{name}.py" for name in LEAST} <= set(links)
