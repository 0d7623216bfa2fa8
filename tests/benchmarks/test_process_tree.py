"""Memory of a process tree counts what is shared once, and nothing of a tree is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import process_tree
import pytest
from process_tree import descendants, proportional_bytes, watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MEBIBYTE = 2**20
# Allocates 200 MiB, shares them with a forked child, says both pids and waits for its input's end.
HOLDER = """
import os, sys
block = b"x" * (200 * 2**20)
child = os.fork()
if child:
    print(os.getpid(), child, flush=True)
sys.stdin.read()
"""
# Leaves an orphan in a session of its own, as Ray does, and says its pid.
ORPHANER = """
import subprocess
sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(sleeper.pid, flush=True)
"""


def test_memory_shared_with_a_child_counts_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        parent, child = map(int, holder.stdout.readline().split())
        assert descendants(parent) == [child]
        alone, together = proportional_bytes([child]), proportional_bytes([parent, child])
        holder.communicate("")
    assert 200 * MEBIBYTE < together < 260 * MEBIBYTE
    assert 100 * MEBIBYTE < alone < 130 * MEBIBYTE


def test_watching_sees_peak_memory_lines_and_exit_code() -> None:
    code = "import time, sys; b = bytearray(200 * 2**20); print('hi'); time.sleep(1); sys.exit(3)"
    done = watch([sys.executable, "-c", code], os.environ, limit=60)
    assert [line for _, line in done.lines] == ["hi"]
    assert done.returncode == 3
    assert 200 * MEBIBYTE < done.peak_bytes < 260 * MEBIBYTE


def test_what_runs_out_of_time_is_stopped() -> None:
    done = watch(["sleep", "600"], os.environ, limit=0.1)
    assert done.returncode is None


def test_orphans_in_other_sessions_are_ended_and_older_children_are_not() -> None:
    driver = (
        "import os, subprocess, sys, process_tree as p; p.adopt_orphans(); "
        "older = subprocess.Popen(['sleep', '600']); "
        f"done = p.watch([sys.executable, '-c', {ORPHANER!r}], os.environ, 60); "
        "print(done.lines[0][1], older.poll()); older.kill(); older.wait()"
    )
    env = os.environ | {"PYTHONPATH": str(Path(process_tree.__file__).parent)}
    told = subprocess.run(
        [sys.executable, "-c", driver], env=env, capture_output=True, text=True, check=True
    )
    orphan, older = told.stdout.split()
    assert older == "None"
    assert not Path("/proc", orphan).exists()
