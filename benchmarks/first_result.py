"""How long a new user waits for a first result: an environment, the package, their own CSV.

python benchmarks/first_result.py              # a new environment, then the example
python benchmarks/first_result.py --here       # only the example, in this environment
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def timed(what: str, command: list[str], folder: Path) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{what} failed: {done.stderr.strip().splitlines()[-1]}")
    said = done.stdout.strip().splitlines()
    print(
        f"{what:<28} {took:7.1f} s" + (f"  {said[-1]}" if said and "accuracy" in said[-1] else "")
    )
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true", help="use this environment")
    here = parser.parse_args().here
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python, total = sys.executable, 0.0
        if not here:
            total += timed("new environment", [python, "-m", "venv", "env"], folder)
            python = str(folder / "env" / "bin" / "python")
            pinned = ["-c", str(ROOT / "constraints.txt"), str(ROOT)]
            total += timed("install", [python, "-m", "pip", "install", "-q", *pinned], folder)
        total += timed("import", [python, "-c", "import sofa_fl; sofa_fl.run"], folder)
        total += timed("own CSV, first result", [python, str(ROOT / "examples/own_csv.py")], folder)
        print(f"{'all steps':<28} {total:7.1f} s")


if __name__ == "__main__":
    main()
