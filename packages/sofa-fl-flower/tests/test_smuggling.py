"""Requests that say two things at once: nginx and the SuperLink must not read them differently.

What nginx hands on is recorded by a server in place of the SuperLink, which reads nothing into it.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from machines import Machine, free_port, wait_until

from nginx import require_nginx
from sofa_fl_flower.flower.keys import main as make_keys
from test_proxy import is_open

HIDDEN = b"POST /v1/control/start-run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
OPEN = b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: localhost\r\n"


@dataclass
class Recorder:
    """In place of the SuperLink: answers every connection once, and keeps what came."""

    front: int
    link: int
    certificate: Path
    got: list[bytes] = field(default_factory=list)

    def listen(self, context: ssl.SSLContext) -> None:
        with socket.create_server(("127.0.0.1", self.link)) as server:
            while True:
                plain, _ = server.accept()
                with plain, context.wrap_socket(plain, server_side=True) as connection:
                    connection.settimeout(0.5)
                    parts: list[bytes] = []
                    try:
                        while part := connection.recv(65536):
                            parts.append(part)
                    except OSError:
                        pass
                    self.got.append(b"".join(parts))
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    )

    def call(self, request: bytes) -> bytes:
        """What nginx answers to these bytes."""
        context = ssl.create_default_context(cafile=self.certificate)
        with (
            socket.create_connection(("127.0.0.1", self.front), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(request)
            connection.settimeout(2)
            answer = b""
            try:
                while part := connection.recv(65536):
                    answer += part
            except OSError:
                pass
            return answer


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    require_nginx()
    machine = Machine(tmp_path_factory.mktemp("front"))
    found = Recorder(free_port(), free_port(), machine.folder / "keys" / "ca.crt")
    (machine.folder / ".flwr" / "nginx").mkdir(parents=True)
    where = ["--server", f"localhost:{found.front}", "--link", f"127.0.0.1:{found.link}"]
    make_keys([*where, "--app", str(machine.folder)])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    keys = machine.folder / "keys"
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    threading.Thread(target=found.listen, args=(context,), daemon=True).start()
    try:
        machine.start('nginx -c "$PWD/nginx.conf"', "nginx.log")
        wait_until(lambda: is_open(found.front), "nginx")
        yield found
    finally:
        machine.close()


def test_what_is_allowed_is_handed_on(recorder: Recorder) -> None:
    recorder.got.clear()
    assert b" 200 " in recorder.call(OPEN + b"Content-Length: 3\r\n\r\nabc")
    (got,) = recorder.got
    assert got.startswith(b"POST /v1/fleet/get-run HTTP/1.1\r\n")
    assert got.endswith(b"abc")


@pytest.mark.parametrize(
    "request_",
    [
        OPEN + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        OPEN + b"Transfer-Encoding: chunked\r\nContent-Length: 999\r\n\r\n0\r\n\r\n" + HIDDEN,
        OPEN + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        OPEN + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        OPEN + b"Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        OPEN + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
        OPEN + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
        OPEN + b"Content-Length: +0\r\n\r\n" + HIDDEN,
        OPEN + b"Content-Length: 0\r\n\r\n" + HIDDEN,
        OPEN + b"X: y\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + HIDDEN,
        b"POST https://localhost/v1/control/start-run HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 0\r\n\r\n",
        OPEN + b"X-Original-URL: /v1/control/start-run\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
    ],
)  # fmt: skip
def test_no_second_request_hides_in_a_first(request_: bytes, recorder: Recorder) -> None:
    """Whatever is handed on, the SuperLink reads no request line but that of an open call."""
    recorder.got.clear()
    recorder.call(request_)
    for got in recorder.got:
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/fleet/get-run HTTP/1.1\r\n")
        lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length")]
        is_chunked = b"transfer-encoding: chunked" in head.lower()
        assert len(lengths) + is_chunked <= 1, "one way to tell how long it is"
        if not is_chunked:
            length = int(lengths[0].partition(b":")[2]) if lengths else 0
            assert len(body) == length, "nothing follows the request"
        assert HIDDEN not in body
