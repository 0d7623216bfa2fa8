"""Every test that takes a `case` runs on every engine of the table."""

from __future__ import annotations

import pytest

from tests.engine.cases import ENGINES, EngineCase


@pytest.fixture(params=ENGINES, ids=str)
def case(request: pytest.FixtureRequest) -> EngineCase:
    assert isinstance(request.param, EngineCase)
    return request.param
