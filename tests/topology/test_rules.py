"""Rules are values: a user replaces one of them, and SHAPE goes by what it is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sofa_fl.topology.config import DmacConfig, ShapeConfig
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.evidence import DistanceEvidence, Evidence
from sofa_fl.topology.clustering.separation import Separation, plain_neighbors
from sofa_fl.topology.clustering.shape import (
    TreeRules,
    default_tree_rules,
    foresee,
    paper_tree_rules,
    shape,
)
from sofa_fl.topology.space import Neighbors, Space
from sofa_fl.topology.tree import Tree
from sofa_fl.topology.edits import Edit, Graft, apply_all
from tests.topology.strategies import ALL, CLOUDS, node, only, space_of, tree_of

TREE, SPACE = tree_of([[0, 1, 2], [3, 4, 5]]), space_of(CLOUDS)
EVIDENCE = DistanceEvidence(TREE, SPACE)
GRAFTS = [Graft(node(2), node(8))]


def never(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
    return []


def recording(log: list[str]) -> TreeRules:
    """Rules that do nothing but say that they were asked."""

    def rule(name: str) -> object:
        def look(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
            log.append(name)
            return []

        return look

    names = ("graft", "merge", "split", "prune")
    return replace(default_tree_rules(), **{name: rule(name) for name in names})  # type: ignore[arg-type]


def test_the_order_is_part_of_the_rules() -> None:
    log: list[str] = []
    shape(TREE, EVIDENCE, ALL, recording(log))
    assert log == ["graft", "merge", "split", "prune"]
    log.clear()
    rules = replace(recording(log), order=("graft", "prune", "merge", "split"))
    shape(TREE, EVIDENCE, ALL, rules)
    assert log == ["graft", "prune", "merge", "split"]
    log.clear()
    shape(TREE, EVIDENCE, only("prune", "graft"), rules)
    assert log == ["graft", "prune"], "only what the settings allow"


def test_a_rule_sees_what_the_rules_before_it_have_changed() -> None:
    seen = list[tuple[Tree, Evidence]]()

    def watching(tree: Tree, evidence: Evidence, config: ShapeConfig) -> list[Edit]:
        seen.append((tree, evidence))
        return []

    rules = replace(default_tree_rules(), merge=watching, split=never, prune=watching)
    tree, edits, evidence = shape(TREE, EVIDENCE, ALL, rules)
    assert edits == GRAFTS
    assert tree == apply_all(TREE, GRAFTS)
    assert seen == [(tree, evidence), (tree, evidence)]
    assert evidence == DistanceEvidence(tree, SPACE, moved={node(2)})


def test_a_user_replaces_one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shape(TREE, EVIDENCE, ALL)[1] == GRAFTS
    with monkeypatch.context() as patch:
        patch.setattr("sofa_fl.topology.clustering.dmac.quickest", plain_neighbors)
        assert shape(TREE, replace(EVIDENCE, space=replace(SPACE)), ALL)[1] == GRAFTS
    calm = replace(default_tree_rules(), graft=never)
    assert shape(TREE, EVIDENCE, ALL, calm) == (TREE, [], EVIDENCE)


def test_without_rules_ours_are_taken() -> None:
    far = DistanceEvidence(TREE, SPACE, blind_loss=1e9)
    assert shape(TREE, far, only("graft"), paper_tree_rules())[1] == GRAFTS, "by positions alone"
    assert shape(TREE, far, only("graft"), default_tree_rules())[1] == []
    assert shape(TREE, far, only("graft"))[1] == []


def test_what_is_foreseen_is_that_of_the_operations_in_their_order() -> None:
    """So much of it as the configuration allows; the paper's rules ask for nothing."""
    ours = default_tree_rules()
    find_grafts, find_splits = ours.foresight["graft"], ours.foresight["split"]
    grafts, splits = find_grafts(TREE, EVIDENCE, ALL), find_splits(TREE, EVIDENCE, ALL)
    assert grafts
    assert splits
    assert foresee(TREE, EVIDENCE, ALL, ours) == [*grafts, *splits]
    assert foresee(TREE, EVIDENCE, only("graft", "merge"), ours) == grafts
    assert foresee(TREE, EVIDENCE, only("split"), ours) == splits
    turned = replace(ours, order=("split", "graft"))
    assert foresee(TREE, EVIDENCE, ALL, turned) == [*splits, *grafts]
    assert foresee(TREE, EVIDENCE, ALL, paper_tree_rules()) == []
    late = replace(EVIDENCE, round=1)
    rare = only("graft", every=2)
    assert foresee(TREE, late, rare, ours) == find_grafts(TREE, late, rare) != grafts


def test_our_set_and_the_papers() -> None:
    ours, paper = default_tree_rules(), paper_tree_rules()
    assert ours.order == paper.order == ("graft", "merge", "split", "prune")
    assert ours.prune is paper.prune
    config = DmacConfig(increase=1.5)
    for rules in (ours, paper):
        tree = rules.build(SPACE, config, 70)
        assert tree == dmac(SPACE, config, 70)
        assert min(tree.clusters) == 70


def test_all_rules_look_for_neighbors_in_the_quickest_way(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Space] = []

    def watched(space: Space) -> tuple[Neighbors, Separation]:
        asked.append(space)
        return plain_neighbors(space)

    monkeypatch.setattr("sofa_fl.topology.clustering.dmac.quickest", watched)
    default_tree_rules().build(SPACE, DmacConfig(), 0)
    paper_tree_rules().build(SPACE, DmacConfig(increase=1.1), 0)
    assert asked == [SPACE, SPACE]
    default_tree_rules().split(TREE, EVIDENCE, ALL)
    assert len(asked) > 2
