"""The engine of a deployment with secure aggregation: machines' models are learned in sums alone.

Those who are to train the same are one sum: from the same model, pulled to the same place. Each of
them has its mean for a model. So a method that makes means of such clients computes what it would
of their own models.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.engine.base import Outcome, Task
from sofa_fl.models.networks import NetworkFactory
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.masked_sum.masks import NUM_CHECKS
from sofa_fl_flower.masked_sum.masks import SIZE as SHARE_SIZE
from sofa_fl_flower.masked_sum.member import SEALED_SIZE, MaskedModel, Revealed
from sofa_fl_flower.masked_sum.plan import MAX_MEMBERS, SMALLEST, SumPlan, threshold_for
from sofa_fl_flower.masked_sum.unmask import SumError, unmasked_mean
from sofa_fl_flower.server.exchange import Exchange
from sofa_fl_flower.server.received import Received
from sofa_fl_flower.server.remote_engine import RemoteEngine
from sofa_fl_flower.server.roster import Roster
from sofa_fl_flower.server.row_owners import RowOwners
from sofa_fl_flower.transport.machine_profile import MachineProfile
from sofa_fl_flower.transport.message_checks import MessageError, checked_value, shown
from sofa_fl_flower.transport.run_setup import RunSetup, as_it_arrives, work_digest
from sofa_fl_flower.transport.wire_message import WireMessage


@dataclass(slots=True)
class Sum:
    """One sum, of tasks that are the same but for the samples.

    Attributes:
        tasks: The numbers of the members' tasks, in the order of the plan.
        machines: Their machines.
        sent: What members have sent, by their position in the plan.
        revealed: What they said to unmask it.
    """

    plan: SumPlan
    tasks: list[int]
    machines: list[int]
    sent: dict[int, MaskedModel] = field(default_factory=dict)
    losses: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    revealed: dict[int, Revealed] = field(default_factory=dict)

    @property
    def survivors(self) -> tuple[int, ...]:
        return tuple(sorted(self.sent))


class SummingEngine(RemoteEngine):
    """Asks machines for masked models while `masks`, and in the clear otherwise.

    Args:
        smallest: The smallest number of machines in a sum; machines may want more.
    """

    def __init__(
        self,
        exchange: Exchange,
        roster: Roster,
        setup: RunSetup,
        factory: NetworkFactory,
        received: Received | None = None,
        smallest: int = SMALLEST,
    ) -> None:
        super().__init__(exchange, roster, setup, factory, received)
        self.smallest, self.masks = smallest, False

    def _train_there(
        self,
        asked: Sequence[Task],
        by_machine: Mapping[int, list[int]],
        owners: RowOwners,
        outcomes: list[Outcome | None],
    ) -> None:
        if not self.masks:
            super()._train_there(asked, by_machine, owners, outcomes)
            return
        sums = self._plan_sums(asked, by_machine)
        self._collect(sums, asked, owners)
        self._unmask([one for one in sums if len(one.sent) >= one.plan.threshold])
        for one in sums:
            for task, outcome in self._outcomes_of(one, asked).items():
                outcomes[task] = outcome

    def _plan_sums(self, asked: Sequence[Task], by_machine: Mapping[int, list[int]]) -> list[Sum]:
        """The sums of a round; those who cannot be in one do not train."""
        groups: dict[str, dict[int, int]] = {}  # by what is trained: the machine of every task
        for machine, numbers in sorted(by_machine.items()):
            for number in numbers:
                work = work_digest(as_it_arrives(asked[number], self.setup), self.setup)
                groups.setdefault(work, {})[number] = machine
        found = []
        for work, group in groups.items():
            profiles = {n: self.roster.members[asked[n].site].profile for n in group}
            members = willing(profiles)
            smallest = max([self.smallest, *(profiles[n].smallest_cluster for n in members)])
            left = [asked[n].site for n in group if n not in members]
            if not smallest <= len(members) <= MAX_MEMBERS:
                left, members = [asked[n].site for n in group], []
            if left:
                needed = f"a sum needs {smallest} to {MAX_MEMBERS} machines that allow it"
                self._record_missing(left, f"{needed}, got {len(group)}")
            if members:
                plan = SumPlan(
                    secrets.token_hex(16),
                    tuple(profiles[n].sum_key for n in members),
                    tuple(profiles[n].num_train for n in members),
                    threshold_for(len(members), smallest),
                    work,
                )
                found.append(Sum(plan, members, [group[n] for n in members]))
        return found

    def _collect(self, sums: Sequence[Sum], asked: Sequence[Task], owners: RowOwners) -> None:
        """The first exchange: machines train, and send masked models."""
        parts = by_machine_of(sums)
        messages = {}
        for machine, mine in parts.items():
            message = self._training(machine, [asked[s.tasks[at]] for s, at in mine], owners)
            for header, (one, _) in zip(message.header["tasks"], mine):
                header["sum"] = one.plan.to_dict()
            messages[machine] = message

        def read(machine: int, answer: WireMessage) -> None:
            headers = answer.value("outcomes", list)
            if len(headers) != len(parts[machine]):
                raise MessageError(f"the answer must hold {len(parts[machine])} outcomes")
            for header, (one, at) in zip(headers, parts[machine]):
                names = {name: checked_value(header, name, str) for name in ("masked", "shares")}
                losses = (asked[one.tasks[at]].batches,)
                model = MaskedModel(
                    answer.array(names["masked"], "uint32", (self._size + NUM_CHECKS,)),
                    answer.array(names["shares"], "uint8", (len(one.tasks), SEALED_SIZE)),
                )
                one.losses[at] = answer.array(header.get("losses"), "float32", losses)
                one.sent[at] = model
            self.roster.note_work(machine)

        self._models = {}
        self._ask(messages, "train", read)

    def _unmask(self, sums: Sequence[Sum]) -> None:
        """The second exchange: survivors reveal what removes the masks of the sum of them all."""
        parts = {
            machine: [(one, at) for one, at in mine if at in one.sent]
            for machine, mine in by_machine_of(sums).items()
        }
        messages = {}
        for machine, mine in parts.items():
            builder, requests = self._builder(), []
            for one, at in mine:
                shares = np.stack([one.sent[by].shares[at] for by in one.survivors])
                requests.append(
                    {
                        "sum": one.plan.to_dict(),
                        "survivors": list(one.survivors),
                        "shares": builder.add(shares),
                    }
                )
            if requests:
                messages[machine] = self._message(builder, unmask=requests)

        def read(machine: int, answer: WireMessage) -> None:
            headers = answer.value("revealed", list)
            if len(headers) != len(parts[machine]):
                raise MessageError(f"the answer must unmask {len(parts[machine])} sums")
            for header, (one, at) in zip(headers, parts[machine]):
                num_gone = len(one.tasks) - len(one.sent)
                one.revealed[at] = Revealed(
                    answer.array(header.get("shares"), "uint8", (len(one.sent), SHARE_SIZE)),
                    _members(header, len(one.tasks)),
                    answer.array(header.get("seeds"), "uint8", (num_gone, SHARE_SIZE)),
                )

        self._ask(messages, "evaluate", read)

    def _outcomes_of(self, one: Sum, asked: Sequence[Task]) -> dict[int, Outcome]:
        """What came of the tasks of a sum: for each survivor the mean of all; none if it failed."""
        try:
            if len(one.sent) < one.plan.threshold:
                raise SumError(
                    f"{one.plan.threshold} of {len(one.tasks)} machines must send their models, "
                    f"but {len(one.sent)} did"
                )
            numbers = {at: model.numbers for at, model in one.sent.items()}
            mean = torch.from_numpy(unmasked_mean(one.plan, numbers, one.revealed))
        except SumError as error:
            for at in error.culprits:
                self.roster.set_aside(one.machines[at], str(error), strike=True)
            self._record_missing([asked[n].site for n in one.tasks], str(error))
            return {}
        return {one.tasks[at]: Outcome(mean, one.losses[at]) for at in one.survivors}

    def _record_missing(self, clients: Sequence[NodeId], why: str) -> None:
        self.exchange.record({"no_sum": sorted(map(int, clients)), "why": why})


def willing(profiles: Mapping[int, MachineProfile]) -> list[int]:
    """Those who have a key for sums, and would be in one of all these."""
    members = [number for number, profile in profiles.items() if profile.sum_key]
    while left := [n for n in members if profiles[n].smallest_cluster > len(members)]:
        members = [number for number in members if number not in left]
    return members


def by_machine_of(sums: Sequence[Sum]) -> dict[int, list[tuple[Sum, int]]]:
    """The sums that each machine is in, and its position in each."""
    found: dict[int, list[tuple[Sum, int]]] = {}
    for one in sums:
        for at, machine in enumerate(one.machines):
            found.setdefault(machine, []).append((one, at))
    return found


def _members(header: Any, num: int) -> tuple[int, ...]:
    unread = checked_value(header, "unread", list)
    if not all(type(one) is int and 0 <= one < num for one in unread):
        raise MessageError(f"members must be 0 to {num - 1}, got {shown(unread)}")
    return tuple(unread)
