"""The ServerApp of Flower, which runs the rounds."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from logging import INFO
from pathlib import Path

from flwr.app import Context
from flwr.common import log
from flwr.serverapp import Grid, ServerApp

from sofa_fl.deploy.flower.grid_messenger import GridMessenger
from sofa_fl.deploy.server.expected import expected_in
from sofa_fl.deploy.server.server import Server, ServerConfig
from sofa_fl.deploy.transport.run_setup import MakeNetwork
from sofa_fl.experiment.run.config import load_config
from sofa_fl.experiment.storage.events import Event, is_evaluated, metric_of, score_name
from sofa_fl.experiment.tracking.observers import at_end
from sofa_fl.report.page import write_run_report

PATIENCE = 60.0  # seconds for the server of a SuperLink that died to leave the run folder


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


def round_line(event: Event) -> str:
    """A round as one line of the server's log."""
    name, mean = score_name(metric_of(event)), event["client"]["mean"]
    old = "" if is_evaluated(event) else f" (of round {event['evaluated']})"
    return f"round {event['round']}/{event['rounds']}: mean {name} {mean:.4f}{old}"
