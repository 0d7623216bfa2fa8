"""The ServerApp of Flower, which runs the rounds, and Flower's grid as the server's messenger."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from logging import INFO, WARNING
from pathlib import Path
from typing import TypeVar

import httpx
from flwr.app import Context, Message, RecordDict
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.superlink.grid import HttpGrid

from sofa_fl.experiment.run.config import load_config
from sofa_fl.experiment.storage.events import Event, is_evaluated, metric_of, score_name
from sofa_fl.experiment.tracking.observers import at_end
from sofa_fl.report.page import write_run_report
from sofa_fl_flower.flower.flower_messages import (
    PUBLIC,
    from_record,
    in_batches,
    is_sealed,
    new_key,
    seal,
    to_record,
)
from sofa_fl_flower.flower.inbox import Inbox, Pulled
from sofa_fl_flower.masked_sum.masks import public_of
from sofa_fl_flower.server.exchange import Answer
from sofa_fl_flower.server.expected import expected_in
from sofa_fl_flower.server.server import Server, ServerConfig
from sofa_fl_flower.transport.message_checks import MessageError
from sofa_fl_flower.transport.run_setup import MakeNetwork
from sofa_fl_flower.transport.wire_message import REFUSED, UNREADABLE, WireMessage

SITES_FILE = ".flwr/sites.txt"  # beside Flower's database, whose ids of machines it has
MAX_ANSWER = 1_000_000_000  # bytes
TRIES, PAUSE = 5, 1.0  # if the SuperLink fails, and the seconds between two

T = TypeVar("T")
PATIENCE = 60.0  # seconds for the server of a SuperLink that died to leave the run folder


class GridMessenger:
    """Sends messages over Flower's grid, without its pauses of three seconds.

    They are encrypted for every machine that has told its key, as all do with their first answer.
    From then on a machine's answers must be encrypted, too, and prove that they come from its site.
    An answer whose parts do not all arrive is as good as none, and costs no other machine time.
    """

    def __init__(self, grid: Grid, timeout: float, max_bytes: int = MAX_ANSWER) -> None:
        self.grid = grid
        self.key = new_key()
        self.keys: dict[int, str] = {}  # of machines
        # The machine of each message that is not answered, and the key it was encrypted with.
        self._sent: dict[str, int] = {}
        self._sent_with: dict[str, str | None] = {}
        # A simulation has a grid in memory: it has no connection, and no machine of somebody else.
        self._inbox = Inbox(grid, timeout, max_bytes) if isinstance(grid, HttpGrid) else None

    def machines(self) -> set[int]:
        return set(patiently(self.grid.get_node_ids, ()))

    def send(
        self, messages: Mapping[int, WireMessage], kind: str, seconds: float
    ) -> dict[int, str]:
        """Send in batches: one request announces a batch, and its parts travel in parallel."""
        sent: dict[int, str] = {}
        # A hello holds no secret, and asks for the key, which may be new.
        keys = {
            machine: self.keys.get(machine) if kind != "query" else None for machine in messages
        }
        for batch in in_batches(messages):
            flower_messages = [
                Message(self._record_for(message, keys[machine]), machine, kind, ttl=seconds)
                for machine, message in batch.items()
            ]
            ids = patiently(partial(self.grid.push_messages, flower_messages), ())
            sent |= {machine: id for machine, id in zip(batch, ids) if id}
        self._sent |= {id: machine for machine, id in sent.items()}
        self._sent_with |= {id: keys[machine] for machine, id in sent.items()}
        return sent

    def _record_for(self, message: WireMessage, public: str | None) -> RecordDict:
        header = {**message.header, PUBLIC: public_of(self.key)}
        return to_record(WireMessage(header, message.arrays), public)

    def collect(self, ids: Iterable[str]) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        for id, message in self._pull(list(ids)).items():
            # Who has answered is known by what was asked; what an answer says of it may be forged.
            machine, public = self._sent.pop(id, None), self._sent_with.pop(id, None)
            if machine is None:
                continue
            try:
                answers[id] = self._read(machine, public, message)
            except MessageError as error:
                answers[id] = WireMessage({UNREADABLE: str(error)})
        return answers

    def _pull(self, ids: list[str]) -> Mapping[str, Pulled]:
        if self._inbox is not None:
            return self._inbox.pull(ids)
        found = self.grid.pull_messages(ids)
        return {message.metadata.reply_to_message_id: message for message in found}

    def _read(self, machine: int, public: str | None, message: Pulled) -> Answer:
        """Read an answer; `public` is the key that the question was encrypted with, if it was."""
        if isinstance(message, MessageError):
            raise message
        if isinstance(message, str):
            return message
        if message.has_error():
            return f"{message.error.code}: {message.error.reason}"
        is_secret = is_sealed(message.content)
        if public is not None and not is_secret:  # a site that cannot read its own key says so
            said = from_record(message.content).header.get(REFUSED)
            return f"its answer must be encrypted, but is not{f'; it says: {said}' if said else ''}"
        answer = from_record(message.content, self.key, public)
        if public is not None or REFUSED in answer.header:
            return answer
        if (told := answer.header.get(PUBLIC)) is not None:
            seal(b"", str(told))  # whether it is a key
            self.keys[machine] = str(told)
        if self._inbox is not None and (told is None or not is_secret):
            raise MessageError("the answer to a hello must be encrypted, and tell a key")
        return answer


def patiently(call: Callable[[], Iterable[T]], otherwise: Iterable[T]) -> Iterable[T]:
    """Call the SuperLink again if it fails; a run need not end with one bad answer."""
    for left in reversed(range(TRIES)):
        try:
            return call()
        except (httpx.HTTPStatusError, ObjectPushError) as error:
            log(WARNING, "The SuperLink failed; %d tries left: %s", left, error)
            time.sleep(PAUSE if left else 0)
    return otherwise


def server_app(config: Path | str, network: MakeNetwork | None = None) -> ServerApp:
    """Return the ServerApp that runs the configuration in a file.

    The app's own keys, in its pyproject.toml, say how the machines work together.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        os.umask(0o077)  # models and records are for the operator alone
        end_with_parent(sys.argv)
        given = context.run_config
        loaded = load_config(Path(config), str(given.get("set", "")).split())
        server_config = ServerConfig(
            run=run_folder(str(given.get("run", "runs/flower"))),
            expected=expected_in(given),
            clients=int(given.get("clients", 0)) or loaded.data.num_clients,
            most=int(given.get("most", 0)),
            leave=int(given.get("leave", 0)),
            timeout=float(given.get("timeout", 600)),
            transport="float16" if given.get("transport") == "float16" else "float32",
            secure_aggregation=int(given.get("secure_aggregation", 0)),
            patience=PATIENCE,
            sites=sites_file() if isinstance(grid, HttpGrid) else None,
        )

        def write_line(line: str) -> None:
            log(INFO, line)

        def log_round(event: Event) -> None:
            if event["event"] == "round":
                write_line(round_line(event))

        max_bytes = int(float(given.get("max_answer", 1000)) * 1_000_000)
        messenger = GridMessenger(grid, server_config.timeout, max_bytes)
        server = Server(messenger, loaded, server_config, write_line)
        server.run(network, [log_round, at_end(write_run_report)])

    return app


def end_with_parent(arguments: Sequence[str]) -> None:
    """End this process, and let go of the run folder, when the SuperLink that started it dies.

    Flower does it with a signal to itself, from a thread; if the main thread waits for answers, it
    does not notice until they have come.
    """
    if "--parent-pid" not in arguments[:-1]:
        return
    parent = int(arguments[arguments.index("--parent-pid") + 1])
    main = threading.main_thread().ident
    if os.getppid() != parent or main is None:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


def run_folder(name: str) -> Path:
    """A run folder by its name: below the folder whose `env.sh` was sourced, unless absolute."""
    return Path(os.environ.get("SOFA_FL_APP", ".")) / Path(name).expanduser()


def sites_file() -> Path | None:
    """Where the site of every machine is kept, if the folder of the app is known."""
    app = os.environ.get("SOFA_FL_APP")
    return Path(app) / SITES_FILE if app else None


def round_line(event: Event) -> str:
    """A round as one line of the server's log."""
    name, mean = score_name(metric_of(event)), event["client"]["mean"]
    old = "" if is_evaluated(event) else f" (of round {event['evaluated']})"
    return f"round {event['round']}/{event['rounds']}: mean {name} {mean:.4f}{old}"
