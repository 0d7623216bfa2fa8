"""The report: one HTML file with its style, its scripts and its data inside, for use offline.

What a run folder says is data and never becomes markup: it is JSON in which no `<` is left, the
scripts write it as text, and the browser is told to run these scripts and no others.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from sofa_fl.errors import printable
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.report.history import Plain
from sofa_fl.report.page_data import read_run
from sofa_fl.report.words import number

REPORT = "report.html"
SCRIPTS = (
    "dom",
    "scores",
    "colour",
    "model",
    "stages",
    "tree_layout",
    "tree_view",
    "chart",
    "bars",
    "edits_view",
    "clients_view",
    "levels_view",
    "map_view",
    "sharing_view",
    "plain_views",
    "metrics_view",
    "player",
    "live",
    "main",
    "compare",
    "compare_clients",
    "start",
)


def write_report(paths: Sequence[Path], file: Path | None = None) -> Path:
    """Write the page of one run into its folder, or that of several, which needs a `file`."""
    if file is None:
        file = paths[0] / REPORT
    write_text(file, page([read_run(path) for path in paths]))
    return file


def write_run_report(run: Path) -> None:
    """Write the page of a run that has ended into its folder."""
    write_report([run])


def page(runs: Sequence[Plain], *, live: bool = False) -> str:
    """The page of one run, or of several beside each other; `live` ones ask for more."""
    script = scripts()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values = {
        "title": escape(printable(_title(runs))),
        "digest": f"sha256-{digest}",
        "style": asset("page.css"),
        "script": script,
        "data": embedded({"runs": list(runs), "live": live}),
    }
    # In one pass: what was put in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], asset("page.html"))


def embedded(value: Plain) -> str:
    """JSON that can stand in a script element: nothing in it begins a tag or ends a line."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def scripts() -> str:
    """All scripts in one, in a scope of their own."""
    parts = [asset(f"{name}.js") for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def asset(name: str) -> str:
    return (files("sofa_fl.report") / "assets" / name).read_text(encoding="utf-8")


def _title(runs: Sequence[Plain]) -> str:
    if len(runs) > 1:
        return f"{number(len(runs), 'run')} compared"
    return f"{runs[0]['title']} on {runs[0]['data']}: {runs[0]['name']}"
