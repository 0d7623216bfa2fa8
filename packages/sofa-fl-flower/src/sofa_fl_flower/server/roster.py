"""Who takes part: which machine is which client, which are present, and whose each row is.

A sample is a row number here as everywhere; the arrays behind the numbers are placeholders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import ClientData, FederatedData, Samples, SplitName, Stage
from sofa_fl.errors import RunError
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.server.expected import Expected
from sofa_fl_flower.server.roster_file import Member, load_members, save_members
from sofa_fl_flower.server.row_owners import RowOwners, rows_in
from sofa_fl_flower.transport.machine_profile import MachineProfile, pooled_variance

MAX_STRIKES = 3  # invalid answers, after which a machine is barred
MAX_REST = 30  # rounds
FORGIVE_AFTER = 10  # rounds of work


@dataclass(frozen=True, slots=True)
class DescribedData(FederatedData):
    """A federation's data, as described by its machines.

    Attributes:
        fingerprints: Of the first clients; a resumed run must have the same.
        variance: Of all targets of a regression.
        max_clients: How many clients there may ever be.
    """

    fingerprints: tuple[str, ...] = ()
    variance: float = 0.0
    max_clients: int = 0

    @property
    def first_id(self) -> int:
        return max(self.max_clients, len(self.clients))

    def class_counts(self, rows: Samples) -> NDArray[np.int64]:
        """Zeros: the server does not know them, and every machine adds its own class mix."""
        return np.zeros(self.num_outputs, dtype=np.int64)

    @property
    def target_variance(self) -> float:
        return self.variance

    def digest(self) -> str:
        return hashlib.blake2b(" ".join(self.fingerprints).encode(), digest_size=16).hexdigest()


def assign_rows(profile: MachineProfile, first: int, first_test: int) -> ClientData:
    """Number a machine's samples: held-out ones from `first` on, then those to train on.

    Training samples that have ids keep them.
    """
    holdout = np.arange(first, first + profile.num_holdout)
    train = profile.ids
    if train is None:
        train = np.arange(profile.num_train) + first + profile.num_holdout
    return ClientData(train, holdout, np.arange(first_test, first_test + profile.num_test))


@dataclass(slots=True)
class Roster:
    """The clients of a run, by number; saved whenever one joins, leaves or comes back.

    Attributes:
        file: Where it is saved.
        max_clients: How many clients there may ever be.
        expected: What their samples must be.
        present: The machines that get work.
        barred: The machines that are never asked again, and why.
        silences: How often a machine has not answered, until it is forgiven.
        worked: How often a machine has worked since it last did not answer.
        rests: For how many rounds a machine is not asked because of that.
        missed: For how many rounds in a row a client has been absent.
    """

    file: Path
    max_clients: int
    expected: Expected
    members: dict[NodeId, Member] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    strikes: dict[int, int] = field(default_factory=dict)
    barred: dict[int, str] = field(default_factory=dict)
    silences: dict[int, int] = field(default_factory=dict)
    worked: dict[int, int] = field(default_factory=dict)
    rests: dict[int, int] = field(default_factory=dict)
    missed: dict[NodeId, int] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path, max_clients: int, expected: Expected) -> Roster:
        """Load a roster with no machine present; an empty one if there is no such file."""
        return cls(file, max_clients, expected, load_members(file))

    def client_of(self, machine: int) -> NodeId | None:
        return next((c for c, member in self.members.items() if member.machine == machine), None)

    def machine_of(self, client: NodeId) -> int | None:
        """The machine of a client, if it is present."""
        member = self.members.get(client)
        return member.machine if member is not None and member.machine in self.present else None

    def readmit(self, machine: int, profile: MachineProfile) -> bool:
        """Let a known client take part again, by what only its own site can know.

        Flower gives machines new ids when the server has lost its database, and in simulations.
        """
        same = [c for c, m in self.members.items() if m.profile.identity == profile.identity]
        if not same:
            return False
        client, member = same[0], self.members[same[0]]
        if profile.fingerprint != member.profile.fingerprint or self.client_of(machine) not in (
            None,
            client,
        ):
            return False
        if member.machine in self.present and machine != member.machine:
            return False
        known = replace(
            member.profile, sum_key=profile.sum_key, smallest_cluster=profile.smallest_cluster
        )  # the policy may have changed meanwhile
        self.members[client] = replace(member, machine=machine, profile=known)
        self.present.add(machine)
        if machine != member.machine:
            save_members(self.file, self.members)
        return True

    def refusal(
        self, machine: int, profile: MachineProfile, others: Iterable[MachineProfile]
    ) -> str | None:
        """Why an unknown machine cannot take part, if it cannot."""
        if (client := self.client_of(machine)) is not None:
            return f"client {client} must have the same key and samples as before, but does not"
        others = list(others)
        if len(others) >= self.max_clients:
            return f"there may be at most {self.max_clients} clients; raise `most`"
        if (why := self.expected.refusal(profile)) is not None:
            return why
        for other in others:
            if profile.identity == other.identity:
                return "another machine has the same key; create one site for each machine"
            if profile.sum_key and profile.sum_key == other.sum_key:
                return "another machine has the same key for sums; create one site for each machine"
            if _overlap(profile.ids, other.ids):
                return "its ids must differ from those of other machines, but some do not"
        if profile.ids is not None and self.row_owners("train").has_any(profile.ids):
            return "its ids must be free, but some are taken"
        return None

    def admit(self, profiles: Mapping[int, MachineProfile], since: int) -> None:
        """Add new clients: who asks for a free number gets it, the others the next ones.

        Numbers have no gaps, since a client is its position in a list.
        """
        free = [i for i in range(len(self.members) + len(profiles)) if i not in self.members]
        chosen: dict[int, int] = {}
        for machine, profile in sorted(profiles.items()):
            if profile.number in free and profile.number not in chosen:
                chosen[profile.number] = machine
        others = sorted(profiles.keys() - set(chosen.values()))
        chosen |= dict(zip((i for i in free if i not in chosen), others))
        ids = [profile.ids for profile in profiles.values() if profile.ids is not None]
        for number, machine in sorted(chosen.items()):
            profile = profiles[machine]
            rows = assign_rows(profile, self._end("train", ids), self._end("test"))
            self.members[NodeId(number)] = Member(machine, profile, rows, since)
            self.present.add(machine)
        self.members = dict(sorted(self.members.items()))
        save_members(self.file, self.members)

    def update_membership(self, round: int, patience: int) -> bool:
        """Let clients leave that missed more than `patience` rounds (0: none), and come back.

        Returns whether any did.
        """
        before = dict(self.members)
        for client, member in before.items():
            is_present, belongs = member.machine in self.present, member.is_client(round)
            self.missed[client] = 0 if is_present else self.missed.get(client, 0) + 1
            if is_present and not belongs:
                self.members[client] = member.returning(round)
            elif belongs and 0 < patience < self.missed[client]:
                self.members[client] = member.leaving(round)
        if self.members == before:
            return False
        save_members(self.file, self.members)
        return True

    def set_aside(self, machine: int, why: str, *, strike: bool, silent: bool = False) -> None:
        """Give a machine no work until it answers a hello; bar it after some strikes.

        A machine that is `silent` again and again rests ever longer, for 0, 2, 6, 14 ... rounds: it
        may answer hellos and yet hang at work, and each time costs a timeout.
        """
        self.present.discard(machine)
        self.strikes[machine] = self.strikes.get(machine, 0) + strike
        if self.strikes[machine] >= MAX_STRIKES:
            self.barred[machine] = why
        if silent:
            self.worked.pop(machine, None)
            self.silences[machine] = self.silences.get(machine, 0) + 1
            self.rests[machine] = min(2 ** self.silences[machine] - 2, MAX_REST)

    def note_work(self, machine: int) -> None:
        """Note that a machine has worked; if it goes on, its silences are forgiven.

        Not at once, or one that works and hangs in turn would cost a timeout every other round.
        """
        self.worked[machine] = self.worked.get(machine, 0) + 1
        if self.worked[machine] >= FORGIVE_AFTER:
            self.silences.pop(machine, None)

    def take_resting(self) -> set[int]:
        """The machines that rest in this round, which counts down; none if no other is present."""
        if not self.present:
            self.rests.clear()
        resting = {machine for machine, rounds in self.rests.items() if rounds > 0}
        self.rests = {machine: self.rests[machine] - 1 for machine in resting}
        return resting

    def describe(self) -> DescribedData:
        """The data of all clients, as far as the server knows them."""
        if list(self.members) != list(range(len(self.members))):
            raise RunError(
                f"{self.file} must list clients 0 to {len(self.members) - 1}, got "
                f"{list(self.members)}; restore it from a backup, or choose another run folder"
            )
        members = self.members.values()
        first = [member.profile for member in members if member.since == 0]
        format = self.expected.format
        return DescribedData(
            format.placeholder(self._end("train")),
            format.placeholder(self._end("test")),
            tuple(member.rows for member in members),
            self.expected.num_outputs,
            stages=tuple(
                Stage(
                    round, {int(c): m.rows for c, m in self.members.items() if m.is_client(round)}
                )
                for round in sorted({round for member in members for round in member.changes()})
            ),
            fingerprints=tuple(profile.fingerprint for profile in first),
            variance=pooled_variance(first),
            max_clients=self.max_clients,
            names=self.names(),
        )

    def names(self) -> tuple[str, ...]:
        """What the clients are called, no two alike; nothing if no machine says so."""
        said = {client: member.profile.name for client, member in self.members.items()}
        names: list[str] = []
        for client, name in said.items():
            tries = [name, f"{name} ({client})"] if name else []
            # What stands for a number is free: no machine can have such a name.
            names.append(next((each for each in tries if each not in names), f"client {client}"))
        return tuple(names) if any(said.values()) else ()

    def row_owners(self, split: SplitName) -> RowOwners:
        return RowOwners.of({client: member.rows for client, member in self.members.items()}, split)

    def _end(self, split: SplitName, ids: Sequence[Samples] = ()) -> int:
        """The first row after those of all members and after `ids`."""
        rows = [rows_in(member.rows, split) for member in self.members.values()]
        return 1 + max((int(part.max(initial=-1)) for part in (*rows, *ids)), default=-1)


def _overlap(ids: Samples | None, others: Samples | None) -> bool:
    return ids is not None and others is not None and bool(np.isin(ids, others).any())
