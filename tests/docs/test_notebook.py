"""The notebook of the docs is that of its script, was executed, and its code still runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from notebook import NOTEBOOK, SCRIPT, cells_of, execute, notebook_page, notebook_text

SMALLER = {"rounds=6": "rounds=1", "seeds=[0, 1, 2]": "seeds=[0, 1]", "6000": "600"}


def test_the_notebook_is_the_script_executed() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    again = "run 'make notebook' and commit what it writes"
    for cell, written in zip(cells_of(SCRIPT.read_text(encoding="utf-8")), cells, strict=True):
        assert cell["source"] == written["source"], again
    counts = [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code")


def test_the_page_shows_text_pictures_and_tables() -> None:
    page = notebook_page()
    assert page.count("```python\n") == page.count('<div class="output">') == 5
    assert "<svg" in page
    assert "<th>against sofa</th>" in page
    assert "<pre>round 0: mean " in page
    for shown in page.split('<div class="output">')[1:]:
        assert "\n\n" not in shown.split("</div>\n\n")[0], "an empty line ends HTML in Markdown"


def test_its_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = SCRIPT.read_text(encoding="utf-8")
    for words, fewer in SMALLER.items():
        assert words in script
        script = script.replace(words, fewer)
    monkeypatch.chdir(tmp_path)
    done = execute(cells_of(script))
    assert json.loads(notebook_text(done))["cells"] == done
    result = next(cell for cell in done if cell["source"].endswith("\nresult"))
    (output,) = result["outputs"]
    assert output["data"]["text/html"].startswith("<div><svg")
    assert "12 clients, 1 round" in output["data"]["text/plain"]


def test_a_cell_that_fails_stops_it() -> None:
    with pytest.raises(ZeroDivisionError):
        execute(cells_of("# %%\n1 / 0\n"))
