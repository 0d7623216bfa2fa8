"""SOFA-FL with a new tree by DMAC in every round in place of SHAPE: what SHAPE has to equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sofa_fl.methods.registry import register
from sofa_fl.methods.rules.clusters import means_up
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.losses import FederationEvidence
from sofa_fl.methods.rules.rule_set import Rules
from sofa_fl.methods.sofa import Sofa
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit


@register("regroup", "DMAC every round", SofaConfig, section="sofa")
class Regroup(Sofa):
    """No trials: every parent is new in every round, and there would be no end to them."""

    def __init__(
        self, config: SofaConfig, sharing: SharingConfig, rules: Rules | None = None
    ) -> None:
        super().__init__(replace(config, trials=False), sharing, rules)

    def reshape(
        self, evidence: FederationEvidence, rules: Rules
    ) -> tuple[Tree, Sequence[Edit], dict[NodeId, Vector]]:
        """Build a new tree, unrelated to the old one, if all clients have a position."""
        tree, space, models = evidence.tree, evidence.space, evidence.models
        if set(space.clients) != tree.members:
            return tree, (), dict(models)
        after = rules.build(space, self.config.dmac, tree.next_id)
        return after, (), means_up(after, models, evidence.fed)
