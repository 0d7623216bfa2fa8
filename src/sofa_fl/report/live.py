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
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, unquote, urlsplit

from sofa_fl.errors import RunError, SofaError
from sofa_fl.report.folder import find_runs, folder_page
from sofa_fl.report.history import Plain
from sofa_fl.report.page import page
from sofa_fl.report.page_data import RunReader, read_run

NAMES = {"localhost", "127.0.0.1", "::1"}
Query = dict[str, list[str]]


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
