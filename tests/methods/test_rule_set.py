"""Rules are values: the two named sets, what a configuration picks, and one rule exchanged."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from sofa_fl.methods.rules.clusters import regularized_mean
from sofa_fl.methods.rules.config import RulesConfig, RuleSet, SofaConfig
from sofa_fl.methods.rules.local_update import (
    Path,
    mix_path,
    pulls_on_client,
    start_from_own,
)
from sofa_fl.methods.rules.mixing import own_models, weigh_by_losses
from sofa_fl.methods.rules.rule_set import default_rules, paper_rules, rules_of
from sofa_fl.topology.clustering.evidence import Evidence

from sofa_fl.methods.sofa import Sofa
from sofa_fl.models.flat import as_vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.config import DmacConfig, ShapeConfig
from sofa_fl.topology.edits import Edit
from sofa_fl.topology.tree import NodeId, Tree
from tests.methods.cases import Spy, after_rounds, federation, updates_of

NO_SHARING = SharingConfig(ratio=0)
PAPER = SofaConfig(
    position="weights",
    linkage="centroid",
    start="own",
    serve="own",
    clusters="regularized",
    alert=float("inf"),
    rules=RulesConfig(graft="paper", merge="paper", split="paper"),
    dmac=DmacConfig(increase=1.2),
)


def name_of(rule: object) -> str:
    """The function behind a rule, which may be given some of its arguments."""
    return str(getattr(getattr(rule, "func", rule), "__name__", rule))


def test_the_paper_set_is_what_its_configuration_names() -> None:
    """But for DMAC, which goes by the paper where gamma is given."""
    named, whole = rules_of(PAPER), paper_rules()
    for field in fields(whole):
        if field.name != "build":
            picked, meant = getattr(named, field.name), getattr(whole, field.name)
            assert name_of(picked) == name_of(meant), field.name


def test_both_sets_build_the_papers_tree_where_gamma_is_given() -> None:
    fed = federation()
    sets = rules_of(PAPER), paper_rules()
    space = sets[0].embed(updates_of(fed), PAPER, fed)
    trees = [rules.build(space, PAPER.dmac, fed.first_id) for rules in sets]
    assert trees[0].parent == trees[1].parent


@pytest.mark.parametrize("rule", ["graft", "merge", "split"])
def test_one_rule_of_the_paper_among_ours(rule: str) -> None:
    sets: dict[str, RuleSet] = {rule: "paper"}
    rules = rules_of(SofaConfig(rules=RulesConfig(**sets)))
    for name in ("graft", "merge", "split"):
        origin = paper_rules() if name == rule else default_rules()
        assert name_of(getattr(rules, name)) == name_of(getattr(origin, name))
    assert rules.start is mix_path


def test_a_client_goes_on_from_its_own_model_and_serves_it() -> None:
    fed = federation(spy=True)
    method = Sofa(PAPER, NO_SHARING)
    state, _ = method.init(fed.at(0))
    assert isinstance(fed.engine, Spy)
    fed.engine.tasks.clear()
    after, _ = method.round(state, fed.at(1))
    for task in fed.engine.tasks:
        assert torch.equal(as_vector(task.start), state.params[task.site])
        assert torch.equal(as_vector(method.view(after).served[task.site]), after.params[task.site])


def test_clusters_of_the_paper_are_pulled_together() -> None:
    """Nearer to each other than the means of their clients are."""
    fed = federation()
    strong = replace(PAPER, pull_siblings=5.0, pull_parent=5.0, dmac=DmacConfig())
    method = Sofa(strong, NO_SHARING)
    state, _ = method.init(fed.at(0))
    low = [c for c in state.tree.clusters if state.tree.parent[c] == state.tree.root]
    assert len(low) > 1
    pulled = regularized_mean(state.tree, updates_of(fed), strong, fed)
    means = rules_of(SofaConfig()).clusters(state.tree, updates_of(fed), strong, fed)
    apart = [float(torch.dist(models[low[0]], models[low[1]])) for models in (pulled, means)]
    assert apart[0] < 0.5 * apart[1]


def test_a_user_replaces_one_rule() -> None:
    """As the docs show it: a merge rule that never merges, and where a client starts."""
    asked: list[Tree] = []

    def never_merge(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
        asked.append(tree)
        return []

    def start_at_the_root(path: Path, config: SofaConfig) -> torch.Tensor:
        return path.models[path.clusters[0]]

    rules = replace(default_rules(), merge=never_merge, start=start_at_the_root)
    fed = federation(spy=True)
    method = Sofa(SofaConfig(), NO_SHARING, rules)
    state = after_rounds(method, fed, 1)
    assert asked
    assert isinstance(fed.engine, Spy)
    fed.engine.tasks.clear()
    method.round(state, fed.at(2))
    root = state.params[state.tree.root]
    assert all(torch.equal(as_vector(task.start), root) for task in fed.engine.tasks)


def test_a_newcomer_without_a_model_starts_from_the_lowest_cluster() -> None:
    fed = federation()
    models = {NodeId(20): fed.initial(1), NodeId(21): fed.initial(2)}
    path = Path((NodeId(20), NodeId(21)), None, models)
    assert start_from_own(path, PAPER) is models[NodeId(21)]


def test_nothing_is_weighed_where_clients_start_from_their_own_and_serve_it() -> None:
    assert rules_of(PAPER).weigh is own_models
    assert rules_of(replace(PAPER, serve="blend")).weigh is weigh_by_losses
    assert rules_of(replace(PAPER, start="path")).weigh is weigh_by_losses
    assert rules_of(replace(PAPER, start="path")).pulls is pulls_on_client
    assert rules_of(replace(PAPER, serve="blend")).pulls is pulls_on_client
