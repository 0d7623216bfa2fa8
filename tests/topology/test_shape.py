"""SHAPE as a whole: it ends, a second pass does nothing, and names and units do not matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from sofa_fl.topology.clustering import shape as module
from sofa_fl.topology.clustering.config import DmacConfig, ShapeConfig
from sofa_fl.topology.clustering.default_edits import (
    find_grafts,
    find_merges,
    find_prunes,
    find_splits,
)
from sofa_fl.topology.clustering.dmac import dmac
from sofa_fl.topology.clustering.shape import TreeRules, default_tree_rules, form, one_pass, shape
from sofa_fl.topology.geometry.space import Linkage, Metric, Space
from sofa_fl.topology.tree import Tree, flat_tree
from sofa_fl.topology.tree.edits import Edit, apply_all, count_edits
from tests.topology.strategies import (
    ALL,
    OPERATIONS,
    WAYS,
    Case,
    cases,
    examples,
    ids,
    nested,
    only,
    random_names,
    relabelled,
    renamed_space,
    space_of,
    tree_of,
)


@examples(120)
@given(cases(ties=True))
def test_a_second_pass_changes_nothing(case: Case) -> None:
    after, _ = shape(case.tree, case.space, case.config)
    again, edits = shape(after, case.space, case.config)
    assert edits == []
    assert again == after


@examples(120)
@given(cases(ties=True))
def test_the_edits_lead_from_the_first_tree_to_the_last(case: Case) -> None:
    after, edits = shape(case.tree, case.space, case.config)
    assert apply_all(case.tree, edits) == after
    assert after.is_compact
    assert after.clients == case.tree.clients
    used = set(case.tree.parent)
    tree = case.tree
    for edit in edits:
        tree = edit.apply(tree)
        assert not (set(tree.parent) - used) & set(range(case.tree.next_id)), "an id came back"
        used |= set(tree.parent)


@examples(100)
@given(cases(ties=True, hostile=True, max_clients=10))
def test_ends_whatever_it_may_not_do(case: Case) -> None:
    """Any operations, trees with empty and one-child clusters, positions with ties."""
    sweeps = 0

    def counted(
        tree: Tree, space: Space, config: ShapeConfig, rules: TreeRules
    ) -> tuple[Tree, list[Edit]]:
        nonlocal sweeps
        sweeps += 1
        assert sweeps < 200, "it does not end"
        return one_pass(tree, space, config, rules)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "one_pass", counted)
        after, edits = shape(case.tree, case.space, case.config)
        assert apply_all(case.tree, edits) == after
        assert after.members == case.tree.members
        assert after.is_compact or "prune" not in case.config.operations
        assert len(after.clusters) <= max(len(case.tree.clusters), len(case.tree.clients))
        allowed = set(case.config.operations)
        assert {name for name, number in count_edits(edits).items() if number} <= allowed
        sweeps = 0
        assert shape(after, case.space, case.config) == (after, [])


@examples(100)
@given(cases(ties=False))
def test_relabelling_the_clients_relabels_the_tree(case: Case) -> None:
    rename = random_names(case.tree.clients, case.rng)
    tree = relabelled(case.tree, rename, case.rng)
    space = renamed_space(case.space, rename, tree.clients)
    after, edits = shape(case.tree, case.space, case.config)
    after_too, edits_too = shape(tree, space, case.config)
    assert nested(after_too) == nested(after, rename)
    assert count_edits(edits_too) == count_edits(edits)


@examples(80)
@given(cases(ties=False))
def test_the_order_of_the_rows_does_not_matter(case: Case) -> None:
    names = {client: client for client in case.space.clients}
    order = [case.space.clients[row] for row in case.rng.permutation(len(names))]
    shuffled = renamed_space(case.space, names, order)
    assert shape(case.tree, shuffled, case.config) == shape(case.tree, case.space, case.config)


@examples(80)
@given(cases(ties=False))
def test_a_thousand_times_the_places_is_the_same(case: Case) -> None:
    space = case.space
    larger = Space(
        space.clients, 1000 * space.positions, space.weights, space.metric, space.linkage
    )
    assert shape(case.tree, larger, case.config) == shape(case.tree, space, case.config)


@examples(60)
@given(cases(ties=True))
def test_what_dmac_builds_can_be_shaped(case: Case) -> None:
    after, edits = shape(dmac(case.space, DmacConfig()), case.space, case.config)
    assert after.is_compact
    assert shape(after, case.space, case.config) == (after, [])
    assert len(edits) < 1000


@examples(60)
@given(cases(ties=True))
def test_looking_changes_nothing(case: Case) -> None:
    before = (dict(case.tree.parent), case.space.positions.copy())
    for find in (find_grafts, find_merges, find_splits, find_prunes):
        first = find(case.tree, case.space, case.config)
        assert first == find(case.tree, case.space, case.config)
        apply_all(case.tree, first)
    assert dict(case.tree.parent) == before[0]
    assert (case.space.positions == before[1]).all()


def test_merge_and_split_do_not_undo_each_other() -> None:
    """By their positions alone [0, 1] and [2, 3] should merge; together they would be too wide."""
    tree, space = tree_of([[0, 1], [2, 3], [4, 5]]), space_of([0, 1, 0.8, 1.8, 10, 10.1])
    eager = only("merge", "split", "prune", merge=0.5, split=0.05)
    assert find_merges(tree, space, only("merge", merge=0.5, split=0.9)) != []
    assert find_merges(tree, space, eager) == []
    # And if they are two blobs, they are not merged, whatever they spread.
    space = space_of([0, 0.01, 1, 1.01, 10, 10.1])
    assert find_merges(tree, space, only("merge", merge=0.5, split=0.9)) == []
    after, edits = shape(tree_of([[0, 1, 2, 3], [4, 5]]), space, eager)
    assert nested(after) == nested(tree_of([[[0, 1], [2, 3]], [4, 5]]))
    assert count_edits(edits)["merge"] == 0


def test_of_sweeps_in_a_circle_the_tightest_tree_is_taken() -> None:
    """Clients 0 and 2 would change positions for ever."""
    space = space_of([[13, 3], [6, 17], [15, 9], [24, 4]])
    config = only(*OPERATIONS, tolerance=0, merge=1.2, split=0.9)
    loose, tight = tree_of([[0, 1], [2, 3]]), tree_of([[1, 2], [0, 3]])
    assert form(one_pass(loose, space, config, default_tree_rules())[0]) == form(tight)
    assert form(one_pass(tight, space, config, default_tree_rules())[0]) == form(loose)
    assert nested(shape(loose, space, config)[0]) == nested(tight)
    assert shape(tight, space, config) == (tight, [])


def test_a_circle_above_the_clients_knows_no_names() -> None:
    """[0, 5] and [4, 6] would change positions for ever, and every client keeps its parent."""
    space = space_of([4.4, 22.9, 17.8, 5.3, -4.5, -17.5, -12.6, 12.9])
    config = only(*OPERATIONS, merge=0.7, split=0.82)
    loose = tree_of([[[0, 5], [[7, 1, 2], 3]], [4, 6]])
    tight = tree_of([[[4, 6], [[7, 1, 2], 3]], [0, 5]])
    assert form(one_pass(loose, space, config, default_tree_rules())[0]) == form(tight)
    assert form(one_pass(tight, space, config, default_tree_rules())[0]) == form(loose)
    rng = np.random.default_rng(0)
    for _ in range(10):
        rename = random_names(space.clients, rng)
        for start in (loose, tight):
            tree = relabelled(start, rename, rng)
            after, _ = shape(tree, renamed_space(space, rename, tree.clients), config)
            assert nested(after) == nested(tight, rename)


def test_no_operations_change_nothing() -> None:
    tree, space = tree_of([[[0, 1]], [2]]), space_of([0, 50, 0.1])
    assert shape(tree, space, only()) == (tree, [])


def test_the_order_of_the_operations_named_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    space = Space(ids(*range(12)), rng.normal(size=(12, 2)), np.ones(12))
    tree = tree_of([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    backward = only(*reversed(OPERATIONS))
    assert shape(tree, space, backward) == shape(tree, space, ALL)


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
class TestFewOrEqualClients:
    def test_one_client(self, metric: Metric, linkage: Linkage) -> None:
        tree = flat_tree(ids(0))
        assert shape(tree, space_of([[1, 2.0]], None, metric, linkage), ALL) == (tree, [])

    def test_two_clients(self, metric: Metric, linkage: Linkage) -> None:
        tree, space = (
            flat_tree(ids(0, 1)),
            space_of([[1.0, 2.0], [-3.0, 7.0]], None, metric, linkage),
        )
        assert shape(tree, space, ALL) == (tree, [])

    @pytest.mark.parametrize("place", [[0.1, -0.7], [1e7, 3.0], [0.3, 0.0]])
    def test_equal_places_are_no_reason_to_move_or_split(
        self, metric: Metric, linkage: Linkage, place: list[float]
    ) -> None:
        """Rounding in the means must not look like structure."""
        space = space_of([place] * 8, [3, 1, 7, 1, 1, 9, 2, 5], metric, linkage)
        for tree in (
            tree_of([[0, 1, 2], [3, 4, 5], [6, 7]]),
            tree_of([[[0, 1], 2], [[3, 4, 5], [6, 7]]]),
        ):
            assert shape(tree, space, only("graft", "split", "prune")) == (tree, [])

    def test_all_places_at_zero(self, metric: Metric, linkage: Linkage) -> None:
        space = space_of([[0.0, 0.0]] * 6, None, metric, linkage)
        after, _ = shape(tree_of([[0, 1], [2, 3], [4, 5]]), space, ALL)
        assert after.is_compact
        assert shape(after, space, ALL) == (after, [])


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_clients_that_drift_are_followed(metric: Metric, linkage: Linkage) -> None:
    """Two groups become three; the tree of the two becomes the tree of the three."""
    angles = np.radians([0, 3, 6, 9, 120, 123, 126, 129])
    before = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    config = only(*OPERATIONS, merge=0.4, split=0.3)
    space = Space(ids(*range(8)), before, np.ones(8), metric, linkage)
    tree, _ = shape(flat_tree(space.clients), space, config)
    assert nested(tree) == nested(tree_of([[0, 1, 2, 3], [4, 5, 6, 7]]))
    angles[[2, 3]] = np.radians([240, 243])
    after = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    moved = Space(space.clients, after, space.weights, metric, linkage)
    tree, _ = shape(tree, moved, config)
    assert nested(tree) == nested(tree_of([[0, 1], [2, 3], [4, 5, 6, 7]]))


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_looseness_sums_up_squares_by_level(metric: Metric, linkage: Linkage) -> None:
    rng = np.random.default_rng(0)
    tree = tree_of([[0, [1, 2]], [3, 4], 5])
    space = space_of(rng.normal(size=(6, 2)), [1, 2, 3, 4, 5, 6], metric, linkage)
    nodes, expected = space.locate(tree), np.zeros(3)
    for child, parent in enumerate(tree.arrays.parents):
        if parent >= 0:
            (distance,) = space.paired_distances(
                nodes.positions[[child]],
                nodes.positions[[parent]],
                nodes.variances[[child]],
                nodes.variances[[parent]],
            )
            expected[tree.arrays.level[child]] += nodes.weights[child] * distance**2
    np.testing.assert_allclose(module._looseness(tree, space), expected, rtol=1e-8)
