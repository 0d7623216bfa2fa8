"""Flower's SuperNode, with short polls and a resident process for the ClientApp.

Flower's `flower-supernode` polls every three seconds and starts a Python for each message. This
one polls often during a run, and keeps one process with torch and the samples loaded. Both speak
the same protocol and can be in one federation. It uses parts of Flower that are not its public
interface: the extra `flower` pins its version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sofa_fl.deploy.flower.node_site import POLICY
from sofa_fl.deploy.machine.policy import check_app, load_policy
from sofa_fl.deploy.machine.site import open_site
from sofa_fl.errors import ConfigError

FLOWER_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
SHORTEST, LONGEST = 0.3, 1.0  # seconds between two polls: right after a message, and later
TRIES = "SOFA_FL_TRIES"  # how often the server has refused it
MAX_RETRIES = 24
RETRY_AFTER = 5.0  # seconds
CONNECTED = 60.0  # seconds after which tries are counted from zero again
LONGEST_WAIT = 300.0  # seconds for the parts of a message
DEFAULT_PORT = 9094  # Flower's default, at which the ClientApp's process connects


class PollingTime:
    """Replaces the module `time` in Flower's SuperNode: pauses grow until a message comes."""

    def __init__(self) -> None:
        self.pause = SHORTEST

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        if seconds < 1:  # Flower waits for the ClientApp, so a message has come
            self.pause = SHORTEST
            time.sleep(min(seconds, 0.05))
            return
        time.sleep(min(seconds, self.pause))
        self.pause = min(self.pause * 1.05, LONGEST)


def main(arguments: Sequence[str]) -> None:
    """Run a SuperNode; `arguments` are those of `flower-supernode`, and `--policy`."""
    os.umask(0o077)  # what it writes is for its own user alone
    os.environ.update(FLOWER_ENVIRONMENT)  # Flower reads them when it is imported
    arguments, file = take_policy(arguments)
    policy = load_policy(file)
    check_app(policy)
    open_site(Path(policy.state))
    os.environ[POLICY] = str(file)
    tries = int(os.environ.pop(TRIES, "0"))
    if tries:
        time.sleep(RETRY_AFTER)
    from flwr.supernode.cli.flower_supernode import flower_supernode

    port = option(arguments, "--port")[1] or str(DEFAULT_PORT)
    host = option(arguments, "--host")[1] or "127.0.0.1"
    resident = ResidentProcess(f"{host}:{port}")
    threading.Thread(target=resident.keep_running, daemon=True).start()
    signals = patch_flower()
    sys.argv = ["flower-supernode", *arguments, "--isolation", "process"]
    began = time.monotonic()
    code: object = 1
    try:
        flower_supernode()  # it returns if the server's answer was an error
    except SystemExit as end:
        code = end.code
    resident.stop()
    if time.monotonic() - began > CONNECTED:
        tries = 0
    is_operator = code in (None, 0) and not signals.has_ended_itself
    if is_operator or tries >= MAX_RETRIES:
        sys.exit(0 if is_operator else 1)
    # For a minute after a SuperNode lost its connection, the server refuses it as a duplicate.
    os.environ[TRIES] = str(tries + 1)
    again = [*arguments, "--policy", str(file)]
    os.execv(sys.executable, [sys.executable, "-m", "sofa_fl.deploy.flower.supernode", *again])


class SignalsToItself:
    """Replaces the module `os` where Flower ends its own process, to know that it did."""

    def __init__(self) -> None:
        self.has_ended_itself = False

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def kill(self, process: int, number: int) -> None:
        self.has_ended_itself = True
        os.kill(process, number)


def patch_flower() -> SignalsToItself:
    """Replace what hinders a SuperNode that is to stay; return whether it ends itself."""
    from flwr.supercore.retry import http_retry
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

    from sofa_fl.deploy.flower import flower_patches as patches

    patches.shorten_retries()
    patches.limit_waits(LONGEST_WAIT)
    worker: Any = start_client_internal  # what is patched is not its public interface
    worker.time = PollingTime()
    pull = patches.drop_ended_runs(worker._pull_and_store_message)
    worker._pull_and_store_message = patches.send_late_replies(pull)
    state: Any = InMemoryNodeState
    state._on_task_tokens_expired = patches.answer_lost_tasks(state._on_task_tokens_expired)
    connection: Any = fleet_http_connection
    connection.HeartbeatSender = patches.SteadyHeart
    signals = SignalsToItself()
    connection.os = signals
    retry: Any = http_retry
    retry.os = signals
    return signals


class ResidentProcess:
    """The process of the ClientApp; it is started again if it dies."""

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

    def keep_running(self) -> None:
        while not self.stopped.is_set():
            self.process = subprocess.Popen(self.command)
            self.process.wait()
            self.stopped.wait(1)

    def stop(self) -> None:
        self.stopped.set()
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def take_policy(arguments: Sequence[str]) -> tuple[list[str], Path]:
    """Split `--policy FILE` from the options of `flower-supernode`."""
    rest, value = option(arguments, "--policy")
    if value is None:
        raise ConfigError(
            "a node needs the policy of its site; create one with 'sofa-fl deploy site', and add "
            "--policy FILE"
        )
    return rest, Path(value).expanduser().resolve()


def option(arguments: Sequence[str], name: str) -> tuple[list[str], str | None]:
    """Split an option, `--name value` or `--name=value`, from others; its value, if it is there."""
    for at, argument in enumerate(arguments):
        if argument == name and at + 1 < len(arguments):
            return [*arguments[:at], *arguments[at + 2 :]], arguments[at + 1]
        if argument.startswith(f"{name}="):
            return [*arguments[:at], *arguments[at + 1 :]], argument.partition("=")[2]
    return list(arguments), None


if __name__ == "__main__":
    main(sys.argv[1:])
