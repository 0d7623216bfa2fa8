"""Shorter pauses for Flower, and a message whose run ends while it is on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("flwr")
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.run import RunNotRunningException
from flwr.supernode import start_client_internal

from sofa_fl.deploy.flower.flower_patches import FIRST_RETRY, drop_ended_runs, shorten_retries


@pytest.mark.parametrize("name", ["pull_objects", "pull_and_inflate_object_from_tree"])
def test_a_part_is_asked_for_again_soon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = getattr(inflatable_utils, name).__kwdefaults__
    monkeypatch.setitem(defaults, "initial_backoff", 1.0)
    before = dict(defaults)
    shorten_retries()
    assert defaults == {**before, "initial_backoff": FIRST_RETRY}


def receive(pull: Callable[..., int | None], error: BaseException) -> MagicMock:
    """A node gets a message of a run that it knows, but `error` instead of its parts."""
    state = MagicMock()
    state.create_task.return_value = 7
    store = MagicMock()
    store.preregister.return_value = ["part"]
    given: dict[str, Any] = dict.fromkeys(
        ("node_config", "get_run", "get_fab", "trusted_entities"), MagicMock()
    )
    given["receive"] = lambda: (MagicMock(), MagicMock())
    given["pull_object"] = MagicMock(side_effect=error)
    given["confirm_message_received"] = MagicMock()
    assert pull(state=state, object_store=store, **given) is None
    return state


def test_the_task_of_a_run_that_has_ended_does_not_stay() -> None:
    pull = start_client_internal._pull_and_store_message
    assert not receive(pull, RunNotRunningException()).finish_task.called, (
        "Flower does it by itself now: `drop_ended_runs` can go"
    )
    state = receive(drop_ended_runs(pull), RunNotRunningException())
    assert state.finish_task.call_args.args[0] == 7
    assert "the run has ended" in state.finish_task.call_args.kwargs["details"]
    assert receive(drop_ended_runs(pull), ValueError("other")).finish_task.called
