"""SOFA-FL with a new tree by DMAC in every round in place of SHAPE: what SHAPE has to equal."""

from __future__ import annotations

from collections.abc import Sequence

from sofa_fl.federation import Federation
from sofa_fl.methods.registry import register
from sofa_fl.methods.rules.clusters import Models, means_up
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.rule_set import Rules
from sofa_fl.methods.sofa import Sofa
from sofa_fl.models.flat import Vector
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit


@register("regroup", "DMAC every round", SofaConfig, section="sofa")
class Regroup(Sofa):
    def reshape(
        self, tree: Tree, space: Space, models: Models, rules: Rules, fed: Federation
    ) -> tuple[Tree, Sequence[Edit], dict[NodeId, Vector]]:
        """Build a new tree, unrelated to the old one, if all clients have a position."""
        if set(space.clients) != tree.members:
            return tree, (), dict(models)
        after = self.rules.build(space, self.config.dmac, tree.next_id)
        return after, (), means_up(after, models, fed)
