"""The experiment of a deployment: each round admits new machines and plans within all caps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sofa_fl.data.federated_data import Samples
from sofa_fl.errors import ConfigError, DataError
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.loop import Experiment, Own
from sofa_fl.experiment.scoring.metrics import Examiner
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.tracking.observers import Observer
from sofa_fl.federation import Federation
from sofa_fl.methods.method import Method, Notes
from sofa_fl.methods.registry import make_method
from sofa_fl.sharing import foreign
from sofa_fl_flower.server.remote_engine import NO_ROWS, RemoteEngine
from sofa_fl_flower.server.roster import Roster
from sofa_fl_flower.server.summing_engine import SummingEngine
from sofa_fl_flower.server.summing_method import masks_in, summing_method
from sofa_fl_flower.transport.machine_profile import MachineProfile


class DeployedExperiment(Experiment):
    """The rounds of any experiment, with an attendance check in each.

    Args:
        attend: Lets known machines take part again, waits until at least one is present, and
            returns the profiles of new ones.
        patience: Rounds without a machine after which its client leaves; 0: it never does.
    """

    def __init__(
        self,
        config: Config,
        own: Own,
        engine: RemoteEngine,
        attend: Callable[[], dict[int, MachineProfile]],
        patience: int = 0,
    ) -> None:
        if own.metrics:
            raise ConfigError(
                "your own metrics are not available in a deployment, because samples stay on the "
                "machines; run without metrics"
            )
        if isinstance(engine, SummingEngine):
            engine.masks = masks_in(config, 0)
        super().__init__(within_caps(config, engine.roster), own)
        self.remote, self.attend, self.patience = engine, attend, patience
        self.method = self.planned_method()
        self.examiner = OwnTestExaminer(self.fed)
        self.newcomers: dict[int, MachineProfile] = {}
        self.last_round = time.monotonic(), replace(engine.exchange.traffic)

    def enter(self, round: int) -> Federation:
        """Begin a round: add newcomers, and drop clients that have been away for long."""
        roster = self.remote.roster
        new = self.newcomers | self.attend()
        self.newcomers = {}
        if new:
            roster.admit(new, since=round)
        if roster.update_membership(round, self.patience) or new:
            self.fed = replace(self.fed, data=roster.describe())
            self.config = within_caps(self.config, roster)
            self.method = self.planned_method()
        if isinstance(self.remote, SummingEngine):
            self.remote.masks = masks_in(self.config, round)
        return super().enter(round)

    def planned_method(self) -> Method[Any]:
        """The configured method, in a form that goes with secure aggregation where that is on."""
        if isinstance(self.remote, SummingEngine):
            return summing_method(self.config, self.remote.smallest)
        return make_method(self.config)

    def close_round(
        self, folder: RunFolder, fed: Federation, notes: Notes, observers: Sequence[Observer]
    ) -> None:
        """Score the round, and ask in the same messages for samples that the next round needs."""
        view = self.method.view(self.state)
        rows = foreign(view.tree, view.shared.pools, fed.owned).values()
        self.remote.prefetch(np.unique(np.concatenate([NO_ROWS, *rows])))
        while True:
            try:
                super().close_round(folder, fed, notes, observers)
                break
            except DataError:  # no machine is left to score on
                if self.remote.roster.present:
                    raise
                self.newcomers |= self.attend()
                self.examiner.turn_to(fed)
        now, (began, before) = time.monotonic(), self.last_round
        traffic = self.remote.exchange.traffic
        self.remote.exchange.record(
            {
                "round": fed.round,
                "seconds": round(now - began, 3),
                "bytes_down": traffic.down - before.down,
                "bytes_up": traffic.up - before.up,
                "present": len(self.remote.roster.present),
            }
        )
        self.last_round = now, replace(traffic)


class OwnTestExaminer(Examiner):
    """Scores a client's models on its own test samples only; no machine has those of all."""

    def test_set(self, num_models: int) -> Samples:
        return NO_ROWS


def within_caps(config: Config, roster: Roster) -> Config:
    """Plan with the caps that machines have stated; they enforce them themselves."""
    sharing = config.sharing
    caps = {
        int(client): min(member.profile.cap, sharing.cap_of(client))
        for client, member in roster.members.items()
    }
    return replace(config, sharing=replace(sharing, max_disclosure=caps))
