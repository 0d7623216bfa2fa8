"""SOFA-FL with DMAC anew in every round in place of SHAPE: what following a tree is measured by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sofa_fl.federation import Federation
from sofa_fl.methods.registry import register
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.hierarchy import Models, means_up
from sofa_fl.methods.sofa import Sofa
from sofa_fl.models.flat import Vector
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit


@register("regroup", "DMAC every round", SofaConfig, section="sofa")
@dataclass(frozen=True, slots=True)
class Regroup(Sofa):
    def reshape(self, tree: Tree, space: Space) -> tuple[Tree, Sequence[Edit]]:
        """A new tree, of new clusters, that has nothing to do with the old one."""
        if set(space.clients) != tree.members:
            return tree, ()  # whoever was not heard has no place
        return dmac(space, self.config.dmac, tree.next_id), ()

    def inherited(
        self, before: Tree, tree: Tree, models: Models, edits: Sequence[Edit], fed: Federation
    ) -> dict[NodeId, Vector]:
        """Every cluster is the mean of its clients."""
        return dict(models) if tree is before else means_up(tree, models, fed)
