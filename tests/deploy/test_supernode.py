"""How often a SuperNode polls, and which policy holds on its machine."""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("flwr")
from sofa_fl.deploy.flower import supernode
from sofa_fl.deploy.flower.node_site import POLICY, site_of
from sofa_fl.deploy.machine.site import create_site
from sofa_fl.errors import ConfigError


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
    assert hasattr(fleet_http_connection, "HeartbeatSender")
    assert "os.kill(os.getpid()" in inspect.getsource(fleet_http_connection)
    assert "os.kill(os.getpid()" in inspect.getsource(http_retry)
    assert hasattr(InMemoryNodeState, "_on_task_tokens_expired")


Flower = Callable[[supernode.SignalsToItself], None]


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

    signals = supernode.SignalsToItself()
    monkeypatch.setattr(supernode, "patch_flower", lambda: signals)
    monkeypatch.setattr(supernode, "check_app", lambda _: None)
    monkeypatch.setattr(supernode, "RETRY_AFTER", 0.0)
    monkeypatch.setattr(supernode.ResidentProcess, "keep_running", lambda _: None)
    monkeypatch.setattr(module, "flower_supernode", lambda: flower(signals))
    monkeypatch.setattr(os, "execv", start_again)
    monkeypatch.setattr(os, "umask", lambda _: 0)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setenv(POLICY, "")
    for name in supernode.FLOWER_ENVIRONMENT:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv(supernode.TRIES, str(tries))
    supernode.main(["--policy", str(site / "policy.toml")])


def return_at_once(_: supernode.SignalsToItself) -> None:
    """As Flower's SuperNode does if the server's answer was an error."""


def refuse(_: supernode.SignalsToItself) -> None:
    sys.exit(1)


def end_by_operator(_: supernode.SignalsToItself) -> None:
    sys.exit(0)


def end_by_itself(signals: supernode.SignalsToItself) -> None:
    """As Flower's SuperNode does if the server says that it is not authorized."""
    killed: list[int] = []
    previous = signal.signal(signal.SIGUSR1, lambda *_: killed.append(1))
    try:
        signals.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert killed
    sys.exit(0)


@pytest.mark.parametrize("flower", [return_at_once, refuse, end_by_itself])
def test_a_node_starts_again_unless_its_operator_ends_it(
    flower: Flower, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(StartAgainError):
        run_node(monkeypatch, tmp_path, flower)
    assert os.environ[supernode.TRIES] == "1"


@pytest.mark.parametrize(
    ("flower", "tries", "code"), [(end_by_operator, 0, 0), (refuse, supernode.MAX_RETRIES, 1)]
)
def test_a_node_ends(
    flower: Flower,
    tries: int,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with pytest.raises(SystemExit) as end:
        run_node(monkeypatch, tmp_path, flower, tries)
    assert end.value.code == code


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
