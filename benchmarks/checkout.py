"""Import this first to run a benchmark of a checkout with nothing but torch, NumPy and SciPy.

A machine with a GPU often has those and no more, and cannot install anything.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

BEGAN = time.perf_counter()  # before anything large is imported
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
if importlib.util.find_spec("annotated_types") is None:  # only says which numbers are allowed
    sys.modules["annotated_types"] = stand_in = ModuleType("annotated_types")
    for _name in ("Ge", "Gt", "Interval"):
        setattr(stand_in, _name, lambda *_limits, **_named: None)
