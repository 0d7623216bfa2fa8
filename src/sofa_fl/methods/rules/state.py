"""What SOFA-FL knows from round to round, and what becomes of it when the tree changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.alert import look_around
from sofa_fl.methods.rules.hierarchy import Losses, Models, compare, inherit, steady
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import Shared
from sofa_fl.topology.clustering.membership import find_leaves, find_takeover
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Join, apply_all


@dataclass(frozen=True, slots=True)
class SofaState:
    """All that a round needs and all that it returns.

    Attributes:
        tree: The clients that were ever heard and have not left, and their clusters; who took
            over a tree that everybody left need not have been heard.
        params: One model per node of the tree.
        losses: Of the models on each client's path, held out.
        steadied: The same, by those of siblings.
        shared: What clients share.
    """

    tree: Tree
    params: Models
    losses: Losses
    steadied: Losses
    shared: Shared


def edited(
    state: SofaState, edits: Sequence[Edit], steadiness: float, fed: Federation
) -> SofaState:
    """The state on the tree after `edits`; losses that nobody knows are measured."""
    tree = apply_all(state.tree, edits)
    params = inherit(state.tree, state.params, edits, fed)
    losses = compare(tree, params, fed, state.losses, fed.asked)
    before, none = state.shared, np.empty(0, dtype=np.int64)
    pools = {cluster: before.pools.get(cluster, none) for cluster in tree.clusters}
    # Who was moved gets what is shared where it is now.
    ledger = before.ledger.without(state.tree.members - tree.members)
    ledger = ledger.record(tree, pools, fed.owned)
    return SofaState(
        tree,
        params,
        losses,
        steady(tree, losses, fed, steadiness),
        Shared(pools, ledger),
    )


def left(state: SofaState, steadiness: float, fed: Federation) -> tuple[SofaState, list[Edit]]:
    """The state without those who are gone, and how that came about."""
    if not state.tree.members & fed.owned.keys():
        return taken_over(state, steadiness, fed)
    leaves = find_leaves(state.tree, fed.owned)
    return edited(state, leaves, steadiness, fed) if leaves else state, leaves


def taken_over(
    state: SofaState, steadiness: float, fed: Federation
) -> tuple[SofaState, list[Edit]]:
    """The state where everybody is gone, with those who are asked in their place.

    Each begins in the cluster that loses least for it, with that one's model: what was learned
    is not lost. Where nobody is asked, all who are there begin at the root.
    """
    tree, models = state.tree, dict(state.params)
    asked = [client for client in fed.clients if client in fed.asked]
    ways = look_around(tree, models, asked, fed)
    onto = {c: [tree.root, *ways.get(c, ())][-1] for c in asked or fed.clients}
    edits = find_takeover(tree, onto)
    for edit in edits:
        if isinstance(edit, Join):
            new = edit.node, edit.above
            models |= {node: models[edit.onto] for node in new if node is not None}
    return edited(replace(state, params=models), edits, steadiness, fed), edits


def kept(state: SofaState, fed: Federation) -> dict[NodeId, Vector]:
    """The models that are still there if nobody is heard.

    Of clients only where it may well be that some are not: all others' old models can go.
    """
    keeps = state.tree.parent if fed.may_miss else state.tree.clusters or state.tree.clients
    return {node: state.params[node] for node in keeps}
