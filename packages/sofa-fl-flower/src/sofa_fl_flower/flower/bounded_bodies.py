"""Answers of a server that is hostile or ill: bodies without end, or that hardly move."""

from __future__ import annotations

import time
from typing import Any

import httpx
from flwr.supercore.protobuf.client import ProtobufClient

MAX_BODY = 128_000_000  # bytes; a part of a message has at most 64 MB
PATIENCE = 60.0  # seconds for any answer
SLOWEST = 10_000  # bytes per second, after that


def send_bounded(client: Any, context: Any, *, stream: bool = False) -> httpx.Response:
    """Send a request as Flower's `ProtobufClient._send` does, and read no more than is sensible.

    Flower reads whatever comes, for as long as a byte comes every 30 s.
    """
    if stream:
        return ProtobufClient._send(client, context, stream=True)

    def send(current: Any) -> httpx.Response:
        return read_bounded(client._client.send(current.request, stream=True))

    call: Any = send
    for interceptor in reversed(client._interceptors):
        call = _around(interceptor, call)
    found: httpx.Response = call(context)
    return found


def _around(interceptor: Any, inner: Any) -> Any:
    return lambda context: interceptor.intercept(context, inner)


def read_bounded(response: httpx.Response) -> httpx.Response:
    """Read the body of an answer; raise an error that Flower tries again after, if it is slow."""
    content, began = bytearray(), time.monotonic()
    try:
        for some in response.iter_bytes():
            content += some
            if len(content) > MAX_BODY:
                raise ValueError(f"the server's answer has more than {MAX_BODY:,} bytes")
            if time.monotonic() - began > PATIENCE + len(content) / SLOWEST:
                raise httpx.ReadTimeout("the server's answer is too slow", request=response.request)
    finally:
        response.close()
    headers = [
        (name, value)
        for name, value in response.headers.multi_items()
        if name not in ("content-encoding", "content-length", "transfer-encoding")
    ]
    return httpx.Response(
        response.status_code, headers=headers, content=bytes(content), request=response.request
    )
