"""Rules are values: a user replaces one of them, and SHAPE goes by what it is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.config import DmacConfig, ShapeConfig
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.fast import FastCandidates
from sofa_fl.topology.clustering.shape import (
    TreeRules,
    default_tree_rules,
    one_pass,
    paper_tree_rules,
    shape,
)
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree import Tree
from sofa_fl.topology.tree.edits import Edit, Graft, Prune
from tests.topology.strategies import ALL, CLOUDS, only, space_of, tree_of

TREE, SPACE = tree_of([[0, 1, 2], [3, 4, 5]]), space_of(CLOUDS)


def recording(log: list[str]) -> TreeRules:
    """Rules that do nothing but say that they were asked."""

    def rule(name: str) -> object:
        def look(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
            log.append(name)
            return []

        return look

    names = ("graft", "merge", "split", "prune")
    return replace(default_tree_rules(), **{name: rule(name) for name in names})  # type: ignore[arg-type]


def test_the_order_is_part_of_the_rules() -> None:
    log: list[str] = []
    one_pass(TREE, SPACE, ALL, recording(log))
    assert log == ["graft", "merge", "split", "prune"]
    log.clear()
    rules = replace(recording(log), order=("graft", "prune", "merge", "split"))
    one_pass(TREE, SPACE, ALL, rules)
    assert log == ["graft", "prune", "merge", "split"]
    log.clear()
    one_pass(TREE, SPACE, only("prune", "graft"), rules)
    assert log == ["graft", "prune"], "only what the settings allow"


def test_a_user_replaces_one_rule() -> None:
    def never(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
        return []

    after, edits = shape(TREE, SPACE, ALL)
    assert any(isinstance(edit, Graft) for edit in edits)
    calm = replace(default_tree_rules(), graft=never)
    assert not any(isinstance(edit, Graft) for edit in shape(TREE, SPACE, ALL, calm)[1])
    assert shape(TREE, SPACE, ALL, default_tree_rules(Candidates())) == (after, edits)


@pytest.mark.parametrize(("until_stable", "passes"), [(True, 3), (False, 1)])
def test_passes_repeat_until_stable_if_asked(until_stable: bool, passes: int) -> None:
    """A rule that prunes one cluster of a chain at a time."""
    chain, calls = tree_of([[[0, 1]]]), 0

    def top(tree: Tree, *_: object) -> list[Edit]:
        nonlocal calls
        calls += 1
        return [Prune(tree.root)] if len(tree.children[tree.root]) == 1 else []

    rules = replace(default_tree_rules(), prune=top, until_stable=until_stable)
    after, edits = shape(chain, space_of([0, 1]), only("prune"), rules)
    assert (calls, len(edits)) == (passes, min(passes, 2))
    assert after.root == chain.root + len(edits)


def test_our_set_and_the_papers() -> None:
    ours, paper = default_tree_rules(), paper_tree_rules()
    assert (ours.order, ours.until_stable) == (("graft", "merge", "split", "prune"), True)
    assert (paper.order, paper.until_stable) == (ours.order, False)
    assert ours.prune is paper.prune
    config = DmacConfig(increase=1.5)
    for rules in (ours, paper):
        tree = rules.build(SPACE, config, 70)
        assert tree == dmac(SPACE, config, 70)
        assert min(tree.clusters) == 70


def test_the_default_candidates_are_fast_ones() -> None:
    asked: list[str] = []

    class Watched(FastCandidates):
        def __getattribute__(self, name: str) -> object:
            asked.append(name)
            return super().__getattribute__(name)

    rules = default_tree_rules(Watched())
    tree = rules.build(SPACE, DmacConfig(), 0)
    shape(tree, SPACE, ALL, rules)
    shape(TREE, SPACE, ALL, rules)
    assert {"neighbors", "merges", "splits"} <= set(asked)
