"""The page of a run that is going on, served on this machine; it asks for rounds as they end.

GET /                 the page with all there is so far
GET /data?since=N     the rounds after the first N, and the summary once there is one
"""

from __future__ import annotations

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from sofa_fl.errors import RunError, SofaError
from sofa_fl.report.frames import Plain
from sofa_fl.report.page import page
from sofa_fl.report.page_data import RunReader

NAMES = {"localhost", "127.0.0.1", "::1"}


class LiveServer(ThreadingHTTPServer):
    """Serves one run folder; `url` says where."""

    daemon_threads = True

    def __init__(self, path: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.reader = RunReader(path)
        self.lock = Lock()  # one reader, many who ask
        try:
            super().__init__((host, port), _Handler)
        except OverflowError:
            raise RunError(f"a port is a number from 0 to 65535, got {port}") from None
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


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        # Another site's page may have its name point here; it must not read a run through that.
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if self.server.is_loopback and host not in NAMES:
            self.answer(HTTPStatus.FORBIDDEN, "text/plain", "this page is for this machine only")
            return
        asked = urlsplit(self.path)
        try:
            if asked.path == "/":
                self.answer(HTTPStatus.OK, "text/html", self.server.whole())
            elif asked.path == "/data":
                since = int(parse_qs(asked.query).get("since", ["0"])[0])
                news = self.server.news(max(0, since))
                self.answer(HTTPStatus.OK, "application/json", json.dumps(news, allow_nan=False))
            else:
                self.answer(HTTPStatus.NOT_FOUND, "text/plain", "there is / and /data")
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
