"""The server's side of a run: wait for the nodes, then the same rounds as anywhere."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sofa_fl.deploy.description import Card
from sofa_fl.deploy.office import Office, Post
from sofa_fl.deploy.remote import RemoteEngine
from sofa_fl.deploy.roster import Roster
from sofa_fl.deploy.setup import Setup
from sofa_fl.deploy.site import Network, factory_of
from sofa_fl.deploy.wire import GarbageError, Packer, Transport, check_version
from sofa_fl.errors import RunError
from sofa_fl.experiment.config import Config, config_to_dict, load_config
from sofa_fl.experiment.folder import Event, RunFolder
from sofa_fl.experiment.loop import Experiment, Observer, Own, Result
from sofa_fl.methods.base import Notes
from sofa_fl.sharing import foreign

NODES_FILE = "nodes.json"
EXCHANGES_FILE = "exchanges.jsonl"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a deployment runs.

    Attributes:
        run: The run folder on the server.
        clients: How many nodes to wait for before the first round.
        timeout: Seconds that an answer is waited for.
        transport: How models travel: `float32`, or `float16` at half the bytes.
    """

    run: Path
    clients: int
    timeout: float = 600.0
    transport: Transport = "float32"


class Server:
    """Everything between the post and the experiment."""

    def __init__(self, post: Post, config: Config, terms: Terms, say: Say = print) -> None:
        self.config, self.terms, self.say = config, terms, say
        terms.run.mkdir(parents=True, exist_ok=True)
        self.office = Office(post, terms.timeout, self.record)
        self.roster = Roster.load(terms.run / NODES_FILE)
        self.setup = Setup(
            seed=config.seed,
            holdout=config.data.holdout,
            local=config.local,
            model=config.model,
            transport=terms.transport,
        )

    def record(self, event: dict[str, Any]) -> None:
        with (self.terms.run / EXCHANGES_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time(), 3), **event}) + "\n")
        if "set_aside" in event:
            self.say(f"node {event['set_aside']} (client {event['client']}): {event['why']}")

    def look_around(self) -> dict[int, Card]:
        """Let known nodes take part again; return the cards of new ones that may."""
        hello = Packer().parcel(ask="hello", setup=self.setup.plain())
        roster, new = self.roster, dict[int, Card]()
        skip = roster.present | roster.barred.keys()
        for node, answer in self.office.greet(hello, skip).items():
            try:
                if isinstance(answer, str):
                    raise GarbageError(answer)
                check_version(answer)
                card = Card.read(answer)
            except GarbageError as error:
                self.turn_away(node, str(error))
                continue
            why = roster.welcome(node, card)
            if why == "unknown":
                others = [*new.values(), *(m.card for m in roster.members.values())]
                why = roster.refusal(card, others)
                if why is None:
                    new[node] = card
            if why is not None:
                self.turn_away(node, why)
        return new

    def turn_away(self, node: int, why: str) -> None:
        self.roster.set_aside(node, why, strike=True)
        self.record({"set_aside": str(node), "client": None, "why": why})

    def gather(self) -> None:
        """Wait until there are enough nodes; on a resumed run, a while for those of before."""
        waiting: dict[int, Card] = {}
        deadline = time.monotonic() + self.terms.timeout if self.roster.members else None
        pause = 0.05
        while True:
            waiting |= self.look_around()
            if self.roster.members:
                here = len(self.roster.present)
                late = deadline is not None and time.monotonic() > deadline
                if here == len(self.roster.members) or (here and late):
                    return
            elif len(waiting) >= self.terms.clients:
                self.roster.admit(waiting)
                return
            self.roster.present -= set(waiting)
            time.sleep(pause)
            pause = min(pause * 1.3, 1.0)

    def run(self, network: Network | None, observers: Sequence[Observer] = ()) -> Result:
        """All rounds, from the first or from where the folder left off."""
        folder = RunFolder(self.terms.run)
        if (summary := folder.summary()) is not None:
            raise RunError(f"the run in {folder.path} has ended; choose another folder ({summary})")
        self.say(f"waiting for {self.terms.clients} nodes")
        self.gather()
        data = self.roster.describe()
        self.setup = replace(self.setup, num_outputs=data.num_outputs)
        factory = factory_of(self.setup, tuple(data.train.x.shape[1:]), network)
        engine = RemoteEngine(self.office, self.roster, self.setup, factory)
        config = replace(self.config, out=str(folder.path))
        if folder.config_file.exists():
            config = replace(load_config(folder.config_file), out=str(folder.path))
        else:
            caps = {int(c): m.card.cap for c, m in self.roster.members.items()}
            config = capped(config, caps)
            write_config(folder, config)
        with Deployed(config, Own(data, factory, engine=engine), self) as experiment:
            saved = folder.saved_rounds()
            if not saved:
                return experiment.begin(folder, observers)
            experiment.restore(folder, saved[-1])
            experiment.announce(folder, saved[-1], observers)
            return experiment.go_on(folder, saved[-1], observers)


def capped(config: Config, caps: dict[int, float]) -> Config:
    """Plan with what the nodes said they would give; they keep to it in any case."""
    sharing = config.sharing
    lowest = {c: min(cap, sharing.cap_of(c)) for c, cap in caps.items()}  # type: ignore[arg-type]
    return replace(config, sharing=replace(sharing, max_disclosure=lowest))


def write_config(folder: RunFolder, config: Config) -> None:
    import yaml

    from sofa_fl.experiment.folder import write_text

    write_text(folder.config_file, yaml.safe_dump(config_to_dict(config), sort_keys=False))


class Deployed(Experiment):
    """An experiment whose clients are nodes."""

    def __init__(self, config: Config, own: Own, server: Server) -> None:
        super().__init__(config, own)
        self.server = server
        assert isinstance(own.engine, RemoteEngine)
        self.remote = own.engine

    def hand_over(self) -> Any:
        """A round begins: see who is there."""
        self.server.look_around()
        return super().hand_over()

    def close_round(
        self, folder: RunFolder, round: int, notes: Notes, observers: Sequence[Observer]
    ) -> None:
        view = self.method.view(self.state)
        rows = foreign(view.tree, view.shared.pools, self.fed.owned).values()
        self.remote.expect(np.unique(np.concatenate([*rows])))
        super().close_round(folder, round, notes, observers)


def tell(say: Say) -> Observer:
    """Says a line per round."""

    def observe(event: Event) -> None:
        if event["event"] == "round":
            mean = event["client"]["mean"]
            say(f"round {event['round']}/{event['rounds']}: accuracy {mean:.4f}")

    return observe
