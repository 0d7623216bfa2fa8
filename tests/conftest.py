"""The same examples in every run of the suite, and one thread: as workers and the runs have it.

`EXPLORE=500 pytest tests/models` draws new examples in place of those: 500 of every property that
does not say how many. What a failure prints repeats it.
"""

from __future__ import annotations

import os

import torch
from hypothesis import settings

EXPLORE = int(os.environ.get("EXPLORE", "0"))

settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile(
    "explore", max_examples=EXPLORE or 100, database=None, deadline=None, print_blob=True
)
settings.load_profile("explore" if EXPLORE else "suite")
torch.set_num_threads(1)
