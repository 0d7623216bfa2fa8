"""The same draws in every run of the suite, and one thread: as workers and the runs have it."""

from __future__ import annotations

import torch
from hypothesis import settings

settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")
torch.set_num_threads(1)
