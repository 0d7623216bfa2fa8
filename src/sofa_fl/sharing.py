"""Partial data sharing: which samples every cluster holds, and a ledger of what was disclosed.

A plan over row numbers; no sample is touched here. NumPy and the topology only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval

from sofa_fl.data.base import Samples
from sofa_fl.seeding import rng_for
from sofa_fl.topology.tree import NodeId, Tree

Fraction = Annotated[float, Interval(ge=0, le=1)]
Pools = Mapping[NodeId, Samples]  # what each cluster holds
Owned = Mapping[NodeId, Samples]  # what each client may be asked to share


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingConfig:
    """How much is shared.

    Attributes:
        ratio: Fraction of what a child holds that its parent gathers; or one fraction per level
            (of the parent, from 1 up; the last one goes on). 0 shares nothing.
        mode: `random` draws anew every round, `fixed` draws the same samples every round.
        adaptive: Share less in a cluster that is less coherent: `ratio / (1 + incoherence)`.
        max_disclosure: Fraction of a client's samples that may ever leave it, over the whole run:
            one number, or one by client number (1 for those not named). 0 shares nothing.
    """

    ratio: Fraction | tuple[Fraction, ...] = 0.1
    mode: Literal["random", "fixed"] = "random"
    adaptive: bool = False
    max_disclosure: Fraction | dict[int, Fraction] = 1.0

    def ratio_at(self, level: int) -> float:
        if isinstance(self.ratio, tuple):
            return self.ratio[min(level, len(self.ratio)) - 1] if self.ratio else 0.0
        return self.ratio

    def cap_of(self, client: NodeId) -> float:
        if isinstance(self.max_disclosure, dict):
            return self.max_disclosure.get(client, 1.0)
        return self.max_disclosure


@dataclass(frozen=True, slots=True)
class Ledger:
    """Which samples of others every client has been given, over the whole run."""

    received: Mapping[NodeId, Samples] = field(default_factory=dict)

    def record(self, tree: Tree, pools: Pools, owned: Owned) -> Ledger:
        """The ledger after `pools` have been distributed down `tree`."""
        received = dict(self.received)
        for client in tree.clients:
            new = foreign(tree, pools, client, owned[client])
            received[client] = np.union1d(received.get(client, _NONE), new)
        return Ledger(received)

    def disclosed(self, owned: Owned) -> dict[NodeId, Samples]:
        """The samples of every client that anyone else has been given."""
        known = union(list(self.received.values()))
        return {c: np.intersect1d(rows, known, assume_unique=True) for c, rows in owned.items()}

    def given(self, owner_rows: Samples, to: NodeId) -> Samples:
        """The samples among `owner_rows` that client `to` has been given."""
        return np.intersect1d(owner_rows, self.received.get(to, _NONE), assume_unique=True)


@dataclass(frozen=True, slots=True)
class Shared:
    """What is shared now, and what has been so far."""

    pools: Pools = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)


def share(
    tree: Tree,
    owned: Owned,
    before: Shared,
    config: SharingConfig,
    *,
    seed: int,
    round: int,
    incoherence: Mapping[NodeId, float] | None = None,
) -> Shared:
    """Gather upward, distribute downward, and write it into the ledger."""
    if max(config.ratio_at(level) for level in range(1, tree.depth + 2)) == 0:
        return Shared(dict.fromkeys(tree.clusters, _NONE), before.ledger)
    disclosed = before.ledger.disclosed(owned)
    time = 0 if config.mode == "fixed" else round
    pools: dict[NodeId, Samples] = {}
    for cluster in reversed(tree.clusters):  # children before parents
        ratio = config.ratio_at(tree.level[cluster])
        if config.adaptive and incoherence is not None:
            ratio /= 1 + incoherence[cluster]
        drawn = [_NONE]
        for child in tree.children[cluster]:
            rng = rng_for(seed, time, child, "share")
            if child in tree.members:
                order = rng.permutation(owned[child])
                cap = config.cap_of(child)
                allowed = _within_cap(order, disclosed[child], int(cap * len(order)))
                drawn.append(allowed[: int(ratio * len(order))])
            else:
                drawn.append(rng.permutation(pools[child])[: int(ratio * len(pools[child]))])
        pools[cluster] = np.sort(np.concatenate(drawn))
    return Shared(pools, before.ledger.record(tree, pools, owned))


def foreign(tree: Tree, pools: Pools, node: NodeId, own: Samples) -> Samples:
    """What `node` gets from the pools of its path, its own samples left out."""
    held = union([pools[up] for up in tree.path(node) if up in pools])
    return np.setdiff1d(held, own, assume_unique=True)


def training_set(tree: Tree, pools: Pools, client: NodeId, own: Samples) -> Samples:
    """A client's own samples and those shared with it; never a copy of its own."""
    return np.concatenate([own, foreign(tree, pools, client, own)])


def traffic(tree: Tree, pools: Pools, owned: Owned) -> tuple[int, int]:
    """How many samples clients sent up and were sent down for these pools."""
    up = len(union(list(pools.values())))
    down = sum(len(foreign(tree, pools, client, owned[client])) for client in tree.clients)
    return up, down


def union(parts: list[Samples]) -> Samples:
    return np.unique(np.concatenate([_NONE, *parts]))


def _within_cap(order: Samples, disclosed: Samples, cap: int) -> Samples:
    """`order` without the new samples that would bring the disclosed ones above `cap`."""
    is_new = ~np.isin(order, disclosed)
    return order[~is_new | (np.cumsum(is_new) <= cap - len(disclosed))]


_NONE: Samples = np.empty(0, dtype=np.int64)
