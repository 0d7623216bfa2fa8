"""The experiment whose clients are nodes: it lets new ones in, and asks for no more than it may."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sofa_fl.data.base import Samples
from sofa_fl.deploy.server.described_data import Card
from sofa_fl.deploy.server.remote_engine import RemoteEngine
from sofa_fl.deploy.server.roster import Roster
from sofa_fl.errors import ConfigError, DataError
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.run.loop import Experiment, Own
from sofa_fl.experiment.scoring.metrics import Examiner
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.tracking.observers import Observer
from sofa_fl.federation import Federation
from sofa_fl.methods.base import Notes
from sofa_fl.methods.registry import make_method
from sofa_fl.sharing import foreign


class Deployed(Experiment):
    """The same rounds, and in each of them a look at who is there.

    Args:
        attend: Lets nodes that are known take part again, waits until one of them is there, and
            gives the cards of new ones.
        patience: Rounds without a node after which it has left; 0: it never has.
    """

    def __init__(
        self,
        config: Config,
        own: Own,
        engine: RemoteEngine,
        attend: Callable[[], dict[int, Card]],
        patience: int = 0,
    ) -> None:
        if own.metrics:
            raise ConfigError(
                "own metrics are not available in a deployment: samples stay on the nodes, and the "
                "server has none to compute them on"
            )
        super().__init__(capped(config, engine.roster), own)
        self.remote, self.attend, self.patience = engine, attend, patience
        self.examiner = OwnExaminer(self.fed)
        self.newcomers: dict[int, Card] = {}
        self.mark = time.monotonic(), replace(engine.office.traffic)

    def enter(self, round: int) -> Federation:
        """A round begins: newcomers are clients from now on, and who is long gone is none."""
        roster = self.remote.roster
        new = self.newcomers | self.attend()
        self.newcomers = {}
        if new:
            roster.admit(new, since=round)
        if roster.come_and_go(round, self.patience) or new:
            self.fed = replace(self.fed, data=roster.describe())
            self.config = capped(self.config, roster)
            self.method = make_method(self.config)
        return super().enter(round)

    def close_round(
        self, folder: RunFolder, fed: Federation, notes: Notes, observers: Sequence[Observer]
    ) -> None:
        """Samples that the next round needs are asked for together with the scores of this one."""
        view = self.method.view(self.state)
        rows = foreign(view.tree, view.shared.pools, fed.owned).values()
        self.remote.expect(np.unique(np.concatenate([_NONE, *rows])))
        while True:
            try:
                super().close_round(folder, fed, notes, observers)
                break
            except DataError:  # nobody was left who could be scored
                if self.remote.roster.present:
                    raise
                self.newcomers |= self.attend()
                self.examiner.turn_to(fed)
        now, (began, before) = time.monotonic(), self.mark
        traffic = self.remote.office.traffic
        self.remote.office.record(
            {
                "round": fed.round,
                "seconds": round(now - began, 3),
                "bytes_down": traffic.down - before.down,
                "bytes_up": traffic.up - before.up,
                "present": len(self.remote.roster.present),
            }
        )
        self.mark = now, replace(traffic)


class OwnExaminer(Examiner):
    """Scores a client's models on its own test samples only.

    Everybody's test samples are nowhere in one place, and the model of one is no other's business.
    """

    def test_set(self, num_models: int) -> Samples:
        return _NONE


def capped(config: Config, roster: Roster) -> Config:
    """Plan with what the nodes said they would give; they keep to it in any case."""
    sharing = config.sharing
    caps = {
        int(client): min(member.card.cap, sharing.cap_of(client))
        for client, member in roster.members.items()
    }
    return replace(config, sharing=replace(sharing, max_disclosure=caps))


_NONE: Samples = np.empty(0, dtype=np.int64)
