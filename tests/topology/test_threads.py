"""Clustering keeps compiled libraries to one thread, and gives the others back."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.dmac import dmac, one_thread
from sofa_fl.topology.shape import Proposer
from sofa_fl.topology.space import Floats, Space
from tests.topology.strategies import ALL, space_of, tree_of


def numbers() -> list[int]:
    return [library["num_threads"] for library in threadpool_info()]


def test_one_thread_within_and_as_before_after() -> None:
    assert ThreadpoolController().lib_controllers
    with threadpool_limits(2):
        before = numbers()
        with one_thread():
            blas = [each for each in threadpool_info() if each["user_api"] == "blas"]
            assert {each["num_threads"] for each in blas} == {1}
        assert numbers() == before


def test_dmac_and_proposals_run_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watched(self: Space, *args: Floats) -> Floats:
        seen.extend(e["num_threads"] for e in threadpool_info() if e["user_api"] == "blas")
        return distances(self, *args)

    distances = Space.distances
    monkeypatch.setattr(Space, "distances", watched)
    space = space_of(np.arange(6.0))
    with threadpool_limits(2):
        dmac(space, DmacConfig(increase=1.1))
        assert set(seen) == {1}
        seen.clear()
        Proposer(tree_of([[0, 1, 2], [3, 4, 5]]), space, ALL).all()
        assert set(seen) == {1}
