"""The same examples in every run of the suite, and one thread: as workers and the runs have it.

`EXPLORE=500 pytest tests/models` draws new examples in place of those: 500 of every property that
does not say how many. What a failure prints repeats it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

EXPLORE = int(os.environ.get("EXPLORE", "0"))

settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile(
    "explore", max_examples=EXPLORE or 100, database=None, deadline=None, print_blob=True
)
settings.load_profile("explore" if EXPLORE else "suite")
torch.set_num_threads(1)

TESTS = Path(__file__).parent
MARKS = {"docs": pytest.mark.slow, "examples": pytest.mark.slow}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole folders; elsewhere a file or a test marks itself."""
    for item in items:
        if TESTS not in item.path.parents:  # another package's
            continue
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in MARKS:
            item.add_marker(MARKS[folder])
        if "[ray" in item.name:  # Ray takes seconds to start
            item.add_marker(pytest.mark.slow)
