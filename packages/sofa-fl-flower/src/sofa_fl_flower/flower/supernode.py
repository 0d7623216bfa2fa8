"""Flower's SuperNode, with short polls and a resident process for the ClientApp.

Flower's `flower-supernode` polls every three seconds and starts a Python for each message. This
one polls often during a run, and keeps one process with torch and the samples loaded. Both speak
the same protocol and can be in one federation. It uses parts of Flower that are not its public
interface: the extra `flower` pins its version.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.storage.disk import write_bytes
from sofa_fl_flower.flower.node_site import POLICY
from sofa_fl_flower.machine.policy import check_app, load_policy
from sofa_fl_flower.machine.site import open_site

FLOWER_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
SHORTEST, LONGEST = 0.3, 1.0  # seconds between two polls: right after a message, and later
TRIES = "SOFA_FL_TRIES"  # how often it has lost or not found its server
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0  # seconds until it tries again: at first, and after a while
CONNECTED = 60.0  # seconds after which tries are counted from zero again
LONGEST_WAIT = 300.0  # seconds for the parts of a message
LOST = (
    "This machine has lost its server, or was refused; try {tries} follows in {seconds:.0f} s. "
    "A refusal (401) means that its key is not registered or that its clock is more than 5 s ahead "
    "of the server's; for a minute after a lost connection a server also refuses a duplicate."
)
DEFAULT_PORT = 9094  # Flower's default, at which the ClientApp's process connects
SECRET = "--superexec-auth-secret-file"  # what the ClientApp's process signs its requests with


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
        time.sleep(pause_after(tries))
    from flwr.supernode.cli.flower_supernode import flower_supernode

    port = option(arguments, "--port")[1] or str(DEFAULT_PORT)
    host = option(arguments, "--host")[1] or "127.0.0.1"
    secret = secrets.token_bytes(32)
    secret_file = write_secret(Path(policy.state), secret)
    resident = ResidentProcess(f"{host}:{port}", secret)
    watch = patch_flower(resident)
    ours = ["--isolation", "process", SECRET, str(secret_file)]
    sys.argv = ["flower-supernode", *arguments, *ours]
    began = time.monotonic()
    code = exit_code(flower_supernode)
    resident.stop()
    is_operator = code == 0 and not watch.has_ended_itself
    if is_operator or not watch.has_called:  # wrong options, which no later try will mend
        sys.exit(code)
    tries = 1 if time.monotonic() - began > CONNECTED else tries + 1
    say(LOST.format(seconds=pause_after(tries), tries=tries))
    # For a minute after a SuperNode lost its connection, the server refuses it as a duplicate.
    os.environ[TRIES] = str(tries)
    again = [*arguments, "--policy", str(file)]
    os.execv(sys.executable, [sys.executable, "-m", "sofa_fl_flower.flower.supernode", *again])


def write_secret(state: Path, secret: bytes) -> Path:
    """Write the secret that Flower asks for at its port, which all users of this computer reach.

    Without one, it would give the site's work to whoever asks first.
    """
    file = state / "runtime-secret"
    write_bytes(file, secret, mode=0o600)
    return file


def exit_code(flower_supernode: Callable[[], None]) -> int:
    """Run Flower's SuperNode; the code that it ends with, 1 if its server's answer was an error."""
    try:
        flower_supernode()  # it returns if the server's answer was an error
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return 0
    except BaseException as error:  # Flower's own for 403 is no `Exception`
        say(f"Flower's SuperNode failed: {error!r}")
    return 1


def pause_after(tries: int) -> float:
    """Seconds until the next try."""
    return min(FIRST_PAUSE * 1.5 ** min(max(tries - 5, 0), 10), LONGEST_PAUSE)


def say(line: str) -> None:
    """Tell the site's operator; Flower has ended, and its log with it."""
    print(line, file=sys.stderr, flush=True)


class Watch:
    """What Flower's SuperNode does; it replaces the module `os` where Flower ends its process.

    Attributes:
        has_called: Whether it has tried to connect.
        has_ended_itself: Whether it has sent its own process a signal.
    """

    def __init__(self) -> None:
        self.has_called = self.has_ended_itself = False

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def kill(self, process: int, number: int) -> None:
        self.has_ended_itself = True
        os.kill(process, number)

    def watched(
        self, connect: Callable[..., AbstractContextManager[Any]], on_connected: Callable[[], None]
    ) -> Callable[..., AbstractContextManager[Any]]:
        """Note when it connects, and say so once it has."""

        @contextmanager
        def connection(**given: Any) -> Iterator[Any]:
            self.has_called = True
            with connect(**given) as found:
                on_connected()
                yield found

        return connection


def patch_flower(resident: ResidentProcess) -> Watch:
    """Replace what hinders a SuperNode that is to stay; return what it does.

    The process of the ClientApp starts when there is a server.
    """
    from flwr.supercore.retry import http_retry
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

    from sofa_fl_flower.flower import flower_patches as patches
    from sofa_fl_flower.flower.bounded_bodies import send_bounded

    patches.shorten_retries()
    patches.limit_waits(LONGEST_WAIT)
    watch = Watch()
    worker: Any = start_client_internal  # what is patched is not its public interface
    worker.time = PollingTime()
    worker._init_connection = watch.watched(worker._init_connection, resident.start)
    pull = patches.drop_ended_runs(worker._pull_and_store_message)
    worker._pull_and_store_message = patches.send_late_replies(pull)
    state: Any = InMemoryNodeState
    state._on_task_tokens_expired = patches.answer_lost_tasks(state._on_task_tokens_expired)
    client: Any = FleetHttpClient
    client._send = send_bounded
    connection: Any = fleet_http_connection
    connection.HeartbeatSender = patches.SteadyHeart
    connection.os = watch
    retry: Any = http_retry
    retry.os = watch
    return watch


class ResidentProcess:
    """The process of the ClientApp; it is started again if it dies.

    It gets the secret by its standard input, which no other user can see.
    """

    def __init__(self, address: str, secret: bytes) -> None:
        command = [
            sys.executable,
            "-m",
            "sofa_fl_flower.flower.app_process",
            address,
            str(os.getpid()),
        ]
        self.command, self.secret, self.stopped = command, secret, threading.Event()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        threading.Thread(target=self.keep_running, daemon=True).start()

    def keep_running(self) -> None:
        while not self.stopped.is_set():
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE)
            self.process.communicate(self.secret)  # until it ends
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
