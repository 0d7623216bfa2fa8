"""What SOFA-FL keeps from round to round, and how all of it follows an edit of the tree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.averages import Models, inherit
from sofa_fl.methods.sofa.mixing import Mixing, effective_model
from sofa_fl.models.flat import Mix
from sofa_fl.sharing import Shared
from sofa_fl.topology.edits import Edit, Graft, Join, Merge, apply_all
from sofa_fl.topology.tree import NodeId, Tree

Losses = Mapping[NodeId, Mapping[NodeId, float]]  # held-out loss, by client and node of its path


@dataclass(frozen=True, slots=True)
class SofaState:
    """Everything a round needs and returns.

    Attributes:
        tree: The clients that have answered at least once and have not left, and their clusters.
            Clients that took over a tree which everybody left need not have answered yet.
        models: One model per node of the tree.
        losses: Held-out loss of the models on each client's path, when it was last asked.
        mixing: How much every node keeps of its own model.
        shared: What clients share.
        learned: The sum of every client's updates, where models are noised.
        arrivals: The round in which a node last came to its parent from elsewhere.
    """

    tree: Tree
    models: Models
    losses: Losses = field(default_factory=dict)
    mixing: Mixing = field(default_factory=Mixing)
    shared: Shared = field(default_factory=Shared)
    learned: Models = field(default_factory=dict)
    arrivals: Mapping[NodeId, int] = field(default_factory=dict)

    def effective(self, client: NodeId) -> Mix:
        """What a client stands for: it serves this model, and goes on from it."""
        return effective_model(self.tree.path(client), self.models, self.mixing)

    def after(self, edits: Sequence[Edit], fed: Federation) -> SofaState:
        """The state after some edits: the only way in which models and all else follow them."""
        if not edits:
            return self
        tree, models = apply_all(self.tree, edits), inherit(self.tree, self.models, edits, fed)
        came = [edit.node for edit in edits if isinstance(edit, Graft | Join)]
        came += [c for e in edits if isinstance(e, Merge) for c in tree.children.get(e.into, ())]
        arrivals = {**self.arrivals, **dict.fromkeys(came, fed.round)}
        state = SofaState(
            tree,
            models,
            self.losses,
            self.mixing.after(self.tree, tree),
            self.shared.after(edits).on(tree, fed.owned),
            {client: vector for client, vector in self.learned.items() if client in tree.members},
            {node: round for node, round in arrivals.items() if node in tree.parent},
        )
        return state.measured({}, fed.blind_loss)

    def measured(self, paths: Losses, unit: float) -> SofaState:
        """The state with new losses of some clients."""
        known = {**self.losses, **paths}
        losses = {c: complete(known.get(c, {}), self.tree.path(c), unit) for c in self.tree.clients}
        return replace(self, losses=losses)


def complete(
    losses: Mapping[NodeId, float], path: Sequence[NodeId], unit: float
) -> dict[NodeId, float]:
    """The losses along a path: where none is known, that of the next node above."""
    finite = {n: losses[n] for n in path if math.isfinite(losses.get(n, math.nan))}
    last = max(finite.values(), default=unit)
    return {node: (last := finite.get(node, last)) for node in path}
