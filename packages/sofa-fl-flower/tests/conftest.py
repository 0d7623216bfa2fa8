"""The same draws in every run of the suite, and one thread: as workers and the runs have it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")
torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these take machines, or stand-ins for them."""
    for item in items:
        if "sofa-fl-flower" in item.path.parts:
            item.add_marker(pytest.mark.deploy)
