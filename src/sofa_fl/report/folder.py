"""All runs of a folder on one page, with a page for each and one for any chosen side by side."""

from __future__ import annotations

from html import escape
from pathlib import Path
from urllib.parse import quote

import yaml

from sofa_fl.errors import RunError, SofaError, printable
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.report.history import read_round
from sofa_fl.report.page import asset
from sofa_fl.report.words import data_title, method_title, score

DEPTH = 3  # folders below the one that is watched, such as runs/compare-mnist/sofa-0
REFRESH = 5  # seconds
COLUMNS = ("", "run", "method", "data", "seed", "round", "mean", "worst", "")


def find_runs(folder: Path) -> dict[str, Path]:
    """The run folders below a folder, by their path in it, the newest first."""
    if not folder.is_dir():
        raise RunError(f"{folder} must be a run folder or a folder of runs, but is not a folder")
    found: list[Path] = []
    for depth in range(1, DEPTH + 1):
        found += [file.parent for file in folder.glob("/".join(["*"] * depth + ["config.yaml"]))]
    found.sort(key=lambda path: -_changed(path))
    return {path.relative_to(folder).as_posix(): path for path in found}


def _changed(run: Path) -> float:
    files = [run / name for name in ("summary.json", "events.jsonl", "config.yaml")]
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def folder_page(folder: Path) -> str:
    """A table of all runs, that reloads itself; those that are ticked can be compared."""
    rows = "".join(_row(name, path) for name, path in find_runs(folder).items())
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    title = escape(printable(f"Runs in {folder}"))
    table = (
        f'<div class="scroll"><table class="runs"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        if rows
        else '<p class="empty">No run is here yet.</p>'
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"
    return (
        '<!doctype html><html lang="en" data-ready="true"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta http-equiv="refresh" content="{REFRESH}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{asset('page.css')}</style></head>"
        f'<body><div id="app"><header class="top"><h1>{title}</h1></header>'
        f'<form class="card" action="/compare">{table}'
        '<p><button type="submit">Compare those that are ticked</button></p></form>'
        "</div></body></html>"
    )


def _row(name: str, path: Path) -> str:
    """A run that has no round yet, or is damaged, has what is known of it."""
    link = f'<a href="/run/{quote(name)}/">{escape(printable(name))}</a>'
    shown = escape(name)
    tick = f'<input type="checkbox" name="run" value="{shown}" aria-label="compare {shown}">'
    try:
        cells = _facts(path)
    except (SofaError, OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        cells = ["", "", "", "", "", "", str(error)]
    facts = "".join(f"<td>{escape(printable(cell))}</td>" for cell in cells)
    return f'<tr><td>{tick}</td><th scope="row">{link}</th>{facts}</tr>'


def _facts(path: Path) -> list[str]:
    config = RunFolder(path).config()
    about = [method_title(config), data_title(config), str(config["seed"])]
    if not (path / "events.jsonl").exists():
        return [*about, "", "", "", "warm-up"]
    record = read_round(path)
    state = "ended" if (path / "summary.json").exists() else "not ended"
    scores = [score(value, record.metric) for value in (record.mean, record.worst)]
    return [*about, f"{record.round} of {record.rounds}", *scores, state]
