"""All tests, in two processes side by side: `python -m tests`.

Tests that start processes of their own mostly wait, and the others mostly compute: two halves of
about the same length for two cores. (pytest-xdist would run them among threads, and engines fork.)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

WAITING = ["tests/deploy", "tests/cli", "tests/docs", "tests/examples", "tests/report"]
PYTEST = [sys.executable, "-m", "pytest"]


def main() -> int:
    """Run both; what the first says comes when both have ended. 1 if one of them failed."""
    others = [*PYTEST, *(f"--ignore={folder}" for folder in WAITING)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        with subprocess.Popen(
            [*PYTEST, "-p", "no:cacheprovider", *WAITING], stdout=said, stderr=subprocess.STDOUT
        ) as waiting:
            try:
                rest = subprocess.call(others)
                print(f"waiting for {', '.join(WAITING)} ...", flush=True)
                waiting.wait()
            except BaseException:
                waiting.terminate()
                raise
        said.seek(0)
        print(said.read(), flush=True)
    return int(rest != 0 or waiting.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
