"""What SOFA-FL keeps from round to round, and the store that frees models as they are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.clusters import inherit
from sofa_fl.methods.rules.losses import Losses, Models, compare_losses, steady
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import Shared
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, apply_all


@dataclass(frozen=True, slots=True)
class SofaState:
    """Everything a round needs and returns.

    Attributes:
        tree: The clients that have answered at least once and have not left, and their clusters.
            Clients that took over a tree which everybody left need not have answered yet.
        params: One model per node of the tree.
        losses: Held-out loss of the models on each client's path.
        steadied: The same, shrunk towards the losses of siblings.
        shared: What clients share.
    """

    tree: Tree
    params: Models
    losses: Losses
    steadied: Losses
    shared: Shared


class ModelStore(dict[NodeId, Vector]):
    """The models that a round begins with; a client's model is freed when it is taken.

    So a thousand old models and a thousand new ones never exist at the same time. Where clients
    may fail to answer, and so go on with the model they have, nothing is freed.
    """

    def __init__(self, models: Models, *, keep: bool) -> None:
        super().__init__(models)
        self._keep = keep

    def take(self, node: NodeId) -> None:
        """Let go of a model that is not needed any more."""
        if not self._keep:
            self.pop(node, None)


def after_edits(
    state: SofaState, edits: Sequence[Edit], steadiness: float, fed: Federation
) -> SofaState:
    """The state on the tree after `edits`; losses that are not known are measured."""
    tree = apply_all(state.tree, edits)
    params = inherit(state.tree, state.params, edits, fed)
    losses = compare_losses(tree, params, fed, state.losses, fed.asked)
    empty = np.empty(0, dtype=np.int64)
    pools = {cluster: state.shared.pools.get(cluster, empty) for cluster in tree.clusters}
    # A client that moved receives what is shared at its new position in the tree.
    ledger = state.shared.ledger.without(state.tree.members - tree.members)
    ledger = ledger.record(tree, pools, fed.owned)
    steadied = steady(tree, losses, fed, steadiness)
    return SofaState(tree, params, losses, steadied, Shared(pools, ledger))
