"""All tests, in two processes side by side: `python -m tests`, with options of pytest.

The tests are dealt out in portions, a new one to whichever process is free, so that both end at
about the same time. (pytest-xdist would run them among threads, and engines fork.)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROCESSES = 2
# Portions of their own, the longest first; all other tests are one more.
FOLDERS = (
    "packages/sofa-fl-flower/tests",
    "tests/methods", "tests/experiment", "tests/cli", "tests/engine", "tests/docs",
    "tests/examples", "tests/topology", "tests/report",
)  # fmt: skip
PYTEST = [
    sys.executable, "-m", "pytest", "-p", "no:cacheprovider",
    "--durations=12", "--durations-min=3", *sys.argv[1:],
]  # fmt: skip


def portions() -> list[list[str]]:
    """The arguments of pytest for each portion; together they are all tests, each once."""
    others = ["tests", *(f"--ignore={folder}" for folder in FOLDERS)]
    return [others, *([folder] for folder in FOLDERS)]


class Portions:
    """Runs portions, and prints what each said when it has ended."""

    def __init__(self) -> None:
        self.printing = threading.Lock()
        self.running: set[subprocess.Popen[bytes]] = set()
        self.stopped = False

    def run(self, arguments: list[str]) -> bool:
        """Whether all tests of a portion passed."""
        began = time.monotonic()
        with tempfile.TemporaryFile() as said:
            if self.stopped:
                return False
            command = [*PYTEST, *arguments]
            with subprocess.Popen(
                command, cwd=HERE.parent, stdout=said, stderr=subprocess.STDOUT
            ) as process:
                self.running.add(process)
                process.wait()
                self.running.discard(process)
            said.seek(0)
            with self.printing:
                name = arguments[0] if len(arguments) == 1 else "all other tests"
                print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
                print(said.read().decode(errors="replace"), flush=True)
        return process.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)

    def stop(self) -> None:
        self.stopped = True
        for process in self.running.copy():
            process.terminate()


def main() -> int:
    """Run all; 1 if a portion failed."""
    work = Portions()
    with ThreadPoolExecutor(PROCESSES) as pool:
        found = [pool.submit(work.run, arguments) for arguments in portions()]
        try:
            passed = [each.result() for each in found]
        except BaseException:
            work.stop()
            raise
    return int(not all(passed))


if __name__ == "__main__":
    sys.exit(main())
