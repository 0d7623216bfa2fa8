"""Benchmarks run where little is installed: what stands in for a package does the same."""

from __future__ import annotations

from typing import Any

import pytest
from checkout import PlainAdapter

from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.values import adapter_of


@pytest.mark.parametrize(
    "values", [{}, {"local": {"batches": 3}, "sharing": {"ratio": [0.1, 0.2]}, "rounds": 2}]
)
def test_a_configuration_is_the_same_without_pydantic(values: dict[str, Any]) -> None:
    plain, usual = PlainAdapter(Config), adapter_of(Config)
    config = plain.validate_python(values)
    assert config == usual.validate_python(values)
    assert plain.dump_python(config, mode="json") == usual.dump_python(config, mode="json")
