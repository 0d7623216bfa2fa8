"""Every test that takes a `case` runs on every engine of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sofa_fl.engine.ray_cluster import Cluster
from tests.engine.cases import ENGINES, EngineCase


@pytest.fixture(params=ENGINES, ids=str)
def case(request: pytest.FixtureRequest) -> EngineCase:
    assert isinstance(request.param, EngineCase)
    return request.param


@pytest.fixture(scope="module")
def ray_of_module() -> Iterator[None]:
    """Ray, started once for all tests of a module: engines that find it running leave it so."""
    cluster = Cluster("local", num_cpus=2, store_bytes=0)
    yield
    cluster.leave()


@pytest.fixture(autouse=True)
def ray_is_there(request: pytest.FixtureRequest) -> None:
    given = getattr(request.node, "callspec", None)
    if given is not None and str(given.params.get("case")).startswith("ray"):
        request.getfixturevalue("ray_of_module")
