"""SOFA-FL with a new tree by DMAC in every round in place of SHAPE: what SHAPE has to equal."""

from __future__ import annotations

from dataclasses import replace

from sofa_fl.federation import Federation
from sofa_fl.methods.registry import register
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.methods.sofa.mixing import Mixing
from sofa_fl.methods.sofa.state import SofaState
from sofa_fl.topology.dmac import dmac
from sofa_fl.topology.edits import Edit
from sofa_fl.topology.space import Space


@register("regroup", "DMAC every round", SofaConfig, section="sofa")
class Regroup(Sofa):
    def regrown(self, state: SofaState, space: Space, fed: Federation) -> SofaState:
        """A new tree, unrelated to the old one, if all clients have a position."""
        if set(space.clients) != state.tree.members:
            return state
        tree = dmac(space, self.config.dmac, state.tree.next_id)
        models = {client: state.models[client] for client in tree.clients}
        mixing = Mixing({c: a for c, a in state.mixing.weights.items() if c in tree.members})
        shared = state.shared.on(tree, fed.owned)
        return replace(state, tree=tree, models=models, mixing=mixing, shared=shared)

    def edits(self, *_: object) -> list[Edit]:
        return []
