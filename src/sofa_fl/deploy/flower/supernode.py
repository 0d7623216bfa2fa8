"""A SuperNode that answers at once: Flower's own, with a resident process for the ClientApp.

Flower's `flower-supernode` looks for messages every three seconds and starts a Python for each.
This one looks often while a run goes on, and keeps one process that has torch and the samples
loaded. Both speak the same protocol, so nodes of both kinds can be in one federation. It uses parts
of Flower that are not its public interface: the extra `flower` says of which version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
SHORTEST, LONGEST = 0.3, 1.0  # seconds between two looks: right after a message, and later
TRIES = "SOFA_FL_TRIES"  # how often it has been refused
MAX_TRIES, RETRY_AFTER, LONG = 24, 5.0, 60.0  # seconds, the last two
DEFAULT_PORT = 9094  # of Flower's, for the process that the ClientApp runs in


class Pace:
    """What Flower's node takes for the module `time`: pauses that grow while nothing happens."""

    def __init__(self) -> None:
        self.pause = SHORTEST

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        if seconds < 1:  # it waits for the ClientApp, so a message has come
            self.pause = SHORTEST
            time.sleep(min(seconds, 0.05))
            return
        time.sleep(min(seconds, self.pause))
        self.pause = min(self.pause * 1.05, LONGEST)


def main(arguments: Sequence[str]) -> None:
    """Run a SuperNode; `arguments` are those of `flower-supernode`."""
    os.environ.update(SETTINGS)  # before Flower is imported: it reads them then
    tries = int(os.environ.pop(TRIES, "0"))
    if tries:
        time.sleep(RETRY_AFTER)
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    from sofa_fl.deploy.flower.flower_patches import hasten, tidy

    port = _value(arguments, "--port") or str(DEFAULT_PORT)
    host = _value(arguments, "--host") or "127.0.0.1"
    worker = Worker(f"{host}:{port}")
    threading.Thread(target=worker.keep, daemon=True).start()
    hasten()
    start_client_internal.time = Pace()  # type: ignore[attr-defined,assignment]
    start_client_internal._pull_and_store_message = tidy(
        start_client_internal._pull_and_store_message
    )
    sys.argv = ["flower-supernode", *arguments, "--isolation", "process"]
    began = time.monotonic()
    try:
        flower_supernode()
    except SystemExit as end:
        worker.stop()
        if time.monotonic() - began > LONG:
            tries = 0
        if end.code in (None, 0) or tries >= MAX_TRIES:
            raise
        # For a minute after a node was cut off, the server takes it for there, and refuses it.
        os.environ[TRIES] = str(tries + 1)
        os.execv(
            sys.executable, [sys.executable, "-m", "sofa_fl.deploy.flower.supernode", *arguments]
        )


class Worker:
    """The process that the ClientApp runs in; another one is started should it die."""

    def __init__(self, address: str) -> None:
        command = [
            sys.executable,
            "-m",
            "sofa_fl.deploy.flower.app_process",
            address,
            str(os.getpid()),
        ]
        self.command, self.stopped = command, threading.Event()
        self.process: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        while not self.stopped.is_set():
            self.process = subprocess.Popen(self.command)
            self.process.wait()
            self.stopped.wait(1)

    def stop(self) -> None:
        self.stopped.set()
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def _value(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option, given as `--name value` or `--name=value`."""
    for argument, after in zip(arguments, [*arguments[1:], None]):
        if argument == name:
            return after
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
