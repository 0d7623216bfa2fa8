"""When the process of the ServerApp ends."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from sofa_fl_flower.flower.server_app import round_line

SERVER = """
import os, sys, threading
from sofa_fl_flower.flower.server_app import end_with_parent

end_with_parent(sys.argv)
print(os.getpid(), flush=True)
try:
    threading.Event().wait()  # as Flower waits for the parts of an answer
finally:
    print("ended", flush=True)
"""
PARENT = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
named = ["--parent-pid", str(os.getpid())] if sys.argv[2] == "named" else []
subprocess.Popen([sys.executable, "-c", sys.argv[1], *named])
sys.stdin.read()  # until it is killed
"""


@pytest.mark.parametrize("kind", ["named", "nameless"])
def test_a_server_ends_with_what_started_it(kind: str) -> None:
    """A simulation names no parent: it goes on if the shell that started it is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, SERVER, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        parent.kill()
        if kind == "nameless":
            time.sleep(1.5)
            subprocess.run(["kill", "-9", str(process)], check=True)  # it is still there
        assert parent.stdout.readline() == ("ended\n" if kind == "named" else "")


def test_a_round_in_the_log_names_the_score() -> None:
    event = {"round": 1, "rounds": 2, "evaluated": 1, "client": {"mean": 0.5}}
    assert round_line({**event, "metric": "r2"}) == "round 1/2: mean R² 0.5000"
    assert round_line(event) == "round 1/2: mean accuracy 0.5000"
