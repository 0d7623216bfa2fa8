"""The server's side of a run: wait for the nodes, then the same rounds as anywhere."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from sofa_fl.deploy.machine.site import Network, factory_of
from sofa_fl.deploy.server.deployed_experiment import Deployed
from sofa_fl.deploy.server.described_data import Card
from sofa_fl.deploy.server.exchange import Office, Post
from sofa_fl.deploy.server.remote_engine import RemoteEngine
from sofa_fl.deploy.server.roster import Roster
from sofa_fl.deploy.transport.run_setup import Setup
from sofa_fl.deploy.transport.wire import GarbageError, Packer, Parcel, Transport, check_version
from sofa_fl.errors import RunError
from sofa_fl.experiment.run.config import Config, config_to_dict, load_config
from sofa_fl.experiment.run.launch import recorded_config
from sofa_fl.experiment.run.loop import Own, Result
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.tracking.observers import Observer, all_observers

NODES_FILE = "nodes.json"
EXCHANGES_FILE = "exchanges.jsonl"
SAY_EVERY = 30.0  # seconds between two lines while waiting
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a deployment runs.

    Attributes:
        run: The run folder on the server.
        clients: How many nodes to wait for before the first round.
        most: How many there may ever be, those who come later included; by default twice as many.
        leave: Rounds without a node after which it has left the federation; 0: it never has.
        timeout: Seconds that an answer is waited for.
        transport: How models travel: `float32`, or `float16` at half the bytes.
    """

    run: Path
    clients: int
    most: int = 0
    leave: int = 0
    timeout: float = 600.0
    transport: Transport = "float32"

    @property
    def room(self) -> int:
        return self.most or 2 * self.clients


class Server:
    """Everything between the post and the experiment."""

    def __init__(self, post: Post, config: Config, terms: Terms, say: Say = print) -> None:
        self.terms, self.say = terms, say
        self.folder = RunFolder(terms.run)
        if self.folder.summary() is not None:
            raise RunError(f"the run in {terms.run} has ended; choose another folder")
        terms.run.mkdir(parents=True, exist_ok=True)
        if self.folder.config_file.exists():
            config = load_config(self.folder.config_file)
        self.config = replace(config, out=str(terms.run))
        self.office = Office(post, terms.timeout, self.record)
        self.roster = Roster.load(terms.run / NODES_FILE, terms.room)
        self.setup = Setup(
            seed=config.seed,
            holdout=config.data.holdout,
            local=config.local,
            model=config.model,
            transport=terms.transport,
        )

    def run(self, network: Network | None = None, observers: Sequence[Observer] = ()) -> Result:
        """All rounds, from the first or from where the folder left off."""
        observers = all_observers(self.config.track, observers)
        self.gather()
        data = self.roster.describe()
        self.setup = replace(self.setup, num_outputs=data.num_outputs)
        factory = factory_of(self.setup, tuple(data.train.x.shape[1:]), network)
        engine = RemoteEngine(self.office, self.roster, self.setup, factory)
        own = Own(data, factory, engine=engine)
        if not self.folder.config_file.exists():
            self.config = recorded_config(self.config, own)
            text = yaml.safe_dump(config_to_dict(self.config), sort_keys=False)
            write_text(self.folder.config_file, text)
        with Deployed(self.config, own, engine, self.attend, self.terms.leave) as experiment:
            return experiment.run(self.folder, observers)

    def gather(self) -> None:
        """Wait until there are enough nodes; on a resumed run, a while for those of before."""
        known = sum(not member.is_gone for member in self.roster.members.values())
        self.say(f"waiting for {known or self.terms.clients} nodes")
        deadline = time.monotonic() + self.terms.timeout
        waiting: dict[int, Card] = {}
        pause, said = 0.05, time.monotonic()
        while True:
            waiting |= self.look_around(waiting)
            here = len(self.roster.present)
            if known and (here >= known or (here and time.monotonic() > deadline)):
                return
            if not known and len(waiting) >= self.terms.clients:
                self.roster.admit(waiting, since=0)
                return
            if time.monotonic() - said > SAY_EVERY:
                self.say(f"{max(here, len(waiting))} nodes are here, waiting for more")
                said = time.monotonic()
            time.sleep(pause)
            pause = min(pause * 1.3, 1.0)

    def attend(self) -> dict[int, Card]:
        """Look around, and if nobody is left, wait for somebody; the cards of new nodes."""
        new = self.look_around(resting=self.roster.resting())
        if not self.roster.present:
            self.say("no node is left; waiting for one")
        while not self.roster.present:
            time.sleep(1.0)
            new |= self.look_around(new)
        return new

    def look_around(
        self, waiting: dict[int, Card] | None = None, resting: Collection[int] = ()
    ) -> dict[int, Card]:
        """Let nodes that are known take part again; return the cards of others that may."""
        hello = Packer().parcel(ask="hello", setup=self.setup.plain())
        new: dict[int, Card] = {}
        busy = {*self.roster.present, *self.roster.barred, *(waiting or {}), *resting}
        for node, answer in self.office.greet(hello, busy).items():
            try:
                if isinstance(answer, str):
                    raise GarbageError(answer)
                check_version(answer)
                card = Card.read(answer)
                if self.roster.welcome(node, card):
                    continue
                members = [member.card for member in self.roster.members.values()]
                others = [*members, *(waiting or {}).values(), *new.values()]
                if (why := self.roster.refusal(node, card, others)) is not None:
                    raise GarbageError(why)
                new[node] = card
            except GarbageError as error:
                # Who has gone again before it could answer has done nothing wrong.
                self.roster.set_aside(node, str(error), strike=isinstance(answer, Parcel))
                self.record({"set_aside": str(node), "client": None, "why": str(error)})
        return new

    def record(self, event: dict[str, Any]) -> None:
        """Write down what happened between the machines, and say what a person should see."""
        with (self.terms.run / EXCHANGES_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time(), 3), **event}) + "\n")
        if "set_aside" in event:
            client = event["client"]
            who = f"node {event['set_aside']}" if client is None else f"client {client}"
            self.say(f"{who} is set aside: {event['why']}")
