"""Clustering keeps compiled libraries to one thread, and gives the others back."""

from __future__ import annotations

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.clustering.dmac import dmac, one_thread
from sofa_fl.topology.clustering.separation import Separation, plain_neighbors
from sofa_fl.topology.space import Neighbors, Space
from tests.topology.strategies import space_of


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


def test_dmac_runs_on_one() -> None:
    seen: list[int] = []

    def watched(space: Space) -> tuple[Neighbors, Separation]:
        seen.extend(e["num_threads"] for e in threadpool_info() if e["user_api"] == "blas")
        return plain_neighbors(space)

    with threadpool_limits(2):
        dmac(space_of(np.arange(5.0)), DmacConfig(increase=1.1), neighbors=watched)
    assert set(seen) == {1}
