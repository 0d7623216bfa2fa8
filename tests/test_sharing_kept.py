"""What is given stays given: fixed draws add nothing, and clients keep it when the tree changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sofa_fl
from sofa_fl.data.concepts import Concept, Phase, perform
from sofa_fl.data.federated_data import FederatedData
from sofa_fl.data.own import from_arrays
from sofa_fl.data.partition import Parts
from sofa_fl.sharing import Ledger, Owned, Shared, SharingConfig, share, training_sets
from sofa_fl.topology.edits import Edit, Graft, Merge, Prune, Split, apply_all
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from tests.test_sharing import World, fractions, world_of, worlds

NUM, EACH = 9, 60
KEPT = SharingConfig(ratio=0.2, max_disclosure=1.0, accumulate=True, reshare=True)


def small_data(degrees: float, swap_at: int | None = None) -> FederatedData:
    """Nine clients, the images of every third one turned alike; in some round, client 0 changes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, NUM * EACH)
    x = rng.integers(0, 60, (NUM * EACH, 1, 8, 8)).astype(np.uint8)
    for label in range(4):
        x[y == label, :, 2 * label, :] += 150
    rows = [np.arange(i * EACH, (i + 1) * EACH, dtype=np.int64) for i in range(NUM)]
    groups = {client: Concept(degrees=degrees * (client % 3)) for client in range(NUM)}
    script = [Phase(0, groups)]
    if swap_at is not None:
        script.append(Phase(swap_at, {**groups, 0: groups[1]}))
    parts, arrays = Parts(rows, rows), from_arrays(x, y)
    return perform(script, arrays, arrays, parts, num_outputs=4, holdout=0.1, seed=0)


def paper_run(
    out: Path, rounds: int, sharing: dict[str, Any], shape: dict[str, Any]
) -> tuple[sofa_fl.Result, list[Any], Owned]:
    """The paper's preset in small, the events of its rounds, and what clients own."""
    config = sofa_fl.preset(
        "paper", rounds=rounds, warmup=3, engine="sequential", out=str(out),
        model={"name": "mlp", "hidden": 6},
        local={"batches": 3, "batch_size": 20, "learning_rate": 0.02},
        sharing=sharing, sofa={"dmac": {"increase": 1.05}, "shape": shape},
    )  # fmt: skip
    data, events = small_data(4.0), list[Any]()
    result = sofa_fl.run(config, data=data, observers=[events.append])
    owned = {NodeId(c): own.train for c, own in data.stage(0).clients.items()}
    return result, [event for event in events if event["event"] == "round"], owned


def everything_given(ledger: Ledger, owned: Owned) -> dict[NodeId, set[int]]:
    """Own samples, and all that the ledger says was received of those that somebody has still."""
    return {
        client: set(own.tolist())
        | {row for rows in owned.values() for row in ledger.given(rows, client).tolist()}
        for client, own in owned.items()
    }


def trained_on(tree: Tree, shared: Shared, owned: Owned) -> dict[NodeId, set[int]]:
    sets = training_sets(tree, shared.pools, owned)
    assert all(len(rows) == len(np.unique(rows)) for rows in sets.values())
    return {client: set(rows.tolist()) for client, rows in sets.items()}


@pytest.mark.parametrize("ratio", [0.1, 0.3])
def test_fixed_sharing_by_the_papers_preset_is_fixed(tmp_path: Path, ratio: float) -> None:
    """With a tree and data that stay, nobody is given anything after the first distribution."""
    sharing = {"ratio": ratio, "mode": "fixed"}
    _, events, _ = paper_run(tmp_path / "run", 5, sharing, {"operations": []})
    assert len(events[0]["pools"]) > 2, "several levels"
    first = events[0]["disclosed"]
    assert np.mean(first) == pytest.approx(ratio, abs=0.02)
    for event in events[1:]:
        assert event["disclosed"] == first
        assert event["pools"] == events[0]["pools"]


@pytest.mark.parametrize("mode", ["random", "fixed"])
def test_a_client_of_the_papers_preset_keeps_what_it_was_given(tmp_path: Path, mode: str) -> None:
    """And trains on it, wherever merges, splits and prunes have put it."""
    shape = {"tolerance": 0.0, "merge": 1.4, "split": 0.5}
    result, events, owned = paper_run(tmp_path / "run", 6, {"mode": mode}, shape)
    kinds = {edit["edit"] for event in events for edit in event["edits"]}
    assert kinds >= {"merge", "split", "prune"}
    view = result.view
    assert trained_on(view.tree, view.shared, owned) == everything_given(view.shared.ledger, owned)


def test_a_client_that_moves_at_once_takes_along_what_it_was_given(tmp_path: Path) -> None:
    """With our rules and `accumulate`, a client whose data have changed is grafted."""
    config = sofa_fl.Config(
        rounds=5, warmup=20, engine="sequential", out=str(tmp_path / "run"),
        model=sofa_fl.ModelConfig(name="mlp", hidden=16),
        local=sofa_fl.LocalConfig(batches=20, batch_size=20, learning_rate=0.01),
        sharing=SharingConfig(ratio=0.1, max_disclosure=1.0, accumulate=True, reshare=True),
    )  # fmt: skip
    data, events = small_data(90.0, swap_at=4), list[Any]()
    view = sofa_fl.run(config, data=data, observers=[events.append]).view
    edits = [edit for event in events if event["event"] == "round" for edit in event["edits"]]
    assert "graft" in {edit["edit"] for edit in edits}
    owned = {NodeId(c): own.train for c, own in data.stage(5).clients.items()}
    assert trained_on(view.tree, view.shared, owned) == everything_given(view.shared.ledger, owned)


@given(worlds(min_clients=2), fractions, st.booleans(), st.booleans(), st.integers(0, 5))
def test_fixed_draws_give_nothing_new(
    world: World, ratio: float, accumulate: bool, reshare: bool, seed: int
) -> None:
    """Neither in a first tree nor in the next one, from the round after it was made on."""
    config = SharingConfig(
        ratio=ratio, mode="fixed", max_disclosure=1.0, accumulate=accumulate, reshare=reshare
    )
    shared = Shared()
    for tree in (flat_tree(world.tree.clients, 50), world.tree):
        history = list[dict[NodeId, set[int]]]()
        for _ in range(4):
            shared = share(tree, world.owned, shared, config, seed=seed, round=len(history))
            history.append(trained_on(tree, shared, world.owned))
        assert history[1:] == history[:1] * 3


def test_fixed_draws_of_others_do_not_depend_on_who_else_is_there() -> None:
    """New data of one client do not draw other samples of all others at the root."""
    world = world_of([[0, 1, 2], [3, 4]], 500)
    config = SharingConfig(ratio=0.2, mode="fixed")
    fed = {**world.owned, NodeId(0): world.owned[NodeId(0)] + 9000}
    before, after = (
        share(world.tree, owned, Shared(), config, seed=0, round=0).pools[world.tree.root]
        for owned in (world.owned, fed)
    )
    others = np.concatenate([rows for client, rows in world.owned.items() if client])
    assert np.isin(before, others).sum() > 0
    assert set(before[np.isin(before, others)]) == set(after[np.isin(after, others)])


def test_fixed_draws_depend_on_the_seed_and_the_child() -> None:
    world = world_of([[0, 1], [2, 3]], 500)
    config = SharingConfig(ratio=0.2, mode="fixed")
    one, other = (
        share(world.tree, world.owned, Shared(), config, seed=seed, round=0).pools
        for seed in (0, 1)
    )
    root, left, right = world.tree.clusters
    assert all(not np.array_equal(one[cluster], other[cluster]) for cluster in world.tree.clusters)
    same = {NodeId(c): np.arange(500) + 500 * (c % 2) for c in range(4)}
    twice = share(world.tree, same, Shared(), config, seed=0, round=0).pools
    assert not np.array_equal(twice[left], twice[right])
    assert len(one[left]) == 200
    assert len(one[root]) == pytest.approx(80, abs=30)


def edited(world: World, edits: list[Edit], config: SharingConfig) -> tuple[Tree, Shared, Shared]:
    """What is shared before and after some edits, with nothing new in between."""
    before = world.rounds(config, 3)[-1]
    tree = apply_all(world.tree, edits)
    return tree, before, before.after(edits).on(tree, world.owned)


THREE = [[0, 1, 2], [3, 4], [5, 6, 7]]  # below the root, 100: clusters 101, 105 and 108
ROOT, A, B, C = (NodeId(100), NodeId(101), NodeId(105), NodeId(108))
NEXT, LAST = NodeId(112), NodeId(113)
EDITS: dict[str, list[Edit]] = {
    "graft": [Graft(NodeId(0), B)],
    "merge": [Merge((A, B), NEXT)],
    "split": [Split(C, (NEXT, LAST), ((NodeId(5),), (NodeId(6), NodeId(7))))],
    "prune": [Graft(NodeId(3), A), Prune(B)],
    "all": [Graft(NodeId(3), A), Graft(NodeId(4), A), Prune(B), Merge((A, C), NEXT), Prune(ROOT)],
}


@pytest.mark.parametrize("reshare", [False, True])
@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_with_accumulate_an_edit_takes_nothing_away(edits: list[Edit], reshare: bool) -> None:
    world = world_of(THREE)
    assert world.tree.clusters == (ROOT, A, B, C)
    config = SharingConfig(ratio=0.2, max_disclosure=1.0, accumulate=True, reshare=reshare)
    tree, before, after = edited(world, edits, config)
    had, has = trained_on(world.tree, before, world.owned), trained_on(tree, after, world.owned)
    assert all(had[client] <= has[client] for client in had)
    for round in range(3, 6):
        after = share(tree, world.owned, after, config, seed=0, round=round)
        had, has = has, trained_on(tree, after, world.owned)
        assert all(had[client] <= has[client] for client in had)
        assert has == everything_given(after.ledger, world.owned)


def test_new_clusters_hold_what_the_old_ones_held() -> None:
    world = world_of(THREE)
    _, before, after = edited(world, EDITS["merge"], KEPT)
    assert set(after.pools[NEXT]) == set(before.pools[A]) | set(before.pools[B])
    _, before, after = edited(world, EDITS["split"], KEPT)
    assert np.array_equal(after.pools[NEXT], before.pools[C])
    assert np.array_equal(after.pools[LAST], before.pools[C])


def test_without_accumulate_pools_are_replaced() -> None:
    """A new cluster starts with an empty pool, and a client that moves gets what is there."""
    config = SharingConfig(ratio=0.2, max_disclosure=1.0)
    for name in ("merge", "split"):
        tree, _, after = edited(world_of(THREE), EDITS[name], config)
        assert set(after.pools) == set(tree.clusters)
        assert not len(after.pools[NEXT])
    tree, before, after = edited(world_of(THREE), EDITS["graft"], config)
    assert set(after.pools) == set(tree.clusters)
    path = set(before.pools[B]) | set(before.pools[ROOT])
    world = world_of(THREE)
    own = set(world.owned[NodeId(0)])
    assert trained_on(tree, after, world.owned)[NodeId(0)] == own | path


def test_who_left_is_forgotten_but_not_what_it_was_given() -> None:
    world = world_of(THREE)
    before = world.rounds(KEPT, 2)[-1]
    owned = {client: rows for client, rows in world.owned.items() if client}
    parent = {node: up for node, up in world.tree.parent.items() if node}
    tree = Tree(parent, tuple(owned), world.tree.next_id)
    after = before.on(tree, owned)
    assert NodeId(0) not in after.ledger.received
    assert (after.ledger.known(world.owned) == before.ledger.known(world.owned)).all()
    gone = set(world.owned[NodeId(0)])
    assert not any(gone & rows for rows in trained_on(tree, after, owned).values())
