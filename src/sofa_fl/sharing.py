"""Partial data sharing: which samples every cluster holds, and a ledger of what was disclosed.

A plan over row numbers; no sample is touched here. NumPy and the topology only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from sofa_fl.data.federated_data import OwnedRows, Samples
from sofa_fl.seeding import rng_for
from sofa_fl.topology.tree import NodeId, Tree, value_at_level

Bits = NDArray[np.uint8]  # what `np.packbits` gives
Fraction = Annotated[float, Interval(ge=0, le=1)]
Pools = Mapping[NodeId, Samples]  # what each cluster holds
Owned = Mapping[NodeId, Samples]  # what each client may be asked to share


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingConfig:
    """How much clients share.

    Attributes:
        ratio: Fraction of a child's samples that its parent gathers; or one fraction per level of
            the parent, from level 1 up (the last one also applies above). 0 shares nothing. If this
            is less than one sample of a child, one sample is drawn with this probability. By
            default, a run on MNIST or Fashion-MNIST shares 0.1, as in the paper, and a run on any
            other data shares nothing; `config.yaml` of the run has the number.
        mode: `random` draws new samples every round or, once the cap is reached, samples already
            disclosed; `fixed` repeats the first draw while a child holds the same samples.
        adaptive: Share less in a less coherent cluster: `ratio / (1 + incoherence)`.
        max_disclosure: Fraction of a client's samples that may ever leave it, over the whole run:
            one number, or one by client number. The default, also for clients not named, is the
            (largest) ratio. 0 shares nothing; 1 means no cap. A cap alone shares nothing.
        accumulate: Add gathered samples to a pool instead of replacing it, as the paper writes it.
            A new cluster starts with an empty pool.
        reshare: Also gather from the samples that a child received, not only from its own, as the
            paper writes it. They count as disclosed by their owner.
    """

    ratio: Fraction | tuple[Fraction, ...] | None = None
    mode: Literal["random", "fixed"] = "random"
    adaptive: bool = False
    max_disclosure: Fraction | dict[int, Fraction] | None = None
    accumulate: bool = False
    reshare: bool = False

    @property
    def largest_ratio(self) -> float:
        return max(self.ratio, default=0.0) if isinstance(self.ratio, tuple) else self.ratio or 0.0

    def cap_of(self, client: NodeId) -> float:
        cap = self.max_disclosure
        named = cap.get(client) if isinstance(cap, dict) else cap
        return self.largest_ratio if named is None else named


@dataclass(frozen=True, slots=True)
class Ledger:
    """Which samples of others every client has been given, over the whole run.

    Attributes:
        received: By client, a bit per row number, packed: in a flat tree everybody gets much of
            everything, which as row numbers would be 64 times as much.
        gone: The same, of all clients together that have left: what is out is out.
    """

    received: Mapping[NodeId, Bits] = field(default_factory=dict)
    gone: Bits = field(default_factory=lambda: _NO_BITS)

    def record(self, tree: Tree, pools: Pools, owned: Owned) -> Ledger:
        """The ledger after `pools` have been distributed down `tree`."""
        received = dict(self.received)
        for client, new in foreign(tree, pools, owned).items():
            before = received.get(client, _NO_BITS)
            received[client] = _with_rows(before, new) if len(new) else before
        return Ledger(received, self.gone)

    def without(self, clients: Collection[NodeId]) -> Ledger:
        """The ledger without these clients, who have left; not without what they were given."""
        of_leavers = [bits for client, bits in self.received.items() if client in clients]
        stay = {c: bits for c, bits in self.received.items() if c not in clients}
        return Ledger(stay, _either([self.gone, *of_leavers]))

    def disclosed(self, owned: Owned) -> dict[NodeId, Samples]:
        """The samples of every client that anyone else has been given."""
        known = self.known(owned)
        return {client: np.sort(rows[known[rows]]) for client, rows in owned.items()}

    def known(self, owned: Owned) -> NDArray[np.bool_]:
        """Of every row number up to the last of `owned`, whether anyone has it or a copy of it."""
        given = _either([self.gone, *self.received.values()])
        return _with_copies(_unpack(given, _num_rows(owned)), owned)

    def holds(self, client: NodeId, among: NDArray[np.bool_]) -> Samples:
        """The samples of others that a client has been given; `among` has a flag per row number."""
        return np.flatnonzero(_unpack(self.received.get(client, _NO_BITS), len(among)) & among)

    def given(self, owner_rows: Samples, to: NodeId) -> Samples:
        """The samples among `owner_rows` that client `to` has been given."""
        has = _unpack(self.received.get(to, _NO_BITS), 1 + int(owner_rows.max(initial=-1)))
        return np.sort(owner_rows[has[owner_rows]])


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
    if config.largest_ratio == 0:
        return Shared(dict.fromkeys(tree.clusters, _NONE), before.ledger)
    is_owned = _is_owned(owned, _num_rows(owned))
    kept = still_owned(before.pools, owned) if config.accumulate else {}
    known = before.ledger.known(owned)
    known[union(list(kept.values()))] = True  # whoever joins is given all of a pool
    known = _with_copies(known, owned)
    time = 0 if config.mode == "fixed" else round
    pools: dict[NodeId, Samples] = {}
    for cluster in reversed(tree.clusters):  # children before parents
        ratio = value_at_level(config.ratio or 0.0, tree.level[cluster])
        if config.adaptive and incoherence is not None:
            ratio /= 1 + incoherence[cluster]
        gathered = [kept.get(cluster, _NONE)]
        for child in tree.children[cluster]:
            rng = rng_for(seed, time, child, "share")
            if child in tree.members:
                own = owned[child]
                given = before.ledger.holds(child, is_owned) if config.reshare else _NONE
                order = rng.permutation(np.concatenate([own, given]))
                room = int(config.cap_of(child) * len(own)) - int(np.count_nonzero(known[own]))
                order, size = order[_within(room, ~known[order])], len(order)
            else:
                order, size = rng.permutation(pools[child]), len(pools[child])
            expected = ratio * size
            gathered.append(order[: int(expected if expected >= 1 else rng.random() < expected)])
        pools[cluster] = union(gathered)
    if config.reshare:  # what a cluster is given belongs to what it holds
        for cluster in tree.clusters:  # parents before children
            if (parent := tree.parent[cluster]) is not None:
                pools[cluster] = union([pools[cluster], pools[parent]])
    return Shared(pools, before.ledger.record(tree, pools, owned))


def foreign(
    tree: Tree, pools: Pools, owned: Owned, clients: Sequence[NodeId] | None = None
) -> dict[NodeId, Samples]:
    """What clients (by default all) get from the pools of their paths, sorted.

    Not their own samples, nor those that no client has any more: data change, and clients leave.
    """
    clients = tree.clients if clients is None else clients
    if not any(map(len, pools.values())):
        return dict.fromkeys(clients, _NONE)
    wanted = set(clients)
    # Of every row number, whether the path down to here holds it: no sorting, no comparing.
    num_rows = max(_num_rows(owned), _num_rows(pools))
    none, is_owned = np.zeros(num_rows, bool), _is_owned(owned, num_rows)
    path: list[tuple[NodeId | None, NDArray[np.bool_]]] = [(None, none)]
    rows_of: dict[NodeId | None, Samples] = {None: _NONE}  # what a path holds, by its last cluster
    is_own, gets = none.copy(), dict[NodeId, Samples]()
    for node in tree.walk():
        parent = tree.parent[node]
        while path[-1][0] != parent:
            path.pop()
        if node not in tree.members:
            held = path[-1][1].copy()
            held[pools.get(node, _NONE)] = True
            path.append((node, held))
        elif node in wanted:
            if parent not in rows_of:
                rows_of[parent] = np.flatnonzero(path[-1][1] & is_owned)
            rows, own = rows_of[parent], owned[node]
            is_own[own] = True
            gets[node] = rows[~is_own[rows]]
            is_own[own] = False
    return {client: gets[client] for client in clients}


def training_sets(
    tree: Tree, pools: Pools, owned: Owned, clients: Sequence[NodeId] | None = None
) -> dict[NodeId, Samples]:
    """Clients' own samples and those shared with them (by default, of all clients of the tree)."""
    return {
        client: np.concatenate([owned[client], rows]) if len(rows) else owned[client]
        for client, rows in foreign(tree, pools, owned, clients).items()
    }


def traffic(tree: Tree, pools: Pools, owned: Owned) -> tuple[int, int]:
    """How many samples clients sent up and were sent down for these pools."""
    up = len(union(list(pools.values())))
    return up, sum(map(len, foreign(tree, pools, owned).values())) if up else 0


def contributions(tree: Tree, pools: Pools, owned: Owned) -> Iterator[tuple[NodeId, list[int]]]:
    """How many of a client's samples the pools of its path hold, its parent's first.

    A pool takes from those below it, so this tells all of who has what: another client has of
    this one's samples what the pool of the lowest cluster above both holds. Pools off its path
    may also hold some with `reshare`, and with `accumulate` once it has moved: these are not
    counted. Zeros at the end are left out, and so is a client that shares nothing.
    """
    if not any(map(len, pools.values())):
        return
    owner = np.full(max(_num_rows(owned), _num_rows(pools)), -1, dtype=np.int64)
    for client, rows in owned.items():
        owner[rows] = client
    held: dict[NodeId, dict[int, int]] = {}
    for cluster, rows in pools.items():
        owners, counts = np.unique(owner[rows], return_counts=True)
        held[cluster] = dict(zip(owners.tolist(), counts.tolist()))
    for client in tree.clients:
        counts_above = [held.get(k, {}).get(client, 0) for k in reversed(tree.path(client)[:-1])]
        while counts_above and not counts_above[-1]:
            counts_above.pop()
        if counts_above:
            yield client, counts_above


def union(parts: list[Samples]) -> Samples:
    rows = np.sort(np.concatenate([_NONE, *parts]))  # faster than `np.unique`
    return rows[np.diff(rows, prepend=-1) > 0]


def _with_copies(known: NDArray[np.bool_], owned: Owned) -> NDArray[np.bool_]:
    """Flags of rows, extended to all copies of the same samples."""
    if not isinstance(owned, OwnedRows) or owned.sources is None:
        return known
    sources = owned.sources[: len(known)]
    is_known = np.zeros(1 + int(owned.sources.max(initial=-1)), dtype=np.bool_)
    is_known[sources[known[: len(sources)]]] = True
    return is_known[sources]


def _num_rows(held: Mapping[NodeId, Samples]) -> int:
    if isinstance(held, OwnedRows) and held.sources is not None:
        return len(held.sources)
    return 1 + max((int(rows.max(initial=-1)) for rows in held.values()), default=-1)


def _is_owned(owned: Owned, num_rows: int) -> NDArray[np.bool_]:
    """A flag per row number."""
    flags = np.zeros(num_rows, dtype=np.bool_)
    for rows in owned.values():
        flags[rows] = True
    return flags


def still_owned(pools: Pools, owned: Owned) -> dict[NodeId, Samples]:
    """The pools without samples that no client has any more: data change, and clients leave."""
    flags = _is_owned(owned, max(_num_rows(owned), _num_rows(pools)))
    return {cluster: rows[flags[rows]] for cluster, rows in pools.items()}


def _within(room: int, is_new: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which samples disclose no more than `room` new ones: the known ones, and the first new."""
    return ~is_new | (np.cumsum(is_new) <= room)


def _either(parts: Sequence[Bits]) -> Bits:
    """The rows in any of the parts."""
    everything = np.zeros(max(map(len, parts)), dtype=np.uint8)
    for bits in parts:
        everything[: len(bits)] |= bits
    return everything


def _with_rows(bits: Bits, rows: Samples) -> Bits:
    has = _unpack(bits, max(8 * len(bits), 1 + int(rows.max())))
    has[rows] = True
    return np.packbits(has)


def _unpack(bits: Bits, num_rows: int) -> NDArray[np.bool_]:
    if not len(bits):  # NumPy leaves such memory as it finds it
        return np.zeros(num_rows, dtype=np.bool_)
    return np.unpackbits(bits, count=num_rows).view(np.bool_)


_NONE: Samples = np.empty(0, dtype=np.int64)
_NO_BITS: Bits = np.empty(0, dtype=np.uint8)
