"""What only a process of its own shows: streams, terminals, signals, what is imported."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.cases import process

pytestmark = pytest.mark.slow


def imported_by(*args: str) -> set[str]:
    """Which of the heavy packages a command imports."""
    code = (
        "import sys; from sofa_fl.cli.main import main\n"
        "try: main()\n"
        "finally: print('\\n' + ' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True
    )
    names = set(done.stdout.splitlines()[-1].split())
    return {"torch", "numpy", "scipy", "sklearn", "safetensors"} & names


def test_help_imports_nothing_heavy_and_tree_only_numpy(finished: Path) -> None:
    assert imported_by("--help") == set()
    assert imported_by("run", "--help") == set()
    assert imported_by("tree", str(finished)) <= {"numpy"}


def test_streams_are_apart(tiny: list[str]) -> None:
    running = process("run", *tiny, "--out", "x", "--json", env={"FORCE_COLOR": "1"})
    out, err = running.communicate()
    assert running.returncode == 0
    assert json.loads(out)["run"] == "x"
    assert "\x1b" not in err
    assert "\r" not in err
    assert [line.split(",")[0] for line in err.splitlines()] == [
        "warm-up",
        "warm-up done",
        "round 1/2",
        "round 2/2",
        "scoring every level",
    ]


def on_a_terminal(*args: str) -> tuple[str, str]:
    """What a command prints on stdout, and what it shows on a terminal."""
    ours, theirs = pty.openpty()
    running = process(*args, stderr=theirs, env={"TERM": "xterm"})
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
    out, _ = running.communicate()
    os.close(ours)
    assert running.returncode == 0
    return out, shown.decode()


def test_bar_on_a_terminal(tiny: list[str]) -> None:
    out, shown = on_a_terminal("run", *tiny, "--out", "x", "--json")
    assert json.loads(out)["rounds"] == 2
    for words in ("preparing", "warm-up", "round 2/2", "worst", "elapsed", "\x1b["):
        assert words in shown
    # What stays is a line per round.
    lines = [line for line in plain(shown) if "━" not in line and "mean" in line]
    assert [line.split(",")[0] for line in lines] == ["warm-up done", "round 1/2", "round 2/2"]


def test_one_bar_over_all_runs(tiny: list[str]) -> None:
    out, shown = on_a_terminal("compare", "fedavg", "local", *tiny, "--out", "x", "--json")
    assert len(json.loads(out)) == 2
    bars = [line for line in plain(shown) if "━" in line]
    assert any(line.startswith("FedAvg+, seed 0 (1 of 2), round 2/2") for line in bars)
    lines = [line for line in plain(shown) if "━" not in line and "mean" in line]
    assert len(lines) == 2 * 3
    assert lines[-1].startswith("Local+, seed 0 (2 of 2), round 2/2, mean ")


def plain(shown: str) -> list[str]:
    """The lines that a terminal was sent, without their colours."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", shown))


def test_ctrl_c_then_resume(tiny: list[str], work_dir: Path) -> None:
    rounds = 40
    running = process("run", *tiny, "--rounds", str(rounds), "--out", "my run")
    events = work_dir / "my run" / "events.jsonl"
    patience = time.monotonic() + 120
    while not events.exists() or events.read_bytes().count(b"\n") < 2:
        assert time.monotonic() < patience
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate()
    assert running.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "interrupted; continue with sofa-fl resume 'my run'"
    assert "Traceback" not in err
    assert not (work_dir / "my run" / "summary.json").exists()

    resumed = process("resume", "my run", "--json")
    out, err = resumed.communicate()
    assert resumed.returncode == 0, err
    assert json.loads(out)["rounds"] == rounds
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(rounds + 1))


@pytest.mark.parametrize("option", ["--json", "--all"])
def test_closed_pipe_is_quiet(finished: Path, option: str) -> None:
    running = process("tree", str(finished), option)
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait() == 1


def test_terminal_without_these_characters(finished: Path) -> None:
    running = process("tree", str(finished), env={"PYTHONIOENCODING": "ascii"})
    out, err = running.communicate()
    assert (running.returncode, err) == (0, "")
    assert out.isascii()
