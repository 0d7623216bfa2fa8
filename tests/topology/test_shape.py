"""SHAPE: every operation for its own reason, and none of them for ever."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given

from sofa_fl.topology import shape as module
from sofa_fl.topology.dmac import DmacConfig, dmac
from sofa_fl.topology.edits import Edit, Graft, Merge, Prune, Split, apply_all
from sofa_fl.topology.shape import (
    Operation,
    ShapeConfig,
    count_edits,
    find_grafts,
    find_merges,
    find_prunes,
    find_splits,
    form,
    shape,
    sweep,
)
from sofa_fl.topology.space import Body, Linkage, Metric, Space
from sofa_fl.topology.tree import Tree, flat_tree
from tests.topology.strategies import (
    OPERATIONS,
    WAYS,
    Case,
    Drawn,
    cases,
    examples,
    ids,
    nested,
    node,
    random_names,
    relabelled,
    renamed_space,
    tree_of,
)


def space_of(
    places: Sequence[float] | Sequence[Sequence[float]],
    weights: Sequence[float] | None = None,
    metric: Metric = "euclidean",
    linkage: Linkage = "centroid",
) -> Space:
    rows = np.asarray(places, dtype=np.float64)
    rows = rows[:, None] if rows.ndim == 1 else rows
    mass = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    return Space(ids(*range(len(rows))), rows, mass, metric, linkage)


def only(
    *operations: Operation,
    tolerance: float = 0.1,
    merge: float = 0.3,
    split: float = 0.5,
    max_parts: int = 8,
) -> ShapeConfig:
    return ShapeConfig(
        operations=operations, tolerance=tolerance, merge=merge, split=split, max_parts=max_parts
    )


ALL = only(*OPERATIONS)


# ---------------------------------------------------------------- properties


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
    """Any operations, trees with empty and one-child clusters, places with ties."""
    sweeps = 0

    def counted(tree: Tree, space: Space, config: ShapeConfig) -> list[Edit]:
        nonlocal sweeps
        sweeps += 1
        assert sweeps < 200, "it does not end"
        return sweep(tree, space, config)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "sweep", counted)
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
    larger = Space(space.clients, 1000 * space.places, space.weights, space.metric, space.linkage)
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
    before = (dict(case.tree.parent), case.space.places.copy())
    for find in (find_grafts, find_merges, find_splits, find_prunes):
        first = find(case.tree, case.space, case.config)
        assert first == find(case.tree, case.space, case.config)
        apply_all(case.tree, first)
    assert dict(case.tree.parent) == before[0]
    assert (case.space.places == before[1]).all()


# -------------------------------------------------------------------- graft

# Two clouds that are apart by any metric; client 2 belongs to the second.
CLOUDS = [[1, 0.0], [1, 0.1], [0.03, 1], [0.0, 1], [0.1, 1], [-0.1, 1]]


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_a_client_near_another_cluster_is_grafted(metric: Metric, linkage: Linkage) -> None:
    tree, space = tree_of([[0, 1, 2], [3, 4, 5]]), space_of(CLOUDS, None, metric, linkage)
    after, edits = shape(tree, space, only("graft"))
    assert edits == [Graft(node(2), node(8))]
    assert nested(after) == nested(tree_of([[0, 1], [2, 3, 4, 5]]))
    assert shape(tree, space, ALL)[1] == edits, "and nothing else happens for that reason"


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_a_cluster_moves_with_its_clients(metric: Metric, linkage: Linkage) -> None:
    places = [[1, 0.0], [1, 0.1], [0.9, 0.2], [0.9, 0.3], [0.2, 0.9], [0.2, 0.8], *CLOUDS[3:]]
    tree = tree_of([[[0, 1], [2, 3], [4, 5]], [[6, 7], [8]]])
    after, edits = shape(tree, space_of(places, None, metric, linkage), only("graft"))
    assert edits == [Graft(node(13), node(14))]
    assert nested(after) == nested(tree_of([[[0, 1], [2, 3]], [[4, 5], [6, 7], [8]]]))


def test_graft_keeps_to_the_level_of_the_parent() -> None:
    """Client 2 hangs from the root, which is alone on its level: near or not, it stays."""
    tree = tree_of([[0, 1], 2, [3, 4]])
    assert shape(tree, space_of([0, 1, 0.5, 9, 10]), only("graft")) == (tree, [])


def test_graft_does_not_look_below_the_present_parents_level() -> None:
    """Client 4 hangs beside a cluster, one level above cluster [5, 6] at whose place it is."""
    tree = tree_of([[[0, 1], [2, 3], 4], [5, 6]])
    space = space_of([0, 1, 2, 3, 50, 50, 50])
    assert shape(tree, space, only("graft")) == (tree, [])


def test_an_only_child_stays() -> None:
    tree = tree_of([[0], [1, 2]])
    assert shape(tree, space_of([5.1, 5, 5]), only("graft")) == (tree, [])


def test_no_node_holds_itself_in_place() -> None:
    """A heavy client is most of its cluster's place, and is compared with the others there."""
    tree, space = tree_of([[0, 1], [2, 3]]), space_of([0, 6, 3, 3.1], [1000, 1, 1, 1])
    assert Graft(node(0), node(6)) in find_grafts(tree, space, only("graft"))


@pytest.mark.parametrize(
    ("there", "moves"), [(10.0, False), (9.999, True), (10.001, False), (6.0, True)]
)
def test_tolerance_is_a_strict_factor(there: float, moves: bool) -> None:
    """Client 2, at 6, is 6 from its own and `there` - 6 from the others; 4 · 1.5 = 6."""
    tree, space = tree_of([[0, 1, 2], [3, 4]]), space_of([0, 0, 6, there, there])
    edits = find_grafts(tree, space, only("graft", tolerance=0.5))
    assert (Graft(node(2), node(7)) in edits) is moves


def test_without_tolerance_nearer_is_enough_and_as_near_is_not() -> None:
    tree, config = tree_of([[0, 1, 2], [3, 4]]), only("graft", tolerance=0)
    assert shape(tree, space_of([0, 0, 4, 8, 8]), config)[1] == []
    assert shape(tree, space_of([0, 0, 4, 7.99, 7.99]), config)[1] == [Graft(node(2), node(7))]


def test_a_cluster_may_lose_all_its_children() -> None:
    """Both clients of a cluster move in one pass: the empty cluster is then in nobody's way."""
    tree, space = tree_of([[0, 1], [2, 3], [4, 5]]), space_of([0, 10, 0.1, 0.2, 9.8, 9.9])
    grafts = find_grafts(tree, space, ALL)
    assert grafts == [Graft(node(0), node(8)), Graft(node(1), node(9))]
    for operations in (OPERATIONS, ("graft", "merge", "split"), ("graft", "prune")):
        after, edits = shape(tree, space, only(*operations))
        assert edits[:2] == grafts
        assert after.is_compact is ("prune" in operations)


# -------------------------------------------------------------------- merge


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_near_sibling_clusters_are_merged(metric: Metric, linkage: Linkage) -> None:
    places = [[1, 0.0], [1, 0.02], [1, 0.1], [1, 0.12], [0, 1.0], [0.1, 1]]
    tree, space = tree_of([[0, 1], [2, 3], [4, 5]]), space_of(places, None, metric, linkage)
    after, edits = shape(tree, space, only("merge"))
    assert edits == [Merge(ids(7, 8), node(10))]
    assert nested(after) == nested(tree_of([[0, 1, 2, 3], [4, 5]]))
    assert shape(tree, space, ALL)[1] == edits, "and nothing else happens for that reason"


def test_merge_is_by_a_fraction_of_the_scale() -> None:
    tree, space = tree_of([[0, 1], [2, 3], [4, 5]]), space_of([0, 0.2, 2, 2.2, 90, 91])
    apart = 2 / space.scale
    assert shape(tree, space, only("merge", merge=0.99 * apart))[1] == []
    assert len(shape(tree, space, only("merge", merge=1.01 * apart))[1]) == 1


def test_the_nearest_are_merged_first() -> None:
    tree, space = tree_of([[0, 1], [2, 3], [4, 5], [6, 7]]), space_of([0, 0, 2, 2, 3, 3, 99, 99])
    assert find_merges(tree, space, ALL) == [Merge(ids(10, 11), node(13))]
    after, edits = shape(tree, space, only("merge"))
    assert nested(after) == nested(tree_of([[0, 1, 2, 3, 4, 5], [6, 7]]))
    assert edits == [Merge(ids(10, 11), node(13)), Merge(ids(9, 13), node(14))]


def test_clients_are_never_merged() -> None:
    everything = only("merge", merge=100, split=100)
    flat = flat_tree(ids(*range(5)))
    assert shape(flat, space_of([0, 0, 0, 1, 1]), everything) == (flat, [])
    beside = tree_of([[0, 1], 2, 3])
    assert shape(beside, space_of([0, 1, 0.5, 0.5]), everything) == (beside, [])


def test_cousins_are_not_merged() -> None:
    tree = tree_of([[[0, 1], 2], [[3, 4], 5]])
    config = only("merge", merge=0.01)
    assert shape(tree, space_of([0, 0, 10, 0, 0, 20]), config) == (tree, [])


def test_merging_all_children_of_the_root_leaves_a_flat_tree() -> None:
    tree = tree_of([[0, 1], [2, 3]])
    after, edits = shape(tree, space_of([0, 2, 1, 3]), only("merge", "prune", merge=1, split=2))
    assert count_edits(edits) == {"graft": 0, "merge": 1, "split": 0, "prune": 1}
    assert nested(after) == frozenset(range(4))


# -------------------------------------------------------------------- split

# Four clients in two blobs, and four far away.
BLOBS = [[1, 0.0], [1, 0.02], [1, 0.5], [1, 0.52], [-1, 1.0], [-1, 1.02], [-1, 1.04], [-1, 1.06]]


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_a_cluster_of_two_blobs_is_split(metric: Metric, linkage: Linkage) -> None:
    tree = tree_of([[0, 1, 2, 3], [4, 5, 6, 7]])
    space = space_of(BLOBS, None, metric, linkage)
    config = only("split", split=0.05)
    after, edits = shape(tree, space, config)
    assert len(edits) == 1
    assert isinstance(edits[0], Split)
    assert edits[0].node == 9
    assert edits[0].into == ids(11, 12)
    assert set(edits[0].groups) == {ids(0, 1), ids(2, 3)}
    assert nested(after) == nested(tree_of([[0, 1], [2, 3], [4, 5, 6, 7]]))


@pytest.mark.parametrize(("metric", "linkage"), WAYS)
def test_a_root_of_two_blobs_is_split_and_stays(metric: Metric, linkage: Linkage) -> None:
    tree, space = flat_tree(ids(*range(6))), space_of(CLOUDS, None, metric, linkage)
    after, edits = shape(tree, space, ALL)
    assert len(edits) == 1
    assert isinstance(edits[0], Split)
    assert after.root == tree.root
    assert nested(after) == nested(tree_of([[0, 1], [2, 3, 4, 5]]))


def test_a_split_takes_the_first_number_of_parts_that_will_do() -> None:
    tree, space = flat_tree(ids(*range(9))), space_of([0, 1, 2, 50, 51, 52, 100, 101, 102])
    after, edits = shape(tree, space, only("split", split=0.1))
    assert len(edits) == 1
    assert nested(after) == nested(tree_of([[0, 1, 2], [3, 4, 5], [6, 7, 8]]))
    assert shape(tree, space, only("split", split=0.1, max_parts=2)) == (tree, [])


def test_no_acceptable_parts_means_no_split() -> None:
    tree = flat_tree(ids(*range(8)))
    even = space_of(list(range(8)))
    assert shape(tree, even, only("split", split=0.01)) == (tree, [])


def test_two_children_are_never_split() -> None:
    tree = tree_of([[0, 1], [2, 3]])
    assert shape(tree, space_of([0, 100, 200, 300]), only("split", split=0.001)) == (tree, [])


def test_at_most_one_part_is_a_child_alone() -> None:
    """Else a cluster that is mere noise would be peeled child by child."""
    config = only("split", split=0.2)
    one = flat_tree(ids(*range(5)))
    after, _ = shape(one, space_of([0, 1, 10, 11, 30]), config)
    assert [len(after.children[part]) for part in after.children[after.root]] == [2, 2, 1]
    two = flat_tree(ids(*range(4)))
    assert shape(two, space_of([0, 1, 10, 30]), config) == (two, [])


def test_the_last_bit_of_a_place_does_not_steer_k_means() -> None:
    """It does, in few of a thousand draws; these are two of them."""
    for seed in (4651, 10161):
        rng = np.random.default_rng(seed)
        places, weights = rng.normal(size=(5, 3)), rng.integers(1, 8, 5).astype(np.float64)
        bits = places * (1 + np.array([-1, 1])[rng.integers(0, 2, (5, 3))] * 1.2e-16)
        first, second = (
            list(module._partitions(ids(*range(5)), [Body(*body) for body in bodies], 8))
            for bodies in (zip(places, weights.tolist()), zip(bits, weights.tolist()))
        )
        assert first == second


def test_an_incoherent_cluster_of_clusters_is_split() -> None:
    places = [0, 1, 3, 4, 50, 51, 53, 54, 500, 501, 503, 504]
    tree = tree_of([[[0, 1], [2, 3], [4, 5], [6, 7]], [[8, 9], [10, 11]]])
    after, edits = shape(tree, space_of(places), only("split", split=0.05))
    assert nested(after) == nested(
        tree_of([[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]])
    )
    assert len(edits) == 1


def test_parent_and_child_may_be_split_in_one_pass() -> None:
    tree = tree_of([[0, 1, 2, 3], [4, 5], [6, 7], [8, 9]])
    space = space_of([-60, -59, 60, 61, 10, 11, 1000, 1001, 1010, 1011])
    edits = find_splits(tree, space, only("split", split=0.05))
    assert [edit.node for edit in edits if isinstance(edit, Split)] == list(ids(10, 11))
    assert nested(apply_all(tree, edits)) == nested(
        tree_of([[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9]]])
    )


def test_weights_count_in_a_split() -> None:
    """K-means by weight; what it is worth is then told by weight as well."""
    tree = flat_tree(ids(*range(6)))
    after, _ = shape(tree, space_of([0, 1, 2, 10, 11, 12], [50, 1, 1, 1, 1, 50]), ALL)
    assert nested(after) == nested(tree_of([[0, 1, 2], [3, 4, 5]]))


@pytest.mark.parametrize("split", [0, 1e-9, 0.05])
def test_places_that_are_one_to_k_means_give_no_warning(split: float) -> None:
    """More parts asked for than k-means can tell apart; warnings are errors here."""
    rng = np.random.default_rng(0)
    base = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 4, axis=0) + 1
    for noise in (0, 1e-17, 1e-16, 1e-15, 1e-13, 1e-11, 1e-9):
        places = base * (1 + noise * rng.normal(size=base.shape))
        space = Space(ids(*range(12)), places, np.ones(12))
        after, _ = shape(flat_tree(space.clients), space, only(*OPERATIONS, split=split))
        assert after.is_compact


def test_splits_make_no_more_clusters_than_clients() -> None:
    """The bound that ends a pass without pruning binds no compact tree."""
    compact = tree_of([[0, 1, 2], [3, 4, 5], [6, 7, 8]])
    space = space_of([0, 1, 20, 50, 51, 70, 200, 201, 220])
    config = only("split", split=0.05)
    assert len(find_splits(compact, space, config)) == 3
    chain = tree_of([[[[[[[[0, 1, 2]]]]]], [3, 4, 5], [6, 7, 8]]])
    assert len(chain.clusters) > 9
    assert find_splits(chain, space, config) == []


# -------------------------------------------------------------------- prune


def test_a_cluster_with_one_child_is_pruned() -> None:
    tree = tree_of([[[0, 1]], [2], 3])
    after, edits = shape(tree, space_of([0, 1, 50, 99]), only("prune"))
    assert set(edits) == {Prune(node(5)), Prune(node(7))}
    assert nested(after) == nested(tree_of([[0, 1], 2, 3]))


def test_a_root_with_one_child_is_pruned() -> None:
    after, edits = shape(tree_of([[[0, 1]]]), space_of([0, 1]), only("prune"))
    assert edits == [Prune(node(3)), Prune(node(2))]
    assert nested(after) == nested(tree_of([0, 1]))


def test_a_chain_over_one_client_is_pruned_to_the_client() -> None:
    after, edits = shape(tree_of([[[[0]]]]), space_of([0]), ALL)
    assert after.root == 0
    assert len(edits) == 4


def test_clusters_without_clients_are_pruned() -> None:
    parent = {0: 4, 1: 4, 2: 5, 3: 5, 4: 9, 5: 9, 6: 9, 7: 6, 8: 6, 9: None}
    links = {node(at): None if up is None else node(up) for at, up in parent.items()}
    tree = Tree(links, ids(0, 1, 2, 3), 10)
    after, edits = shape(tree, space_of([0, 1, 50, 51]), ALL)
    assert set(edits) == {Prune(node(6)), Prune(node(7)), Prune(node(8))}
    assert nested(after) == nested(tree_of([[0, 1], [2, 3]]))


def test_pruning_may_leave_the_root_with_one_child() -> None:
    """The root's other child is empty: both go."""
    links = {node(0): node(2), node(1): node(2), node(2): node(4), node(3): node(4)}
    tree = Tree({**links, node(4): None}, ids(0, 1), 5)
    assert find_prunes(tree, space_of([0, 1]), ALL) == [Prune(node(3)), Prune(node(4))]
    after, edits = shape(tree, space_of([0, 1]), only("prune"))
    assert edits == [Prune(node(3)), Prune(node(4))]
    assert nested(after) == frozenset({0, 1})


# -------------------------------------------------------------------- all of it


def test_merge_and_split_do_not_undo_each_other() -> None:
    """By their places alone [0, 1] and [2, 3] should merge; together they would have to split."""
    tree, space = tree_of([[0, 1], [2, 3], [4, 5]]), space_of([0, 0.1, 1, 1.1, 10, 10.1])
    eager = only("merge", "split", merge=0.5, split=0.05)
    assert find_merges(tree, space, only("merge", merge=0.5, split=0.9)) != []
    assert find_merges(tree, space, eager) == []
    assert shape(tree, space, eager) == (tree, [])
    merged = tree_of([[0, 1, 2, 3], [4, 5]])
    after, edits = shape(merged, space, eager)
    assert nested(after) == nested(tree)
    assert count_edits(edits) == {"graft": 0, "merge": 0, "split": 1, "prune": 0}


def test_of_sweeps_in_a_circle_the_tightest_tree_is_taken() -> None:
    """Clients 0 and 2 would change places for ever."""
    space = space_of([[13, 3], [6, 17], [15, 9], [24, 4]])
    config = only(*OPERATIONS, tolerance=0, merge=1.2, split=0.9)
    loose, tight = tree_of([[0, 1], [2, 3]]), tree_of([[1, 2], [0, 3]])
    assert form(apply_all(loose, sweep(loose, space, config))) == form(tight)
    assert form(apply_all(tight, sweep(tight, space, config))) == form(loose)
    assert nested(shape(loose, space, config)[0]) == nested(tight)
    assert shape(tight, space, config) == (tight, [])


def test_a_circle_above_the_clients_knows_no_names() -> None:
    """[0, 5] and [4, 6] would change places for ever, and every client keeps its parent."""
    space = space_of([4.4, 22.9, 17.8, 5.3, -4.5, -17.5, -12.6, 12.9])
    config = only(*OPERATIONS, merge=0.7, split=0.82)
    loose = tree_of([[[0, 5], [[7, 1, 2], 3]], [4, 6]])
    tight = tree_of([[[4, 6], [[7, 1, 2], 3]], [0, 5]])
    assert form(apply_all(loose, sweep(loose, space, config))) == form(tight)
    assert form(apply_all(tight, sweep(tight, space, config))) == form(loose)
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


def test_the_form_of_a_tree_knows_clients_and_not_clusters() -> None:
    assert form(tree_of([[0, 1], [2, 3]])) == form(tree_of([[3, 2], [1, 0]]))
    different: list[Drawn] = [
        0,
        [0],
        [0, 1],
        [[0, 1]],
        [[0], [1]],
        [[0], 1],
        [0, [1]],
        [0, 1, 2],
        [[0, 1], 2],
        [[0, 2], 1],
        [0, [1, 2]],
        [[[0, 1]], 2],
    ]
    assert len({form(tree_of(drawn)) for drawn in different}) == len(different)


def test_the_form_counts_clusters_without_clients() -> None:
    def with_empty(*empty: int) -> Tree:
        links = {node(0): node(9), node(1): node(9)} | {node(n): node(9) for n in empty}
        return Tree({**links, node(9): None}, ids(0, 1), 10)

    assert form(with_empty(2)) == form(with_empty(3))
    assert len({form(with_empty()), form(with_empty(2)), form(with_empty(2, 3))}) == 3


def test_counts_edits_by_operation() -> None:
    edits: list[Edit] = [
        Graft(node(0), node(5)),
        Graft(node(1), node(5)),
        Merge(ids(4, 5), node(6)),
        Prune(node(3)),
    ]
    assert count_edits(edits) == {"graft": 2, "merge": 1, "split": 0, "prune": 1}
    assert count_edits([]) == dict.fromkeys(OPERATIONS, 0)
