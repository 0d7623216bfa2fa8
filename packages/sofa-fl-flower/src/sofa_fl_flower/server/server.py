"""The server of a run: wait for the machines, then run the rounds of any experiment."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from sofa_fl.errors import RunError
from sofa_fl.experiment.run.config import Config, config_to_dict, load_config
from sofa_fl.experiment.run.launch import recorded_config
from sofa_fl.experiment.run.loop import Own, RunResult
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.tracking.observers import Observer, all_observers
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import NetworkFactory, build
from sofa_fl_flower.server.deployed_experiment import DeployedExperiment
from sofa_fl_flower.server.exchange import Exchange, Messenger, accepted, flaw_of_answer
from sofa_fl_flower.server.expected import Expected
from sofa_fl_flower.server.known_sites import KnownSites
from sofa_fl_flower.server.received import FILE as LEFT_FILE
from sofa_fl_flower.server.received import Received
from sofa_fl_flower.server.remote_engine import RemoteEngine
from sofa_fl_flower.server.roster import Roster
from sofa_fl_flower.server.summing_engine import SummingEngine
from sofa_fl_flower.server.summing_method import check_summing
from sofa_fl_flower.transport.machine_profile import MachineProfile
from sofa_fl_flower.transport.message_checks import MessageError, RefusalError
from sofa_fl_flower.transport.run_setup import MakeNetwork, RunSetup
from sofa_fl_flower.transport.wire_message import MessageBuilder, ModelType, WireMessage

ROSTER_FILE = "nodes.json"
EXCHANGES_FILE = "exchanges.jsonl"
ASK_AGAIN = 60.0  # seconds after which a machine that declined is greeted again
LOG_EVERY = 30.0  # seconds between two lines while waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How the server runs a deployment.

    Attributes:
        run: The run folder on the server.
        expected: What the samples of all machines must be.
        clients: How many machines to wait for before the first round.
        most: How many clients there may ever be; 0: twice as many as `clients`.
        leave: Rounds without a machine after which its client leaves; 0: it never does.
        timeout: Seconds to wait for an answer.
        transport: How models travel: `float32`, or `float16` in half the bytes.
        secure_aggregation: The smallest number of machines whose models are summed before the
            server learns them; 0: it learns the model of each.
        patience: Seconds to wait for another server in this run folder to end.
        sites: The file with the site of every machine, for all runs; None: there is none.
    """

    run: Path
    expected: Expected
    clients: int
    most: int = 0
    leave: int = 0
    timeout: float = 600.0
    transport: ModelType = "float32"
    secure_aggregation: int = 0
    patience: float = 0.0
    sites: Path | None = None


class Server:
    """Connects a messenger with an experiment."""

    def __init__(
        self,
        messenger: Messenger,
        config: Config,
        server_config: ServerConfig,
        log: Callable[[str], None] = print,
    ) -> None:
        self.server_config, self.log = server_config, log
        self.folder = RunFolder(server_config.run)
        self.exchange = Exchange(messenger, server_config.timeout, self.record)
        self.sites = KnownSites(server_config.sites)
        self.declined: dict[int, float] = {}  # when each machine last declined to take part
        with ExitStack() as stack:
            self._lock_folder(stack)
            self._prepare(config)
            self._lock = stack.pop_all()  # until the run has ended

    def _lock_folder(self, stack: ExitStack) -> None:
        """Keep the run folder; a server whose SuperLink died may need a moment to leave it."""
        try:
            stack.enter_context(self.folder.locked())
        except RunError as error:
            patience = self.server_config.patience
            if not patience:
                raise
            self.log(f"{error}; waiting up to {patience:g} s")
            stack.enter_context(self.folder.locked(patience))

    def close(self) -> None:
        """Let go of the run folder; `run` does so by itself."""
        self._lock.close()

    def _prepare(self, config: Config) -> None:
        """Read what the run folder has of the run."""
        run, expected = self.server_config.run, self.server_config.expected
        if self.folder.summary() is not None:
            raise RunError(f"the run in {run} has ended; choose another folder")
        if self.folder.config_file.exists():
            config = load_config(self.folder.config_file)
        self.config = replace(config, out=str(run))
        if smallest := self.server_config.secure_aggregation:
            check_summing(self.config, smallest)
        max_clients = self.server_config.most or 2 * self.server_config.clients
        self.roster = Roster.load(run / ROSTER_FILE, max_clients, expected)
        self.setup = RunSetup(
            seed=config.seed,
            num_outputs=expected.num_outputs,
            local=config.local,
            model=config.model,
            transport=self.server_config.transport,
        )

    def run(
        self, make_network: MakeNetwork | None = None, observers: Sequence[Observer] = ()
    ) -> RunResult:
        """Run all rounds, from the first or from where the folder left off."""
        with self._lock:
            return self._run(make_network, observers)

    def _run(self, make_network: MakeNetwork | None, observers: Sequence[Observer]) -> RunResult:
        observers = all_observers(self.config.track, observers)
        if make_network is not None:  # what it does not train never travels: machines have it
            shape = self.server_config.expected.format.input[1]
            known = FlatNetwork(build(self.setup.network_factory(shape, make_network), 0))
            self.setup = replace(self.setup, frozen=known.frozen_digest)
        self.wait_for_machines()
        data = self.roster.describe()
        factory = self.setup.network_factory(tuple(data.train.x.shape[1:]), make_network)
        engine = self._engine(factory)
        own = Own(data, factory if make_network else None, engine=engine)
        if not self.folder.config_file.exists():
            self.config = recorded_config(self.config, own)
            text = yaml.safe_dump(config_to_dict(self.config), sort_keys=False)
            write_text(self.folder.config_file, text)
        leave = self.server_config.leave
        with DeployedExperiment(self.config, own, engine, self.attend, leave) as experiment:
            return experiment.run(self.folder, observers)

    def _engine(self, factory: NetworkFactory) -> RemoteEngine:
        received = Received(self.server_config.run / LEFT_FILE)
        parts = self.exchange, self.roster, self.setup, factory, received
        if smallest := self.server_config.secure_aggregation:
            return SummingEngine(*parts, smallest)
        return RemoteEngine(*parts)

    def wait_for_machines(self) -> None:
        """Wait until enough machines are present; in a resumed run, no longer than `timeout`."""
        known = sum(not member.has_left for member in self.roster.members.values())
        self.log(f"waiting for {known or self.server_config.clients} machines")
        deadline = time.monotonic() + self.server_config.timeout
        waiting: dict[int, MachineProfile] = {}
        pause, logged = 0.05, time.monotonic()
        while True:
            waiting |= self.greet(waiting)
            present = len(self.roster.present)
            if known and (present >= known or (present and time.monotonic() > deadline)):
                return
            if not known and len(waiting) >= self.server_config.clients:
                self.roster.admit(waiting, since=0)
                return
            if time.monotonic() - logged > LOG_EVERY:
                self.log(f"{max(present, len(waiting))} machines are present, waiting for more")
                logged = time.monotonic()
            time.sleep(pause)
            pause = min(pause * 1.3, 1.0)

    def attend(self) -> dict[int, MachineProfile]:
        """Greet machines, wait until at least one is present, and return profiles of new ones."""
        new = self.greet(resting=self.roster.take_resting())
        if not self.roster.present:
            self.log("no machine is present; waiting for one")
        while not self.roster.present:
            time.sleep(1.0)
            new |= self.greet(new)
        return new

    def greet(
        self, waiting: dict[int, MachineProfile] | None = None, resting: Collection[int] = ()
    ) -> dict[int, MachineProfile]:
        """Let known machines take part again; return the profiles of others that may."""
        hello = MessageBuilder().message(ask="hello", setup=self.setup.to_dict())
        new: dict[int, MachineProfile] = {}
        now = time.monotonic()
        declined = {machine for machine, at in self.declined.items() if now - at < ASK_AGAIN}
        skipped = {*self.roster.present, *self.roster.barred, *(waiting or {}), *resting, *declined}
        for machine, answer in self.exchange.greet(hello, skipped).items():
            try:
                profile = MachineProfile.read(accepted(answer))
                if (why := self.sites.refusal(machine, profile.identity)) is not None:
                    raise RefusalError(why)
                if self.roster.readmit(machine, profile):
                    self.sites.add(machine, profile.identity)
                    continue
                members = [member.profile for member in self.roster.members.values()]
                others = [*members, *(waiting or {}).values(), *new.values()]
                if (why := self.roster.refusal(machine, profile, others)) is not None:
                    raise MessageError(why)
                self.sites.add(machine, profile.identity)
                new[machine] = profile
            # Whatever one machine sent, the run goes on without it.
            except Exception as error:
                # A machine that declined, or was gone before it could answer, gets no strike.
                if is_refusal := isinstance(error, RefusalError):
                    self.declined[machine] = now
                is_wrong = isinstance(answer, WireMessage) and not is_refusal
                why = flaw_of_answer(error)
                self.roster.set_aside(machine, why, strike=is_wrong)
                self.record({"set_aside": str(machine), "client": None, "why": why})
        return new

    def record(self, event: dict[str, Any]) -> None:
        """Append to the log of exchanges, and print what a person should see."""
        with (self.server_config.run / EXCHANGES_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time(), 3), **event}) + "\n")
        if "set_aside" in event:
            client = event["client"]
            who = f"machine {event['set_aside']}" if client is None else f"client {client}"
            self.log(f"{who} is set aside: {event['why']}")
        if "no_sum" in event:
            clients = ", ".join(map(str, event["no_sum"]))
            self.log(f"no model of clients {clients} is used in this round: {event['why']}")
