"""How often a SuperNode polls, and what a machine discloses by default."""

from __future__ import annotations

import sys
import time
from types import ModuleType

import pytest

pytest.importorskip("flwr")
from sofa_fl.deploy.flower import supernode
from sofa_fl.deploy.flower.apps import cap_of
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


def test_nothing_is_disclosed_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    assert cap_of({}) == 0
    assert cap_of({"partition-id": 0, "num-partitions": 2}) == 0
    assert cap_of({"max-disclosure": 0.5}) == 0.5
    ray = ModuleType("ray")
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray, "is_initialized", lambda: False, raising=False)
    assert cap_of({"partition-id": 0, "num-partitions": 2}) == 0
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    assert cap_of({}) == 0
    assert cap_of({"partition-id": 0, "num-partitions": 2}) == 1, "a simulation"
    with pytest.raises(ConfigError, match="between 0 and 1"):
        cap_of({"max-disclosure": 2})
