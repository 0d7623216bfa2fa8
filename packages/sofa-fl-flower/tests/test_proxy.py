"""The server's port, as somebody sees it who has the certificate and nothing else."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flwr.supercore.routers.runtime.router import router as runtime
from flwr.superlink.routers.control.router import router as control
from flwr.superlink.routers.fleet.router import router as fleet
from machines import Machine, free_port, wait_until

from nginx import require_nginx
from sofa_fl_flower.flower.proxy import FLEET

HOST = socket.gethostname()  # a name, not an address: the certificate must cover it
ROUTES: list[Any] = [*control.routes, *fleet.routes, *runtime.routes]
PATHS: list[str] = [route.path for route in ROUTES]
HANDED_ON = {f"/v1/fleet/{name}" for name in FLEET}


@dataclass(frozen=True)
class Front:
    """A SuperLink, and nginx in front of it."""

    certificate: Path
    port: int
    link: int

    def call(self, method: str, path: str, port: int = 0, body: bytes = b"") -> int:
        """The status of an answer."""
        context = ssl.create_default_context(cafile=self.certificate)
        where = port or self.port
        connection = http.client.HTTPSConnection(HOST, where, context=context, timeout=20)
        try:
            connection.request(method, path, body, {"Content-Type": "application/protobuf"})
            return connection.getresponse().status
        finally:
            connection.close()


def is_open(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    require_nginx()
    machine = Machine(tmp_path_factory.mktemp("front"))
    port, link = free_port(), free_port()
    ready = "cd clinics\n. ./env.sh\n"
    try:
        machine.run("sofa-fl deploy new clinics")
        machine.run(f"{ready}python keys.py --server {HOST}:{port} --link 127.0.0.1:{link}")
        machine.start(f"{ready}exec sofa-fl deploy link --port {link}", "superlink.log")
        machine.start('cd clinics\nexec nginx -c "$PWD/nginx.conf"', "nginx.log")
        wait_until(lambda: is_open(port), "nginx")
        wait_until(lambda: "Uvicorn running" in machine.log("superlink.log"), "the SuperLink")
        yield Front(machine.folder / "clinics" / "keys" / "ca.crt", port, link)
    finally:
        machine.close()


def test_flower_serves_what_the_configuration_is_about() -> None:
    assert set(PATHS) > HANDED_ON
    assert {"/v1/runtime/acquire-task", "/v1/control/start-run"} < set(PATHS)
    assert len(PATHS) > 40


@pytest.mark.parametrize("path", [p for p in PATHS if p not in HANDED_ON])
def test_nobody_else_gets_through(path: str, front: Front) -> None:
    assert front.call("POST", path) == 403
    assert front.call("GET", path) == 403


@pytest.mark.parametrize("path", sorted(HANDED_ON))
def test_a_machine_without_a_key_gets_no_further_than_the_superlink(
    path: str, front: Front
) -> None:
    assert front.call("POST", path) in (400, 401, 422)
    assert front.call("GET", path) == 403


@pytest.mark.parametrize(
    "path",
    [
        "/", "/docs", "/openapi.json", "/v1/fleet/", "/v1/fleet/../control/start-run",
        "/v1/fleet/get-run/../../runtime/acquire-task", "/v1/fleet/get-run/x",
        "/v1/fleet/get-run%2f..%2f..%2fcontrol%2fstart-run", "//v1/control/start-run",
    ],
)  # fmt: skip
def test_no_other_way_leads_past(path: str, front: Front) -> None:
    assert front.call("POST", path) in (403, 400)


def test_only_parts_of_answers_may_be_large(front: Front) -> None:
    """An announcement of many parts would keep the SuperLink's database busy for minutes."""
    large = bytes(300_000)
    assert front.call("POST", "/v1/fleet/push-messages", body=large) == 413
    assert front.call("POST", "/v1/fleet/push-object", body=large) in (400, 401, 422)


def test_flowers_own_port_would_have_let_anybody_in(front: Front) -> None:
    """So it must not be reachable from outside, and is not."""
    assert front.call("POST", "/v1/runtime/acquire-task", front.link) == 200
    with socket.socket() as found:
        assert found.connect_ex(("127.0.0.2", front.link)) != 0
    with socket.socket() as found:
        assert found.connect_ex(("127.0.0.2", front.port)) == 0
