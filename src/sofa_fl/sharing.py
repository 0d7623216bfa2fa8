"""Partial data sharing: which samples every cluster holds, and a ledger of what was disclosed.

A plan over row numbers; no sample is touched here. NumPy and the topology only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from sofa_fl.data.federated_data import OwnedRows, Samples
from sofa_fl.seeding import seed_for
from sofa_fl.topology.edits import Edit, Merge, Split
from sofa_fl.topology.tree import NodeId, Tree, value_at_level

Flags = NDArray[np.bool_]  # of every row number
Bits = NDArray[np.uint8]  # what `np.packbits` gives
Fraction = Annotated[float, Interval(ge=0, le=1)]
Pools = Mapping[NodeId, Samples]  # what each cluster holds; of clients, see `Shared`
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
            disclosed. `fixed` repeats its draws: a client always gives the same fraction of its own
            samples; of each sample that it was given, and of each in a cluster's pool, it is drawn
            once, with probability `ratio`, whether it goes up. So nobody gets a new sample while
            the tree, the data and the ratio (see `adaptive`) stay the same.
        adaptive: Share less in a less coherent cluster: `ratio / (1 + incoherence)`.
        max_disclosure: Fraction of a client's samples that may ever leave it, over the whole run:
            one number, or one by client number. The default, also for clients not named, is the
            (largest) ratio. 0 shares nothing; 1 means no cap. A cap alone shares nothing.
        accumulate: Add gathered samples to a pool instead of replacing it, as the paper writes it.
            A merged cluster holds what both held, a part of a split what the whole held, and a
            client keeps what it was given wherever it moves.
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
    """What is shared now, and what has been so far.

    Attributes:
        pools: What every cluster holds and, if all is kept, what a client was given that its path
            does not hold: it was elsewhere in the tree.
        keeps: Whether nodes keep what they were given (`SharingConfig.accumulate`).
    """

    pools: Pools = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    keeps: bool = False

    def after(self, edits: Sequence[Edit]) -> Shared:
        """What new clusters inherit, if all is kept; else they start with empty pools."""
        pools = dict(self.pools)
        for edit in edits if self.keeps else ():
            if isinstance(edit, Merge):
                pools[edit.into] = union([pools.get(node, _NONE) for node in edit.nodes])
            elif isinstance(edit, Split):
                pools |= dict.fromkeys(edit.into, pools.get(edit.node, _NONE))
        return replace(self, pools=pools)

    def on(self, tree: Tree, owned: Owned) -> Shared:
        """What is shared on a tree that has changed since: whoever moved gets the pools above it.

        Those who left are forgotten. Pools are of the clusters that the tree still has.
        """
        pools = {cluster: self.pools.get(cluster, _NONE) for cluster in tree.clusters}
        stay = self.ledger.without(self.ledger.received.keys() - tree.members)
        ledger = stay.record(tree, pools, owned)
        if self.keeps:
            pools |= given_elsewhere(tree, pools, ledger, owned)
        return replace(self, pools=pools, ledger=ledger)


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
    draw = _draw_fixed if config.mode == "fixed" else _draw_random
    time = 0 if config.mode == "fixed" else round
    pools: dict[NodeId, Samples] = {}
    for cluster in reversed(tree.clusters):  # children before parents
        ratio = value_at_level(config.ratio or 0.0, tree.level[cluster])
        if config.adaptive and incoherence is not None:
            ratio /= 1 + incoherence[cluster]
        gathered = [kept.get(cluster, _NONE)]
        for child in tree.children[cluster]:
            draw_seed = seed_for(seed, time, child, "share")
            if child in tree.members:
                own = owned[child]
                given = before.ledger.holds(child, is_owned) if config.reshare else _NONE
                room = int(config.cap_of(child) * len(own)) - int(np.count_nonzero(known[own]))
            else:
                own, given, room = _NONE, pools[child], len(pools[child])  # a pool has no cap
            gathered.append(draw(own, given, ratio, known, room, draw_seed))
        pools[cluster] = union(gathered)
    if config.reshare:  # what a cluster is given belongs to what it holds
        for cluster in tree.clusters:  # parents before children
            if (parent := tree.parent[cluster]) is not None:
                pools[cluster] = union([pools[cluster], pools[parent]])
    ledger = before.ledger.record(tree, pools, owned)
    if config.accumulate:
        pools |= given_elsewhere(tree, pools, ledger, owned)
    return Shared(pools, ledger, config.accumulate)


def _draw_random(
    own: Samples, given: Samples, ratio: float, known: Flags, room: int, seed: int
) -> Samples:
    """Some of what a child holds, in any order."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.concatenate([own, given]))
    allowed = order[_within(room, ~known[order])]
    return allowed[: _how_many(ratio * len(order), rng)]


def _draw_fixed(
    own: Samples, given: Samples, ratio: float, known: Flags, room: int, seed: int
) -> Samples:
    """The same of its own in every round; of the rest, each sample always or never.

    What else a child holds grows with `reshare`. If a larger set meant other samples, or more of
    its first ones, new samples would go up in every round. But whatever goes up of what came from
    above is there already.
    """
    order = own[np.argsort(_chances(own, seed), kind="stable")]
    allowed = order[_within(room, ~known[order])]
    first = allowed[: _how_many(ratio * len(own), np.random.default_rng(seed))]
    return np.concatenate([first, given[_chances(given, seed) < ratio]])


def _how_many(expected: float, rng: np.random.Generator) -> int:
    return int(expected if expected >= 1 else rng.random() < expected)


def _chances(rows: Samples, seed: int) -> NDArray[np.float64]:
    """A number from 0 to 1 per row, uniform, by the row and the seed alone (SplitMix64)."""
    bits = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def given_elsewhere(tree: Tree, pools: Pools, ledger: Ledger, owned: Owned) -> Pools:
    """What clients were given, by the ledger, and the pools of their paths do not hold."""
    is_owned = _is_owned(owned, _num_rows(owned))
    here = foreign(tree, {c: pools[c] for c in tree.clusters}, owned)
    kept = {c: np.setdiff1d(ledger.holds(c, is_owned), here[c], True) for c in tree.clients}
    return {client: rows for client, rows in kept.items() if len(rows)}


def foreign(
    tree: Tree, pools: Pools, owned: Owned, clients: Sequence[NodeId] | None = None
) -> dict[NodeId, Samples]:
    """What clients (by default all) get from the pools of their paths, and have kept; sorted.

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
            if node in pools:
                has = path[-1][1].copy()
                has[pools[node]] = True
                rows = np.flatnonzero(has & is_owned)
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
    """How many samples clients sent up and were sent down for these pools of clusters."""
    pools = {cluster: rows for cluster, rows in pools.items() if cluster not in tree.members}
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
