"""The roster on disk: who was which client, so that a restarted server knows them again."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sofa_fl.data.base import ClientData
from sofa_fl.deploy.server.described_data import Card, Kind, read_look
from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.topology.tree import NodeId

ARRAYS = {"ids": np.int64, "target_sums": np.float64, "target_squares": np.float64}
NUMBERS = ("num_train", "num_holdout", "num_test", "num_classes", "number", "mark", "cap")


@dataclass(frozen=True, slots=True)
class Member:
    """A client, and the node that is it.

    Attributes:
        since: The round in which it came.
        away: From which round to which (None: still) it had left.
    """

    node: int
    card: Card
    rows: ClientData
    since: int = 0
    away: tuple[tuple[int, int | None], ...] = ()

    def is_client(self, round: int) -> bool:
        """Whether it belongs to the federation in a round."""
        gone = any(left <= round and (back is None or round < back) for left, back in self.away)
        return self.since <= round and not gone

    @property
    def is_gone(self) -> bool:
        """Whether it has left and not come back."""
        return bool(self.away) and self.away[-1][1] is None

    def left(self, round: int) -> Member:
        return replace(self, away=(*self.away, (round, None)))

    def back(self, round: int) -> Member:
        *before, (left, _) = self.away
        return replace(self, away=(*before, (left, round)))


def save_members(file: Path, members: dict[NodeId, Member]) -> None:
    plain = {str(client): _plain(member) for client, member in members.items()}
    write_text(file, json.dumps(plain) + "\n")


def load_members(file: Path) -> dict[NodeId, Member]:
    """The members written there; none if there is no such file."""
    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {NodeId(int(client)): _member(plain) for client, plain in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{file} is damaged: {error!r}") from None


def _plain(member: Member) -> dict[str, Any]:
    card, rows = member.card, member.rows
    kind = card.kind
    arrays = {name: getattr(card, name) for name in ARRAYS}
    return {
        "node": str(member.node),  # larger than what JSON readers elsewhere take for a number
        "since": member.since,
        "away": member.away,
        "first": [int(r[0]) if len(r) else 0 for r in (rows.train, rows.holdout, rows.test)],
        "input": [kind.input[0], *kind.input[1]],
        "target": [kind.target[0], *kind.target[1]],
        "scale": kind.scale,
        "shift": kind.shift,
        **{name: getattr(card, name) for name in NUMBERS},
        **{name: None if array is None else array.tolist() for name, array in arrays.items()},
    }


def _member(plain: dict[str, Any]) -> Member:
    arrays: dict[str, Any] = {
        name: None if plain[name] is None else np.array(plain[name], dtype=dtype)
        for name, dtype in ARRAYS.items()
    }
    looks = read_look(plain["input"]), read_look(plain["target"])
    kind = Kind(*looks, plain["scale"], plain["shift"])
    card = Card(kind=kind, **{name: plain[name] for name in NUMBERS}, **arrays)
    sizes = (card.num_train, card.num_holdout, card.num_test)
    train, holdout, test = (np.arange(a, a + n) for a, n in zip(plain["first"], sizes))
    rows = ClientData(train if card.ids is None else card.ids, holdout, test)
    away = tuple((left, back) for left, back in plain["away"])
    return Member(int(plain["node"]), card, rows, plain["since"], away)
