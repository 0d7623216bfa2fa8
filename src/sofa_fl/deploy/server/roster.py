"""Who takes part: which node is which client, and who is there at the moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import ClientData, Samples, Split, Stage
from sofa_fl.deploy.server.described_data import Card, Described, rows_of, variance_of
from sofa_fl.deploy.server.roster_file import Member, load_members, save_members
from sofa_fl.errors import RunError
from sofa_fl.topology.tree import NodeId

MAX_STRIKES = 3  # answers that are no answers, until a node is not asked again
MAX_REST = 30  # rounds


@dataclass(slots=True)
class Roster:
    """The clients of a run, by number; written down whenever one comes.

    Attributes:
        file: Where it is written.
        room: How many clients there may ever be.
        present: The nodes that are asked to work.
        barred: Those that are not asked again, and why.
    """

    file: Path
    room: int
    members: dict[NodeId, Member] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    strikes: dict[int, int] = field(default_factory=dict)
    barred: dict[int, str] = field(default_factory=dict)
    silences: dict[int, int] = field(default_factory=dict)  # how often in a row it did no work
    rests: dict[int, int] = field(default_factory=dict)  # rounds that it is left alone for that
    missed: dict[NodeId, int] = field(default_factory=dict)  # rounds in a row without a client

    @classmethod
    def load(cls, file: Path, room: int) -> Roster:
        """The roster that was written there, nobody present; or an empty one."""
        return cls(file, room, load_members(file))

    def client_at(self, node: int) -> NodeId | None:
        return next((c for c, member in self.members.items() if member.node == node), None)

    def node_of(self, client: NodeId) -> int | None:
        """The node of a client, if it is there."""
        member = self.members.get(client)
        return member.node if member is not None and member.node in self.present else None

    def welcome(self, node: int, card: Card) -> bool:
        """Let a client that is known take part again: by its node's name, or by its samples.

        Flower gives a node a new name when the server has lost its database, and in a simulation;
        what it has to show then is the mark of its samples, which nobody else has.
        """
        client = self.client_at(node)
        if client is None:
            same = [c for c, m in self.members.items() if m.card.mark == card.mark]
            free = [c for c in same if self.members[c].node not in self.present]
            if not free:
                return False
            client = NodeId(card.number) if card.number in free else free[0]
        member = self.members[client]
        if card.mark != member.card.mark:
            return False
        self.members[client] = replace(member, node=node)
        self.present.add(node)
        if node != member.node:
            save_members(self.file, self.members)
        return True

    def refusal(self, node: int, card: Card, others: Iterable[Card]) -> str | None:
        """Why a node that is not known cannot take part, if it cannot."""
        if (client := self.client_at(node)) is not None:
            return f"client {client} has other samples than before"
        others = list(others)
        if len(others) >= self.room:
            return f"there is room for {self.room} clients; raise `most`"
        for other in others:
            if card.kind != other.kind:
                return f"its samples are {card.kind}, those of the others {other.kind}"
            if _overlap(card.ids, other.ids):
                return "some of its ids are another node's"
        if self.members:
            if card.num_classes > self.num_classes:
                return f"it has {card.num_classes} classes, and the network {self.num_classes}"
            if card.ids is not None and (self.index("train").owners(card.ids) >= 0).any():
                return "some of its ids are taken"
        return None

    def admit(self, cards: Mapping[int, Card], since: int) -> None:
        """Take in new clients: those who name a free number get it, the others the next ones.

        Numbers go up without a gap, since a client is its place in a list.
        """
        free = [i for i in range(len(self.members) + len(cards)) if i not in self.members]
        chosen: dict[int, int] = {}
        for node, card in sorted(cards.items()):
            if card.number in free and card.number not in chosen:
                chosen[card.number] = node
        left = sorted(cards.keys() - set(chosen.values()))
        chosen |= dict(zip((i for i in free if i not in chosen), left))
        ids = [card.ids for card in cards.values() if card.ids is not None]
        for number, node in sorted(chosen.items()):
            rows = rows_of(cards[node], self._end("train", ids), self._end("test"))
            self.members[NodeId(number)] = Member(node, cards[node], rows, since)
            self.present.add(node)
        self.members = dict(sorted(self.members.items()))
        save_members(self.file, self.members)

    def come_and_go(self, round: int, patience: int) -> bool:
        """Who was not there for more than so many rounds leaves (0: nobody); who is back joins.

        Whether anybody did.
        """
        before = dict(self.members)
        for client, member in before.items():
            is_here, belongs = member.node in self.present, member.is_client(round)
            self.missed[client] = 0 if is_here else self.missed.get(client, 0) + 1
            if is_here and not belongs:
                self.members[client] = member.back(round)
            elif belongs and 0 < patience < self.missed[client]:
                self.members[client] = member.left(round)
        if self.members == before:
            return False
        save_members(self.file, self.members)
        return True

    def set_aside(self, node: int, why: str, *, strike: bool, silent: bool = False) -> None:
        """Ask a node no more until it says hello again; after some strikes, never again.

        Who is `silent` time and again is left alone ever longer, for 0, 2, 6, 14 ... rounds: it may
        say hello and yet hang at work, and then each time costs a time-out.
        """
        self.present.discard(node)
        self.strikes[node] = self.strikes.get(node, 0) + strike
        if self.strikes[node] >= MAX_STRIKES:
            self.barred[node] = why
        if silent:
            self.silences[node] = self.silences.get(node, 0) + 1
            self.rests[node] = min(2 ** self.silences[node] - 2, MAX_REST)

    def did_work(self, node: int) -> None:
        """It is not silent any longer."""
        self.silences.pop(node, None)

    def resting(self) -> set[int]:
        """Who is left alone in the round that begins; nobody, if nobody else is there."""
        if not self.present:
            self.rests.clear()
        found = {node for node, rounds in self.rests.items() if rounds > 0}
        self.rests = {node: self.rests[node] - 1 for node in found}
        return found

    @property
    def num_classes(self) -> int:
        """Of those who began: a network's outputs stay as many."""
        cards = [m.card for m in self.members.values() if m.since == 0]
        return max((card.num_classes for card in cards), default=0)

    def describe(self) -> Described:
        """The data of all clients, as far as the server knows them."""
        if list(self.members) != list(range(len(self.members))):
            raise RunError(f"{self.file} does not name all clients")
        members = self.members.values()
        first = [member.card for member in members if member.since == 0]
        kind = first[0].kind
        return Described(
            kind.stand_in(self._end("train")),
            kind.stand_in(self._end("test")),
            tuple(member.rows for member in members),
            prod(kind.target[1]) if kind.is_regression else self.num_classes,
            stages=tuple(
                Stage(
                    round, {int(c): m.rows for c, m in self.members.items() if m.is_client(round)}
                )
                for round in sorted({round for member in members for round in changes_of(member)})
            ),
            marks=tuple(card.mark for card in first),
            variance=variance_of(first),
            room=self.room,
        )

    def index(self, split: Split) -> Index:
        """Whose each row is, and where its owner has it."""
        return Index.of({client: member.rows for client, member in self.members.items()}, split)

    def _end(self, split: Split, ids: Sequence[Samples] = ()) -> int:
        """The first row number that nobody has, nor will have of those who bring `ids`."""
        rows = [_rows(member.rows, split) for member in self.members.values()]
        return 1 + max((int(part.max(initial=-1)) for part in (*rows, *ids)), default=-1)


def changes_of(member: Member) -> set[int]:
    """The rounds in which a client came, left or came back."""
    return {member.since, *(r for away in member.away for r in away if r is not None)}


@dataclass(frozen=True, slots=True)
class Index:
    """Of every row number its owner (−1: nobody) and its place with the owner."""

    owner: NDArray[np.int64]
    position: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Mapping[NodeId, ClientData], split: Split) -> Index:
        rows = {client: _rows(part, split) for client, part in parts.items()}
        end = 1 + max((int(own.max(initial=-1)) for own in rows.values()), default=-1)
        owner, position = np.full(end, -1, np.int64), np.zeros(end, np.int64)
        for client, own in rows.items():
            owner[own], position[own] = client, np.arange(len(own))
        return cls(owner, position)

    def owners(self, rows: Samples) -> NDArray[np.int64]:
        """Of each row; also of numbers beyond the last."""
        found = np.full(len(rows), -1, np.int64)
        inside = rows < len(self.owner)
        found[inside] = self.owner[rows[inside]]
        return found


def _rows(part: ClientData, split: Split) -> Samples:
    """A client's rows of a split, in the order in which the client has them."""
    return part.test if split == "test" else np.concatenate([part.train, part.holdout])


def _overlap(ids: Samples | None, others: Samples | None) -> bool:
    return ids is not None and others is not None and bool(np.isin(ids, others).any())
