"""The notebook of the docs: cells of a script, executed, with what each of them shows.

    python docs_build/notebook.py  # or make notebook

writes `docs/notebook.ipynb` from `notebook_cells.py`. Cells begin with `# %%`, those with text with
`# %% [markdown]`. They run as a notebook runs them: one after another in one namespace, and the
value of a last expression is shown.
"""

from __future__ import annotations

import ast
import contextlib
import html
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SCRIPT = Path(__file__).with_name("notebook_cells.py")
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
Cell = dict[str, Any]


def cells_of(script: str) -> list[Cell]:
    """The cells of a script in notebook format, not yet executed."""
    found = re.split(r"^# %%(.*)\n", script, flags=re.MULTILINE)[1:]
    cells: list[Cell] = []
    for number, (kind, text) in enumerate(zip(found[::2], found[1::2])):
        cell: Cell = {"id": f"cell-{number}", "metadata": {}, "source": text.strip("\n")}
        if "[markdown]" in kind:
            source = re.sub(r"^# ?", "", cell["source"], flags=re.MULTILINE)
            cells.append({**cell, "cell_type": "markdown", "source": source})
        else:
            cells.append({**cell, "cell_type": "code", "execution_count": None, "outputs": []})
    return cells


def execute(cells: list[Cell]) -> list[Cell]:
    """The cells with their outputs; run where they may write."""
    space: dict[str, Any] = {"__name__": "__main__"}
    done, count = [], 0
    for cell in cells:
        if cell["cell_type"] == "code":
            count += 1
            outputs = outputs_of(cell["source"], space, count)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        done.append(cell)
    return done


def outputs_of(source: str, space: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last expression."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        shown = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            shown["text/html"] = value._repr_html_()
        result = {"output_type": "execute_result", "execution_count": count, "metadata": {}}
        outputs.append({**result, "data": shown})
    return outputs


def notebook_text(cells: list[Cell]) -> str:
    """A notebook file, as Jupyter reads it."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def notebook_page() -> str:
    """The notebook as Markdown, with the pictures and tables that it shows."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    whole = "\n\n".join(part for cell in cells for part in _parts(cell))
    return re.sub(r"\A# .*\n", "", whole)  # the page has its title


def _parts(cell: Cell) -> list[str]:
    if cell["cell_type"] == "markdown":
        return [cell["source"]]
    parts = [f"```python\n{cell['source']}\n```"]
    for output in cell["outputs"]:
        shown = output.get("data", {"text/plain": output.get("text", "")})
        text = shown.get("text/html") or f"<pre>{html.escape(shown['text/plain'].rstrip())}</pre>"
        # Markdown takes HTML as it is up to the next empty line.
        parts.append(f'<div class="output">{re.sub(chr(10) + "{2,}", chr(10), text)}</div>')
    return parts


def main() -> None:
    cells, here = cells_of(SCRIPT.read_text(encoding="utf-8")), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            done = execute(cells)
        finally:
            os.chdir(here)
    NOTEBOOK.write_text(notebook_text(done), encoding="utf-8")
    print(NOTEBOOK.relative_to(ROOT))


if __name__ == "__main__":
    main()
