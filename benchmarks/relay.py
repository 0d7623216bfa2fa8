"""A relay between a machine and a server that counts the bytes that pass."""

from __future__ import annotations

import contextlib
import socket
import threading

from machines import free_port

CHUNK = 1 << 16


class Relay:
    """Carries connections from a port of its own to another port here.

    Attributes:
        port: Where to connect to.
        up: Bytes that went to the server so far.
        down: Bytes that came from it.
    """

    def __init__(self, server: int) -> None:
        self.server, self.port = server, free_port()
        self.up = self.down = 0
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                node, _ = self._listening.accept()
                link = socket.create_connection(("127.0.0.1", self.server))
                for ends, count in (((node, link), self._sent), ((link, node), self._received)):
                    threading.Thread(target=self._carry, args=(*ends, count), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, count: object) -> None:
        assert callable(count)
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                count(len(data))
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _sent(self, num: int) -> None:
        with self._lock:
            self.up += num

    def _received(self, num: int) -> None:
        with self._lock:
            self.down += num
