"""What several tests of the command line need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import Result

from tests.data.idx_files import write_idx

Cli = Callable[..., Result]
# Ctrl-C must work although the tests themselves may run in the background, where it does not.
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from sofa_fl.cli.main import main
main()
"""
SOFA_FL = (sys.executable, "-c", MAIN)

SUMMARY_KEYS = {
    "method", "title", "data", "own", "seed", "engine", "rounds", "seconds", "samples_trained",
    "bytes_down", "bytes_up",
    "client", "full", "full_samples", "test_samples", "root", "levels", "tree", "edits", "sharing",
    "provenance", "notes", "run",
}  # fmt: skip


def write_images(folder: Path, size: int, num_train: int = 300, num_test: int = 90) -> None:
    """A dataset of three classes, whose images are noise with a bright row each."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, number in (("train", num_train), ("test", num_test)):
        labels = rng.integers(0, 3, number).astype(np.uint8)
        labels[:3] = 0, 1, 2
        images = rng.integers(0, 120, (number, size, size)).astype(np.uint8)
        images[np.arange(number), labels] += 120
        write_idx(folder / f"{name}-images", images)
        write_idx(folder / f"{name}-labels", labels)


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def assert_refused(result: Result, *words: str) -> None:
    """Exit code 2, and one sentence on stderr that has `words` in it."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith("\n")
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def process(*args: str, **options: Any) -> subprocess.Popen[str]:
    """`sofa-fl` as a process of its own."""
    environment = {**os.environ, "COLUMNS": "80", **options.pop("env", {})}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([*SOFA_FL, *args], text=True, env=environment, **pipes)
