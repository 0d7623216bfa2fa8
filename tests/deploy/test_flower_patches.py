"""Shorter pauses for Flower, and a message whose run ends while it is on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("flwr")
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.run import RunNotRunningException
from flwr.superlink.grid import http_grid
from flwr.supernode import start_client_internal

from sofa_fl.deploy.flower.flower_messages import GridMessenger
from sofa_fl.deploy.flower.flower_patches import (
    FIRST_RETRY,
    drop_ended_runs,
    shorten_retries,
    survive_broken_answers,
)


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


def test_parts_that_are_no_message_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that answers so is not heard; the others that answered with it are."""
    patched: Any = http_grid
    name = "inflate_object_from_contents"
    found = getattr(patched, name)  # another test may have patched it
    monkeypatch.setattr(http_grid, name, getattr(found, "__wrapped__", found))
    with pytest.raises(ValueError, match="not enough values"):
        patched.inflate_object_from_contents("id", {"id": b"garbage"})
    survive_broken_answers()
    survive_broken_answers()  # once is enough
    broken = patched.inflate_object_from_contents("id", {"id": b"garbage"})
    broken.metadata.__dict__["_message_id"] = "id"  # as Flower does next
    grid = MagicMock()
    grid.pull_messages.return_value = [broken]
    assert GridMessenger(grid).collect(["id"]) == {}
