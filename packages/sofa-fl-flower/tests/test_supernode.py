"""How often a SuperNode polls, and which policy holds on its machine."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, AcquireTaskResponse
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from machines import Machine, free_port, wait_until

from sofa_fl.errors import ConfigError
from sofa_fl_flower.flower import supernode
from sofa_fl_flower.flower.flower_patches import local_retries
from sofa_fl_flower.flower.node_site import POLICY, site_of
from sofa_fl_flower.machine.site import create_site
from test_proxy import is_open


def test_pauses_grow_until_a_message_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    clock = supernode.PollingTime()
    for _ in range(100):
        clock.sleep(3)
    assert slept[0] == supernode.SHORTEST
    assert slept[-1] == supernode.LONGEST
    clock.sleep(0.5)  # Flower waits for the ClientApp
    clock.sleep(3)
    assert slept[-1] == supernode.SHORTEST


def test_flower_still_has_what_is_replaced() -> None:
    from flwr.supercore.retry import http_retry
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

    assert hasattr(start_client_internal, "time")
    assert hasattr(start_client_internal, "_pull_and_store_message")
    assert hasattr(start_client_internal, "_init_connection")
    assert hasattr(fleet_http_connection, "HeartbeatSender")
    assert "os.kill(os.getpid()" in inspect.getsource(fleet_http_connection)
    assert "os.kill(os.getpid()" in inspect.getsource(http_retry)
    assert hasattr(InMemoryNodeState, "_on_task_tokens_expired")


Flower = Callable[[supernode.Watch], None]


class StartAgainError(Exception):
    """The SuperNode would start again."""


def run_node(monkeypatch: pytest.MonkeyPatch, folder: Path, flower: Flower, tries: int = 0) -> None:
    """Run the command, with `flower` in place of Flower's SuperNode."""
    module = importlib.import_module("flwr.supernode.cli.flower_supernode")
    app = folder / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text("")
    site = create_site(folder / "site", app)

    def start_again(*_: object) -> None:
        raise StartAgainError

    watch = supernode.Watch()
    monkeypatch.setattr(supernode, "patch_flower", lambda _: watch)
    monkeypatch.setattr(supernode, "check_app", lambda _: None)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(supernode.ResidentProcess, "keep_running", lambda _: None)
    monkeypatch.setattr(module, "flower_supernode", lambda: flower(watch))
    monkeypatch.setattr(os, "execv", start_again)
    monkeypatch.setattr(os, "umask", lambda _: 0)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setenv(POLICY, "")
    for name in supernode.FLOWER_ENVIRONMENT:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv(supernode.TRIES, str(tries))
    supernode.main(["--policy", str(site / "policy.toml")])


def call_in_vain(watch: supernode.Watch) -> None:
    """As Flower's SuperNode does if the server's answer was an error."""
    watch.has_called = True


def refused(watch: supernode.Watch) -> None:
    watch.has_called = True
    sys.exit(1)


def forbidden(watch: supernode.Watch) -> None:
    """As for an answer 403, which is no `Exception` to Flower."""
    watch.has_called = True
    raise RunNotRunningException


def garbage(watch: supernode.Watch) -> None:
    watch.has_called = True
    raise ValueError("Invalid protobuf response payload")


def end_by_operator(watch: supernode.Watch) -> None:
    watch.has_called = True
    sys.exit(0)


def interrupted(_: supernode.Watch) -> None:
    raise KeyboardInterrupt


def wrong_options(_: supernode.Watch) -> None:
    sys.exit(2)


def wrong_key(_: supernode.Watch) -> None:
    sys.exit("no such key")


def end_by_itself(watch: supernode.Watch) -> None:
    """As Flower's SuperNode does if the server says that it is not authorized."""
    watch.has_called = True
    killed: list[int] = []
    previous = signal.signal(signal.SIGUSR1, lambda *_: killed.append(1))
    try:
        watch.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert killed
    sys.exit(0)


@pytest.mark.parametrize("flower", [call_in_vain, refused, forbidden, garbage, end_by_itself])
@pytest.mark.parametrize("tries", [0, 1000])
def test_a_node_starts_again_until_its_server_is_back(
    flower: Flower,
    tries: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Formerly it gave up after 24 tries, and ended at once if it was answered 403."""
    with pytest.raises(StartAgainError):
        run_node(monkeypatch, tmp_path, flower, tries)
    assert os.environ[supernode.TRIES] == str(tries + 1)
    assert f"try {tries + 1} follows in {5 if tries == 0 else 60} s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flower", "code"),
    [(end_by_operator, 0), (interrupted, 0), (wrong_options, 2), (wrong_key, 1)],
)
def test_a_node_ends_for_its_operator_and_with_wrong_options(
    flower: Flower,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with pytest.raises(SystemExit) as end:
        run_node(monkeypatch, tmp_path, flower)
    assert end.value.code == code


def test_tries_count_from_the_last_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supernode, "CONNECTED", -1.0)
    with pytest.raises(StartAgainError):
        run_node(monkeypatch, tmp_path, refused, tries=7)
    assert os.environ[supernode.TRIES] == "1"


def test_the_app_starts_with_the_connection() -> None:
    """Not before: a node that waits for its server for days would start it every minute."""
    watch, seen = supernode.Watch(), list[object]()

    @contextmanager
    def connect(**given: object) -> Iterator[object]:
        seen.append(given)
        yield "connection"

    with watch.watched(connect, lambda: seen.append("connected"))(to="server") as found:
        assert watch.has_called
        assert (found, seen) == ("connection", [{"to": "server"}, "connected"])


def test_a_stranger_gets_no_work_from_a_node(tmp_path: Path) -> None:
    """Formerly any user of the computer got it, if he asked before the site's own process."""
    port, link = free_port(), free_port()
    machine = Machine(tmp_path)
    machine.run("sofa-fl deploy new clinics")
    machine.run(f"cd clinics\npython keys.py --server 127.0.0.1:{link} --nodes 1")
    machine.run("sofa-fl deploy site site --app clinics")
    command = (
        f"sofa-fl deploy node --policy site/policy.toml --superlink 127.0.0.1:{link} "
        f"--port {port} --root-certificates clinics/keys/ca.crt "
        "--auth-supernode-private-key clinics/keys/node-0"
    )
    secret = tmp_path / "site" / "state" / "runtime-secret"
    try:
        machine.start(command, "node.log")
        wait_until(lambda: is_open(port), "the node's port")
        for guess in (None, b"", b"guess"):
            with pytest.raises(httpx.HTTPStatusError, match="401"):
                ask_for_work(port, guess)
        assert not ask_for_work(port, secret.read_bytes()).HasField("task"), "there is none"
        assert secret.stat().st_mode & 0o777 == 0o600
        first = secret.read_bytes()
        machine.kill(machine.running[0])
        machine.start(command, "node.log")
        wait_until(lambda: secret.read_bytes() != first, "another secret")
    finally:
        machine.close()


def ask_for_work(port: int, secret: bytes | None) -> AcquireTaskResponse:
    """Ask a node for work, as the process of the ClientApp does, with a secret or without."""
    interceptors: list[Any] = [RuntimeVersionHttpInterceptor(component_name="SuperExec")]
    if secret is not None:
        method = "/flwr.proto.Runtime/AcquireTask"
        interceptors.append(
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[method])
        )
    client = RuntimeHttpClient.from_server_address(
        f"127.0.0.1:{port}", True, None, interceptors, retry_invoker=local_retries()
    )
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    with contextlib.closing(client):
        return client.AcquireTask(request)


def test_options_are_found_in_both_forms() -> None:
    given = ["--port", "9", "--host=h"]
    assert supernode.option(given, "--port") == (["--host=h"], "9")
    assert supernode.option(given, "--host") == (["--port", "9"], "h")
    assert supernode.option(given[:2], "--host") == (given[:2], None)
    assert supernode.option(["--port"], "--port") == (["--port"], None)


def test_a_node_needs_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(POLICY, raising=False)
    with pytest.raises(ConfigError, match="add --policy FILE"):
        supernode.take_policy(["--port", "9"])
    for written in (["--policy", "p.toml"], ["--policy=p.toml"]):
        rest, file = supernode.take_policy(["--port", "9", *written, "--host=h"])
        assert rest == ["--port", "9", "--host=h"]
        assert file.is_absolute()
        assert file.name == "p.toml"


def test_only_a_simulation_has_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(POLICY, raising=False)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    simulated = {"partition-id": 0, "num-partitions": 2}
    ray = ModuleType("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False, raising=False)
    for config in ({}, simulated):
        with pytest.raises(ConfigError, match="this machine has no policy"):
            site_of(config)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(ConfigError, match="this machine has no policy"):
        site_of(simulated)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with pytest.raises(ConfigError, match="this machine has no policy"):
        site_of({})
    policy, site = site_of(simulated)
    assert policy.max_disclosure == 1
    assert site is None
    with pytest.raises(ConfigError, match="max_disclosure in the site's policy"):
        site_of({"max-disclosure": 0.5})


def test_the_policy_is_that_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = create_site(tmp_path / "site", tmp_path / "app")
    monkeypatch.setenv(POLICY, str(folder / "policy.toml"))
    policy, site = site_of({"policy": "/some/where/else"})
    assert policy.state == str(folder / "state")
    assert site is not None
    monkeypatch.delenv(POLICY)
    assert site_of({"policy": str(folder / "policy.toml")})[0] == policy
