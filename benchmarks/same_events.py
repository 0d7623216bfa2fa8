"""Compare the events of small runs between two revisions: a refactor must not change a bit.

    python benchmarks/same_events.py REVISION

Runs the paper's setting, nested groups, clients that change, come and go, take part in some rounds
or fail, sharing, and the preset `paper`, all small, with the working tree and with a checkout of
REVISION, and compares every event. Prints one line per run with a digest of the events, and exits
with 1 if any differ. Only keys that both revisions write are compared, and no times.
`--but bytes_down` leaves out a key that is meant to differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

SMALL = (
    "rounds=5",
    "warmup=5",
    "data.num_train=3000",
    "data.num_test=600",
    "data.min_samples=5",
    "model.name=mlp",
    "model.hidden=16",
    "local.batches=5",
    "local.batch_size=20",
    "engine=sequential",
)
GROUPS = ("data.num_clients=24", "data.num_rotations=4")
CHANGE = ("data.scenario.at=3", "data.num_swaps=1", "data.scenario.fraction=0.34")
NESTED = (*GROUPS, "data.partition=groups", "data.num_swaps=2")
RUNS = {
    "base": (),
    "shapes": NESTED,
    "cascade": (*NESTED, "sofa.propagation=cascade", "sofa.eta=0.8"),
    "swap": (*GROUPS, *CHANGE, "data.scenario.name=swap"),
    "churn": (*GROUPS, *CHANGE, "data.scenario.name=churn"),
    "participation": ("participation=0.3", "guard.aggregate=trimmed"),
    "faults": ("faults.dropout=0.2", "faults.bad=0.2", "faults.kind=mixed"),
    "sharing": (*NESTED, "sharing.ratio=0.2", "sharing.adaptive=true"),
    "paper": ("preset=paper", "sharing.mode=fixed"),
}
RENAMED = {"places": "positions"}  # keys of events that later revisions call otherwise
TIMES = {"seconds"}
REPOSITORY = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="a commit, tag or branch to compare with")
    parser.add_argument("--but", nargs="+", default=[], metavar="KEY", help="keys left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        other = Path(scratch) / "checkout"
        command = ["git", "worktree", "add", "--quiet", "--detach", str(other), options.revision]
        subprocess.run(command, cwd=REPOSITORY, check=True)
        try:
            same = [compare(name, Path(scratch), other, options.but) for name in RUNS]
        finally:
            command = ["git", "worktree", "remove", "--force", str(other)]
            subprocess.run(command, cwd=REPOSITORY, check=True)
    return int(not all(same))


def compare(name: str, scratch: Path, other: Path, but: Collection[str]) -> bool:
    """Run `name` with both trees; print whether the events are the same, `but` for some keys."""
    new = events(name, REPOSITORY, scratch / f"{name}-new")
    old = events(name, other, scratch / f"{name}-old")
    keys = set.intersection(*(set(event) for event in [*new, *old])).difference(but)
    new, old = ([{k: e[k] for k in sorted(keys)} for e in some] for some in (new, old))
    digest = hashlib.sha256(json.dumps(new).encode()).hexdigest()[:16]
    if new == old:
        print(f"{name:12} same       {digest}  {len(new)} events, {len(keys)} keys", flush=True)
        return True
    first = next(
        (at for at, (a, b) in enumerate(zip(new, old)) if a != b), min(map(len, (new, old)))
    )
    differ = [key for key in sorted(keys) if new[first][key] != old[first][key]]
    print(f"{name:12} DIFFERENT  from event {first} on, in {', '.join(differ)}", flush=True)
    return False


def events(name: str, tree: Path, out: Path) -> list[dict[str, Any]]:
    """The events of a run with the code in `tree`, without times, by today's names."""
    sets = [word for key in (*SMALL, *RUNS[name], f"out={out}") for word in ("--set", key)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "sofa_fl", "run", "--quiet", *sets]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    lines = (out / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {
            RENAMED.get(key, key): value
            for key, value in json.loads(line).items()
            if key not in TIMES
        }
        for line in lines
    ]


if __name__ == "__main__":
    sys.exit(main())
