"""SOFA-FL with a new tree by DMAC in every round in place of SHAPE: what SHAPE has to equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sofa_fl.methods.registry import register
from sofa_fl.methods.rules.clusters import means_up
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.losses import FederationEvidence
from sofa_fl.methods.rules.rule_set import Rules, rules_of
from sofa_fl.methods.sofa import Sofa
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree.edits import Edit


@register("regroup", "DMAC every round", SofaConfig, section="sofa")
class Regroup(Sofa):
    """There is no foresight: no losses are measured before the tree is built."""

    def __init__(
        self, config: SofaConfig, sharing: SharingConfig, rules: Rules | None = None
    ) -> None:
        rules = replace(rules or rules_of(config), foresight={})
        super().__init__(config, sharing, rules)

    def reshape(
        self, evidence: FederationEvidence, rules: Rules
    ) -> tuple[FederationEvidence, Sequence[Edit]]:
        """Build a new tree, unrelated to the old one, if all clients have a position."""
        tree, space = evidence.tree, evidence.space
        if set(space.clients) != tree.members:
            return evidence, ()
        after = rules.build(space, self.config.dmac, tree.next_id)
        models = means_up(after, evidence.models, evidence.fed)
        return replace(evidence, tree=after, models=models, known={}), ()
