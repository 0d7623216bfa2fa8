"""The two Flower apps: a ServerApp that runs the rounds, a ClientApp that answers for a machine."""

from __future__ import annotations

import os
import sys
import time
from logging import INFO
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.common import log
from flwr.serverapp import Grid, ServerApp

from sofa_fl.deploy.flower.flower_messages import GridMessenger, from_record, to_record
from sofa_fl.deploy.machine.client_machine import ClientMachine
from sofa_fl.deploy.machine.disclosure import FileStore, MemoryStore
from sofa_fl.deploy.machine.machine_data import (
    LoadData,
    MachineConfig,
    MachineData,
    as_machine_data,
)
from sofa_fl.deploy.server.server import Server, ServerConfig
from sofa_fl.deploy.transport.run_setup import MakeNetwork, RunSetup
from sofa_fl.deploy.transport.wire_message import WireMessage
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import load_config
from sofa_fl.experiment.scoring.metric_names import metric_of, score_name
from sofa_fl.experiment.storage.run_folder import Event
from sofa_fl.report.page import write_report_at_end

RESIDENT = "SOFA_FL_RESIDENT"  # set where the next message comes to the same process
MAX_MACHINES = 32  # that one process of a simulation remembers


def server_app(config: Path | str, network: MakeNetwork | None = None) -> ServerApp:
    """Return the ServerApp that runs the configuration in a file.

    The app's own keys, in its pyproject.toml, say how the machines work together.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        given = context.run_config
        loaded = load_config(Path(config), str(given.get("set", "")).split())
        server_config = ServerConfig(
            run=run_folder(str(given.get("run", "runs/flower"))),
            clients=int(given.get("clients", 0)) or loaded.data.num_clients,
            most=int(given.get("most", 0)),
            leave=int(given.get("leave", 0)),
            timeout=float(given.get("timeout", 600)),
            transport="float16" if given.get("transport") == "float16" else "float32",
        )

        def write_line(line: str) -> None:
            log(INFO, line)

        def log_round(event: Event) -> None:
            if event["event"] == "round":
                write_line(round_line(event))

        server = Server(GridMessenger(grid), loaded, server_config, write_line)
        server.run(network, [log_round, write_report_at_end])

    return app


def run_folder(name: str) -> Path:
    """A run folder by its name: below the folder whose `env.sh` was sourced, unless absolute."""
    return Path(os.environ.get("SOFA_FL_APP", ".")) / Path(name).expanduser()


def round_line(event: Event) -> str:
    """A round as one line of the server's log."""
    name, mean = score_name(metric_of(event)), event["client"]["mean"]
    return f"round {event['round']}/{event['rounds']}: mean {name} {mean:.4f}"


# For a process that answers more than one message: a resident one, or a simulation of many.
_data: dict[object, MachineData] = {}
_machines: dict[object, ClientMachine] = {}


def client_app(load_data: LoadData, network: MakeNetwork | None = None) -> ClientApp:
    """Return the ClientApp of a machine whose samples `load_data` returns."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        began = time.perf_counter()
        question = from_record(message.content)
        machine = machine_for(question, context, load_data, network)
        prepared = time.perf_counter() - began
        reply = machine.answer(question)
        reply = WireMessage({**reply.header, "prepared": prepared}, reply.arrays)
        return Message(to_record(reply), reply_to=message)

    app.train()(answer)
    app.evaluate()(answer)
    app.query()(answer)
    return app


def machine_for(
    message: WireMessage, context: Context, load_data: LoadData, network: MakeNetwork | None
) -> ClientMachine:
    """Return the machine that answers; it is remembered, so that a process loads samples once."""
    config = context.node_config
    who = (context.run_id, context.node_id)
    if who not in _data:
        _data[who] = as_machine_data(load_data(config))
    setup = RunSetup.from_dict(message.header.get("setup"))
    if (who, setup) not in _machines:
        number = config.get("client", config.get("partition-id"))
        number = int(number) if number is not None else None
        _machines[who, setup] = ClientMachine(_data[who], setup, cap_of(config), number, network)
    for remembered in (_data, _machines):
        while len(remembered) > MAX_MACHINES:
            del remembered[next(iter(remembered))]
    machine = _machines[who, setup]
    machine.caches_models = RESIDENT in os.environ
    if "state" in config:
        machine.store = FileStore(Path(str(config["state"])).expanduser())
    else:  # Flower brings it back with every message
        machine.store = MemoryStore(_flower_state(context))
    return machine


def cap_of(config: MachineConfig) -> float:
    """The fraction of its samples that a machine may ever disclose; by default none.

    In a simulation it is all of them, since they leave no machine.
    """
    if "max-disclosure" in config:
        cap = float(config["max-disclosure"])
        if not 0 <= cap <= 1:
            raise ConfigError(
                f"max-disclosure must be between 0 and 1, got {cap}; change it in --node-config"
            )
        return cap
    ray = sys.modules.get("ray")  # in which Flower simulates
    is_simulated = ray is not None and "num-partitions" in config and ray.is_initialized()
    return 1.0 if is_simulated else 0.0


def _flower_state(context: Context) -> ConfigRecord:
    """What Flower keeps for a machine from message to message."""
    if "sofa-fl" not in context.state:
        context.state["sofa-fl"] = ConfigRecord()
    state = context.state["sofa-fl"]
    assert isinstance(state, ConfigRecord)
    return state
