"""Pages of runs that are going on, served on this machine; they ask for rounds as they end.

A run folder:

GET /                      the page with all there is so far
GET /data?since=N          the rounds after the first N, and the summary once there is one

A folder of runs:

GET /                      all runs in one table
GET /run/NAME/ and below   the same for each run as above
GET /compare?run=NAME&...  some of them side by side
"""

from __future__ import annotations

import json
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, quote, unquote, urlsplit

import yaml

from sofa_fl.errors import RunError, SofaError, printable
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.report.history import Plain, read_round
from sofa_fl.report.page import RunReader, asset, page, read_run
from sofa_fl.report.words import data_title, method_title, score

DEPTH = 3  # folders below the one that is watched, such as runs/compare-mnist/sofa-0
REFRESH = 5  # seconds
COLUMNS = ("", "run", "method", "data", "seed", "round", "mean", "worst", "")
NAMES = {"localhost", "127.0.0.1", "::1"}
Query = dict[str, list[str]]


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


class LiveRun:
    """The page of one run, and what is new in it."""

    def __init__(self, path: Path) -> None:
        self.reader = RunReader(path)
        self.lock = Lock()  # one reader, many who ask

    def news(self, since: int) -> Plain:
        """What a page that knows of `since` rounds has yet to learn; all, if some were redone."""
        with self.lock:
            history = self.reader.read_on()
            first = since if since <= len(history) else 0
            summary = self.reader.folder.summary()
        return {"from": first, "history": history[first:], "summary": summary}

    def whole(self) -> str:
        with self.lock:
            run = {**self.reader.about(), "history": self.reader.read_on()}
        return page([run], live=True)

    def get(self, path: str, query: Query) -> str | Plain | None:
        """The page, its news, or None."""
        if path == "/":
            return self.whole()
        if path == "/data":
            return self.news(max(0, int(query.get("since", ["0"])[0])))
        return None


class LiveFolder:
    """The page of all runs in a folder, and those of each run."""

    def __init__(self, folder: Path) -> None:
        find_runs(folder)  # raises if it is none
        self.folder = folder
        self.runs: dict[str, LiveRun] = {}

    def get(self, path: str, query: Query) -> str | Plain | None:
        if path == "/":
            return folder_page(self.folder)
        known = find_runs(self.folder)
        if path == "/compare":
            chosen = [known[name] for name in query.get("run", []) if name in known]
            return page([read_run(run) for run in chosen]) if chosen else None
        for name in known:
            start = f"/run/{name}"
            if path.startswith(f"{start}/"):
                run = self.runs.setdefault(name, LiveRun(known[name]))
                return run.get(path.removeprefix(start), query)
        return None


class LiveServer(ThreadingHTTPServer):
    """Serves a run folder or a folder of runs; `url` says where."""

    daemon_threads = True

    def __init__(self, path: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        is_run = (path / "config.yaml").is_file() or not path.is_dir()
        self.site: LiveRun | LiveFolder = LiveRun(path) if is_run else LiveFolder(path)
        try:
            super().__init__((host, port), _Handler)
        except OverflowError:
            raise RunError(f"a port must be a number from 0 to 65535, got {port}") from None
        except OSError as error:
            raise RunError(f"cannot serve at {host}:{port}: {error.strerror}") from None

    @property
    def url(self) -> str:
        return f"http://{self.server_name_shown}:{self.server_port}/"

    @property
    def server_name_shown(self) -> str:
        host = str(self.server_address[0])
        return "localhost" if host in ("0.0.0.0", "127.0.0.1") else host

    @property
    def is_loopback(self) -> bool:
        return ip_address(str(self.server_address[0])).is_loopback


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        # Another site's page may have its name point here; it must not read a run through that.
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if self.server.is_loopback and host not in NAMES:
            self.answer(
                HTTPStatus.FORBIDDEN, "text/plain", "this page is served only to this machine"
            )
            return
        asked = urlsplit(self.path)
        try:
            found = self.server.site.get(unquote(asked.path), parse_qs(asked.query))
            if found is None:
                self.answer(HTTPStatus.NOT_FOUND, "text/plain", "there is no such page; start at /")
            elif isinstance(found, str):
                self.answer(HTTPStatus.OK, "text/html", found)
            else:
                self.answer(HTTPStatus.OK, "application/json", json.dumps(found, allow_nan=False))
        except ValueError:
            self.answer(HTTPStatus.BAD_REQUEST, "text/plain", "since must be a whole number")
        except SofaError as error:
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", str(error))

    def answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a page asks every second."""
