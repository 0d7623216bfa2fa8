"""The roster on disk: which machine is which client, so that a restarted server recognizes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sofa_fl.data.federated_data import ClientData
from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.transport.machine_profile import ARRAYS, MachineProfile
from sofa_fl_flower.transport.wire_message import WireMessage


@dataclass(frozen=True, slots=True)
class Member:
    """A client, and its machine.

    Attributes:
        machine: Flower's id of the machine.
        since: The round in which it joined.
        absences: The rounds in which it left and came back (None: not yet).
    """

    machine: int
    profile: MachineProfile
    rows: ClientData
    since: int = 0
    absences: tuple[tuple[int, int | None], ...] = ()

    def is_client(self, round: int) -> bool:
        """Whether it belongs to the federation in a round."""
        is_away = any(
            left <= round and (back is None or round < back) for left, back in self.absences
        )
        return self.since <= round and not is_away

    @property
    def has_left(self) -> bool:
        """Whether it has left and not come back."""
        return bool(self.absences) and self.absences[-1][1] is None

    def leaving(self, round: int) -> Member:
        return replace(self, absences=(*self.absences, (round, None)))

    def returning(self, round: int) -> Member:
        *before, (left, _) = self.absences
        return replace(self, absences=(*before, (left, round)))

    def changes(self) -> set[int]:
        """The rounds in which it joined, left or came back."""
        return {self.since, *(r for absence in self.absences for r in absence if r is not None)}


def save_members(file: Path, members: dict[NodeId, Member]) -> None:
    plain = {str(client): _to_json(member) for client, member in members.items()}
    write_text(file, json.dumps(plain) + "\n")


def load_members(file: Path) -> dict[NodeId, Member]:
    """The members in a file; none if it does not exist."""
    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {NodeId(int(client)): _from_json(values) for client, values in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{file} must list the machines of the run, but cannot be read: {error!r}; restore it "
            "from a backup, or choose another run folder"
        ) from None


def _to_json(member: Member) -> dict[str, Any]:
    profile, rows = member.profile, member.rows
    header = profile.header()
    return {
        "node": str(member.machine),  # as text: other JSON readers round numbers of this size
        "since": member.since,
        "away": member.absences,
        "first": [int(r[0]) if len(r) else 0 for r in (rows.train, rows.holdout, rows.test)],
        "mark": header.pop("fingerprint"),
        **header,
        **{name: array.tolist() for name, array in profile.arrays().items()},
    }


def _from_json(values: dict[str, Any]) -> Member:
    arrays = {
        name: np.array(values[name], dtype)
        for name, dtype in ARRAYS.items()
        if values.get(name) is not None
    }
    profile = MachineProfile.read(WireMessage({**values, "fingerprint": values["mark"]}, arrays))
    sizes = (profile.num_train, profile.num_holdout, profile.num_test)
    train, holdout, test = (np.arange(a, a + n) for a, n in zip(values["first"], sizes))
    rows = ClientData(train if profile.ids is None else profile.ids, holdout, test)
    absences = tuple((left, back) for left, back in values["away"])
    return Member(int(values["node"]), profile, rows, values["since"], absences)
