"""The two Flower apps: a ServerApp that runs the rounds, a ClientApp that answers for a node."""

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

from sofa_fl.deploy.flower.flower_messages import GridPost, from_record, to_record
from sofa_fl.deploy.machine.disclosure import FileShelf, MemoryShelf, Shelf
from sofa_fl.deploy.machine.machine_data import LoadData, NodeConfig, NodeData, node_data
from sofa_fl.deploy.machine.site import Network, Site
from sofa_fl.deploy.server.serve import Server, Terms
from sofa_fl.deploy.transport.run_setup import Setup
from sofa_fl.deploy.transport.wire import Parcel
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import load_config
from sofa_fl.experiment.scoring.metric_names import metric_of, score_name
from sofa_fl.experiment.storage.run_folder import Event
from sofa_fl.report.page import write_report_at_end


def server_app(config: Path | str, network: Network | None = None) -> ServerApp:
    """The ServerApp that runs the configuration in this file; the app's own keys say the rest."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        given = context.run_config
        settings = str(given.get("set", "")).split()
        loaded = load_config(Path(config), settings)
        terms = Terms(
            run=Path(str(given.get("run", "runs/flower"))).expanduser(),
            clients=int(given.get("clients", 0)) or loaded.data.num_clients,
            most=int(given.get("most", 0)),
            leave=int(given.get("leave", 0)),
            timeout=float(given.get("timeout", 600)),
            transport="float16" if given.get("transport") == "float16" else "float32",
        )

        def say(line: str) -> None:
            log(INFO, line)

        def tell(event: Event) -> None:
            if event["event"] == "round":
                say(told(event))

        Server(GridPost(grid), loaded, terms, say).run(network, [tell, write_report_at_end])

    return app


def told(event: Event) -> str:
    """A round in one line of the server's log."""
    name, mean = score_name(metric_of(event)), event["client"]["mean"]
    return f"round {event['round']}/{event['rounds']}: mean {name} {mean:.4f}"


# Where a process answers more than one message: a resident node, or a simulation of many.
_data: dict[object, NodeData] = {}
_sites: dict[object, Site] = {}
NUM_KEPT = 32
RESIDENT = "SOFA_FL_RESIDENT"  # set where the next message comes to the same process


def client_app(load_data: LoadData, network: Network | None = None) -> ClientApp:
    """The ClientApp of a node whose samples `load_data` gives."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        began = time.perf_counter()
        asked = from_record(message.content)
        site = site_for(asked, context, load_data, network)
        prepared = time.perf_counter() - began
        reply = site.answer(asked)
        reply = Parcel({**reply.header, "prepared": prepared}, reply.arrays)
        return Message(to_record(reply), reply_to=message)

    app.train()(answer)
    app.evaluate()(answer)
    app.query()(answer)
    return app


def site_for(asked: Parcel, context: Context, load_data: LoadData, network: Network | None) -> Site:
    """The site that answers; kept, so that a process loads the samples once."""
    node = context.node_config
    who = (context.run_id, context.node_id)
    if who not in _data:
        _data[who] = node_data(load_data(node))
    setup = Setup.read(asked.header.get("setup"))
    if (who, setup) not in _sites:
        number = node.get("client", node.get("partition-id"))
        number = int(number) if number is not None else None
        _sites[who, setup] = Site(_data[who], setup, cap_of(node), number, network)
    for kept in (_data, _sites):
        while len(kept) > NUM_KEPT:
            del kept[next(iter(kept))]
    shelf: Shelf = MemoryShelf(_memory(context))
    if "state" in node:
        shelf = FileShelf(Path(str(node["state"])).expanduser())
    _sites[who, setup].keeps = RESIDENT in os.environ
    _sites[who, setup].shelf = shelf  # what Flower keeps comes anew with every message
    return _sites[who, setup]


def cap_of(node: NodeConfig) -> float:
    """What a node may ever give away: what it was started with, else nothing.

    A node of a simulation is no other machine, so there everything may be given.
    """
    if "max-disclosure" in node:
        cap = float(node["max-disclosure"])
        if not 0 <= cap <= 1:
            raise ConfigError(f"max-disclosure must be between 0 and 1, got {cap}")
        return cap
    ray = sys.modules.get("ray")  # in which Flower simulates
    simulated = ray is not None and "num-partitions" in node and ray.is_initialized()
    return 1.0 if simulated else 0.0


def _memory(context: Context) -> ConfigRecord:
    """Flower keeps this for the node from message to message."""
    if "sofa-fl" not in context.state:
        context.state["sofa-fl"] = ConfigRecord()
    found = context.state["sofa-fl"]
    assert isinstance(found, ConfigRecord)
    return found
