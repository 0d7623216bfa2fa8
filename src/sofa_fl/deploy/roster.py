"""Who takes part: which node is which client, and who is there at the moment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import ClientData, Samples, Split
from sofa_fl.deploy.description import Card, Described, Kind, rows_of, variance_of
from sofa_fl.errors import RunError
from sofa_fl.experiment.folder import write_text
from sofa_fl.topology.tree import NodeId

MAX_STRIKES = 3  # answers that are no answers, until a node is not asked again


@dataclass(frozen=True, slots=True)
class Member:
    """A client and the node that is it."""

    node: int
    card: Card
    rows: ClientData


@dataclass(slots=True)
class Roster:
    """The clients of a run, by number; written down whenever one comes.

    Attributes:
        file: Where it is written.
        present: The nodes that are asked to work.
        barred: Those that are not asked again, and why.
    """

    file: Path
    members: dict[NodeId, Member] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    strikes: dict[int, int] = field(default_factory=dict)
    barred: dict[int, str] = field(default_factory=dict)

    def client_at(self, node: int) -> NodeId | None:
        return next((c for c, member in self.members.items() if member.node == node), None)

    def node_of(self, client: NodeId) -> int | None:
        """The node of a client, if it is there."""
        member = self.members.get(client)
        return member.node if member is not None and member.node in self.present else None

    def returning(self, node: int, card: Card) -> NodeId | None:
        """The client that this node is already: by its name, or by its samples.

        Flower gives a node a new name when the server has lost its database, or in a simulation;
        what it has to show then is the mark of its samples, which nobody else has.
        """
        client = self.client_at(node)
        if client is None:
            same = [c for c, m in self.members.items() if m.card.mark == card.mark]
            free = [c for c in same if self.members[c].node not in self.present]
            client = next((c for c in free if c == card.number), free[0] if free else None)
        return client

    def welcome(self, node: int, card: Card) -> str | None:
        """Let a known client take part again; say why not, if it cannot."""
        client = self.returning(node, card)
        if client is None:
            return "unknown"
        member = self.members[client]
        if card.mark != member.card.mark:
            return f"client {client} has other samples than before"
        self.members[client] = replace(member, node=node)
        self.present.add(node)
        return None

    def admit(self, cards: dict[int, Card]) -> list[NodeId]:
        """Take in new clients: those who name a free number get it, the others the next ones."""
        if not cards:
            return []
        free = list(range(len(self.members) + len(cards)))
        taken = set(self.members)
        wishes: dict[NodeId, int] = {}
        for node, card in sorted(cards.items()):
            if card.number in free and card.number not in taken | wishes.keys():
                wishes[NodeId(card.number)] = node
        left = sorted(cards.keys() - set(wishes.values()))
        rest = [number for number in free if number not in taken | wishes.keys()]
        wishes |= {NodeId(number): node for number, node in zip(rest, left)}
        ids = [card.ids for card in cards.values() if card.ids is not None]
        for client, node in sorted(wishes.items()):
            rows = rows_of(cards[node], self._end("train", ids), self._end("test"))
            self.members[client] = Member(node, cards[node], rows)
            self.present.add(node)
        self.members = dict(sorted(self.members.items()))
        self.save()
        return sorted(wishes)

    def refusal(self, card: Card, others: Iterable[Card]) -> str | None:
        """Why a new node cannot take part, if it cannot."""
        for other in others:
            if card.kind != other.kind:
                return f"samples are {card.kind}, those of the others {other.kind}"
            if _overlap(card, other):
                return "some of its ids are another node's"
        if self.members:
            if card.num_classes > self.num_classes:
                return f"it has {card.num_classes} classes, the network {self.num_classes}"
            taken = self.index("train").owner
            if card.ids is not None and (taken[card.ids[card.ids < len(taken)]] >= 0).any():
                return "some of its ids are taken"
        return None

    def set_aside(self, node: int, why: str, strike: bool) -> None:
        """Ask a node no more until it says hello again; after some strikes, never again."""
        self.present.discard(node)
        self.strikes[node] = self.strikes.get(node, 0) + strike
        if self.strikes[node] >= MAX_STRIKES:
            self.barred[node] = why

    @property
    def num_classes(self) -> int:
        return max((m.card.num_classes for m in self.members.values()), default=0)

    def describe(self) -> Described:
        """The data of all clients, as far as the server knows them."""
        if list(self.members) != list(range(len(self.members))):
            raise RunError(f"{self.file} does not name all clients")
        cards = [member.card for member in self.members.values()]
        kind = cards[0].kind
        is_float = str(kind.target[0]).startswith("float")
        num_outputs = int(np.prod(kind.target[1:], dtype=int)) if is_float else self.num_classes
        return Described(
            kind.stand_in(self._end("train")),
            kind.stand_in(self._end("test")),
            tuple(member.rows for member in self.members.values()),
            num_outputs,
            marks=tuple(card.mark for card in cards),
            variance=variance_of(cards),
        )

    def index(self, split: Split) -> Index:
        """Whose each row is, and where its owner has it."""
        return Index.of([m.rows for m in self.members.values()], list(self.members), split)

    def _end(self, split: Split, ids: Sequence[Samples] = ()) -> int:
        """The first row number that nobody has, or will have of those who bring `ids`."""
        tops = [int(rows.max(initial=-1)) for rows in ids]
        for member in self.members.values():
            parts = (
                (member.rows.test,) if split == "test" else (member.rows.train, member.rows.holdout)
            )
            tops += [int(rows.max(initial=-1)) for rows in parts]
        return 1 + max(tops, default=-1)

    def save(self) -> None:
        members = {str(c): _plain(member) for c, member in self.members.items()}
        write_text(self.file, json.dumps({"members": members}) + "\n")

    @classmethod
    def load(cls, file: Path) -> Roster:
        """The roster that was written there, nobody present; or an empty one."""
        if not file.exists():
            return cls(file)
        try:
            members = json.loads(file.read_text(encoding="utf-8"))["members"]
            return cls(file, {NodeId(int(c)): _member(plain) for c, plain in members.items()})
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{file} is damaged: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Index:
    """Of every row number its owner (−1: nobody) and its place with the owner."""

    owner: NDArray[np.int64]
    position: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[ClientData], clients: Sequence[NodeId], split: Split) -> Index:
        rows = [p.test if split == "test" else np.concatenate([p.train, p.holdout]) for p in parts]
        end = 1 + max((int(r.max(initial=-1)) for r in rows), default=-1)
        owner, position = np.full(end, -1, np.int64), np.zeros(end, np.int64)
        for client, own in zip(clients, rows):
            owner[own], position[own] = client, np.arange(len(own))
        return cls(owner, position)


def _overlap(card: Card, other: Card) -> bool:
    if card.ids is None or other.ids is None:
        return False
    return bool(np.isin(card.ids, other.ids).any())


def _plain(member: Member) -> dict[str, object]:
    card, rows = member.card, member.rows
    arrays = {
        name: None if value is None else value.tolist()
        for name, value in (
            ("ids", card.ids),
            ("target_sums", card.target_sums),
            ("target_squares", card.target_squares),
        )
    }
    return {
        "node": str(member.node),  # larger than what JSON readers elsewhere take for a number
        "first": [_first(part) for part in (rows.train, rows.holdout, rows.test)],
        "num": [card.num_train, card.num_holdout, card.num_test],
        "kind": [card.kind.input, card.kind.target, card.kind.scale, card.kind.shift],
        "num_classes": card.num_classes,
        "number": card.number,
        "mark": card.mark,
        "cap": card.cap,
        **arrays,
    }


def _first(rows: Samples) -> int:
    return int(rows[0]) if len(rows) else 0


def _member(plain: dict[str, object]) -> Member:
    values: dict[str, object] = dict(plain)
    node = int(str(values.pop("node")))
    first, num, kind = (values.pop(name) for name in ("first", "num", "kind"))
    assert isinstance(first, list) and isinstance(num, list) and isinstance(kind, list)
    ids, sums, squares = (
        None if (value := values.pop(name)) is None else np.array(value, dtype=dtype)
        for name, dtype in (("ids", np.int64), ("target_sums", float), ("target_squares", float))
    )
    card = Card(
        *num,
        Kind(tuple(kind[0]), tuple(kind[1]), kind[2], kind[3]),
        ids=ids,
        target_sums=sums,
        target_squares=squares,
        **values,  # type: ignore[arg-type]
    )
    train, holdout, test = (np.arange(start, start + n) for start, n in zip(first, num))
    return Member(node, card, ClientData(train if ids is None else ids, holdout, test))
