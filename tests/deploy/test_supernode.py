"""How often a SuperNode polls, and which policy holds on its machine."""

from __future__ import annotations

import sys
import time
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
    from flwr.supernode import start_client_internal

    assert hasattr(start_client_internal, "time")
    assert hasattr(start_client_internal, "_pull_and_store_message")


def test_options_are_found_in_both_forms() -> None:
    assert supernode._value(["--port", "9", "--host=h"], "--port") == "9"
    assert supernode._value(["--port", "9", "--host=h"], "--host") == "h"
    assert supernode._value(["--port", "9"], "--host") is None


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
