"""The ClientApp of Flower, which answers for a machine; it imports nothing of the server's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from logging import ERROR
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import log

from sofa_fl.errors import SofaError
from sofa_fl_flower.flower.flower_messages import (
    PUBLIC,
    from_record,
    is_sealed,
    sealing_key_of,
    to_record,
)
from sofa_fl_flower.flower.node_site import simulated_site, site_of
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import LoadData, MachineData, as_machine_data
from sofa_fl_flower.machine.policy import Policy
from sofa_fl_flower.machine.site import Site, audit_nothing
from sofa_fl_flower.masked_sum.masks import public_of
from sofa_fl_flower.transport.message_checks import MessageError, safe_reason, shown
from sofa_fl_flower.transport.run_setup import MakeNetwork, RunSetup
from sofa_fl_flower.transport.wire_message import WireMessage, asked_in, left_in, refusal

RESIDENT = "SOFA_FL_RESIDENT"  # set where the next message comes to the same process
MAX_MACHINES = 32  # that one process of a simulation remembers

# For a process that answers more than one message: a resident one, or a simulation of many.
_data: dict[object, MachineData] = {}
_machines: dict[object, ClientMachine] = {}


class MachineApp(ClientApp):
    """A ClientApp that says what it is made of, so that a site can be checked without a server."""

    def __init__(self, load_data: LoadData, network: MakeNetwork | None) -> None:
        super().__init__()
        self.load_data, self.network = load_data, network


def client_app(load_data: LoadData, network: MakeNetwork | None = None) -> MachineApp:
    """Return the ClientApp of a machine whose samples `load_data` returns."""
    app = MachineApp(load_data, network)

    def answer(message: Message, context: Context) -> Message:
        began = time.perf_counter()
        audit: Callable[[dict[str, Any]], None] = audit_nothing
        entry: dict[str, Any] = {"run": str(context.run_id)}
        key, public = None, None
        try:
            policy, site = site_of(context.node_config)
            if site is not None:
                audit, key = site.audit, sealing_key_of(site.key)
            question = from_record(message.content, key)
            public = question.header.get(PUBLIC)
            entry["asked"] = asked_in(question)
            if site is not None:
                check_sender(question, message.content)
            machine = machine_for(question, context, load_data, network, policy, site)
            prepared = time.perf_counter() - began
            reply = machine.answer(question)
            reply = WireMessage({**reply.header, "prepared": prepared}, reply.arrays)
            entry["left"] = left_in(reply)
        except Exception as error:  # whatever it is, what leaves is on record
            entry["refused"] = shown(f"{type(error).__name__}: {error}")
            reply = refusal(safe_reason(error))
            is_bug = not isinstance(error, SofaError)
            log(
                ERROR,
                "declined a message: %s",
                entry["refused"],
                exc_info=error if is_bug else None,
            )
        audit(entry)  # nothing leaves that is not on record
        content = sealed(reply, key, public, proves=is_sealed(message.content))
        return Message(content, reply_to=message)

    app.train()(answer)
    app.evaluate()(answer)
    app.query()(answer)
    return app


def check_sender(question: WireMessage, record: RecordDict) -> None:
    """Take work only from the server, which alone has been told the site's key to encrypt with.

    Flower delivers whatever claims to come from the server.
    """
    if question.header.get("ask") != "hello" and not is_sealed(record):
        raise MessageError("a request for work must be encrypted with the key of this site")


def sealed(
    reply: WireMessage, key: X25519PrivateKey | None, public: object, *, proves: bool
) -> RecordDict:
    """A reply, encrypted for the server if it has told its key; a simulation has none.

    It `proves` that it is from this site, if the server knows the site's key already.
    """
    if key is None or not isinstance(public, str):
        return to_record(reply)
    header = {**reply.header, PUBLIC: public_of(key)}
    return to_record(WireMessage(header, reply.arrays), public, key if proves else None)


def machine_for(
    message: WireMessage,
    context: Context,
    load_data: LoadData,
    network: MakeNetwork | None,
    policy: Policy,
    site: Site | None,
) -> ClientMachine:
    """Return the machine that answers; it is remembered, so that a process loads samples once."""
    config = context.node_config
    who = (context.run_id, context.node_id)
    if who not in _data:
        _data[who] = as_machine_data(load_data(config))
    setup = RunSetup.from_dict(message.header.get("setup"))
    if who not in _machines or _machines[who].setup != setup:
        number = config.get("client", config.get("partition-id"))
        number = int(number) if number is not None else None
        if site is None:
            site = simulated_site(_data[who], number)
            policy = replace(policy, model=setup.model, name=_data[who].name)
        _machines[who] = ClientMachine(_data[who], setup, policy, site, number, network)
    for remembered in (_data, _machines):
        while len(remembered) > MAX_MACHINES:
            del remembered[next(iter(remembered))]
    machine = _machines[who]
    machine.caches_models = RESIDENT in os.environ
    return machine
