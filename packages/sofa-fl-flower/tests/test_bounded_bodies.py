"""Answers of a server that have no end or hardly move, read by Flower's own client."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient

from sofa_fl_flower.flower import bounded_bodies


class Handler(BaseHTTPRequestHandler):
    """Answers with `first`, and then with `more` for as long as anybody listens."""

    first, more, pause, status = b"", b"", 0.0, 200
    heard: str | None = None

    def do_POST(self) -> None:
        Handler.heard = self.headers.get("flwr-component-name")
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.status)
        self.end_headers()
        try:
            self.wfile.write(self.first)
            while self.more:
                self.wfile.write(self.more)
                time.sleep(self.pause)
        except OSError:
            pass

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetHttpClient]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(FleetHttpClient, "_send", bounded_bodies.send_bounded)
    for name in ("first", "more", "pause", "status"):
        monkeypatch.setattr(Handler, name, getattr(Handler, name))
    address = f"127.0.0.1:{server.server_port}"
    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperNode")]
    with FleetHttpClient.from_server_address(address, True, None, interceptors) as found:
        yield found
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_answer_is_read_as_flower_does(client: FleetHttpClient) -> None:
    wanted = PullMessagesResponse()
    wanted.message_object_trees.add(object_id="x" * 1000)
    Handler.first = wanted.SerializeToString()
    assert client.PullMessages(PullMessagesRequest()) == wanted
    assert Handler.heard == "SuperNode", "what Flower adds to a request is there"


def test_an_error_stays_an_error(client: FleetHttpClient) -> None:
    Handler.status = 500
    with pytest.raises(httpx.HTTPStatusError):
        client.PullMessages(PullMessagesRequest())


def test_an_endless_answer_does_not_fill_the_memory(
    client: FleetHttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_bodies, "MAX_BODY", 10_000_000)
    Handler.more = bytes(1_000_000)
    with pytest.raises(ValueError, match="more than 10,000,000 bytes"):
        client.PullMessages(PullMessagesRequest())


def test_an_answer_that_hardly_moves_is_given_up(
    client: FleetHttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower would wait for as long as a byte comes now and then."""
    monkeypatch.setattr(bounded_bodies, "PATIENCE", 0.3)
    Handler.more, Handler.pause = b"x", 0.05
    with pytest.raises(httpx.ReadTimeout, match="too slow"):
        client.PullMessages(PullMessagesRequest())
