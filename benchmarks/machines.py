"""Machines that are processes here: folders of their own, and commands that run in them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

BIN = str(Path(sys.executable).parent)
SLOW = 60.0  # seconds for what takes a second on a machine that is not busy


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_until(is_so: Callable[[], object], what: str, seconds: float = SLOW) -> None:
    """Look again and again; who never comes is a failure."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.1)


class Machine:
    """A folder in which commands run, and the processes that go on there."""

    def __init__(self, folder: Path, **settings: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.settings = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("FLWR_", "PYTEST"))},
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            **settings,
        }
        self.running: list[subprocess.Popen[bytes]] = []

    def run(self, command: str, seconds: float = 240.0) -> str:
        """Run to the end, in a shell; what it printed."""
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.folder,
            env=self.settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
        text = done.stdout.decode(errors="replace")
        assert done.returncode == 0, f"{command}\n{text[-4000:]}"
        return text

    def start(self, command: str, log: str) -> subprocess.Popen[bytes]:
        """Run on, as a group of processes; what it prints goes to a file."""
        with (self.folder / log).open("ab") as file:
            process = subprocess.Popen(
                ["bash", "-ec", f"exec {command}" if "\n" not in command else command],
                cwd=self.folder,
                env=self.settings,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def log(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a process and all that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(SLOW)
        self.running.remove(process)

    def close(self) -> None:
        for process in list(self.running):
            self.kill(process)
        for pid in at_home(self.folder):  # Flower detaches the server of a simulation
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def interrupt(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes as Ctrl-C does, so that they can say goodbye."""
    for process in processes:
        os.killpg(process.pid, signal.SIGINT)
    for process in processes:
        process.wait(SLOW)


def at_home(folder: Path) -> Iterator[int]:
    """The processes that were started from here: their home is this folder."""
    wanted = f"HOME={folder}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


def closing(machines: Sequence[Machine]) -> None:
    for machine in machines:
        machine.close()
