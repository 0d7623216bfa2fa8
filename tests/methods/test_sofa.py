"""What is SOFA's own: the models of its tree, what is served, trees that nothing prunes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch

from sofa_fl.engine.base import Outcome
from sofa_fl.federation import Federation
from sofa_fl.methods.positions import directions
from sofa_fl.methods.sofa.averages import Update, means_up, moved_by_updates
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.local import lessons_of
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.methods.sofa.mixing import Mixing
from sofa_fl.methods.sofa.positions import positions_of
from sofa_fl.methods.sofa.state import SofaState
from sofa_fl.models.flat import Mix, as_vector, mean
from sofa_fl.sharing import Shared, SharingConfig
from sofa_fl.topology.config import Operation, ShapeConfig
from sofa_fl.topology.edits import Graft
from sofa_fl.topology.tree import NodeId, Tree
from tests.methods.cases import LOCAL, Spy, federation, in_units, updates_of

NO_SHARING = SharingConfig(ratio=0)
NO_SHAPE = ShapeConfig(operations=())


def stale_state(fed: Federation) -> SofaState:
    """One client each of the first two groups in a cluster that has no other."""
    root, lost, *homes = map(NodeId, range(20, 25))
    parent: dict[NodeId, NodeId | None] = {root: None}
    parent |= dict.fromkeys([lost, *homes], root)
    parent |= {c: lost if c in (0, 3) else homes[c // 3] for c in fed.clients}
    tree = Tree(parent, fed.clients, 25)
    models = {node: fed.initial(int(node)) for node in tree.parent}
    losses = {c: dict.fromkeys(tree.path(c), 1.0) for c in fed.clients}
    pools = dict.fromkeys(tree.clusters, np.empty(0, dtype=np.int64))
    return SofaState(tree, models, losses, Mixing(), Shared(pools))


@pytest.mark.parametrize("propagation", ["onepass", "cascade"])
@pytest.mark.parametrize("eta", [0.5, 1.0])
def test_lives_with_trees_that_nothing_prunes(propagation: str, eta: float) -> None:
    """All clients leave a cluster, and it stays: it goes on with the model it has."""
    fed = in_units(federation(), blind_loss=100.0)
    operations: tuple[Operation, ...] = ("graft",)
    shape = ShapeConfig(operations=operations, every=1)
    kinds = {
        "onepass": SofaConfig(propagation="onepass", eta=eta, shape=shape),
        "cascade": SofaConfig(propagation="cascade", eta=eta, shape=shape),
    }
    method = Sofa(kinds[propagation], SharingConfig(ratio=0.2))
    moves = [Graft(NodeId(0), NodeId(22)), Graft(NodeId(3), NodeId(23))]
    state = stale_state(fed).after(moves, fed)
    for round in (1, 2, 3, 4):
        state, _ = method.round(state, fed.at(round))
        assert set(state.models) == set(state.tree.parent)
        assert all(bool(model.isfinite().all()) for model in state.models.values())
    assert state.tree.children[NodeId(21)] == ()


def test_a_cluster_is_the_mean_of_its_clients_by_their_samples() -> None:
    fed = federation()
    method = Sofa(SofaConfig(propagation="onepass", eta=1.0, shape=NO_SHAPE), NO_SHARING)
    state, _ = method.init(fed.at(0))
    for round in range(1, 3):
        for cluster in state.tree.clusters:
            below = state.tree.clients_of(cluster)
            expected = np.average(
                [state.models[c].numpy() for c in below],
                axis=0,
                weights=[len(fed.owned[c]) for c in below],
            )
            np.testing.assert_allclose(state.models[cluster].numpy(), expected, atol=1e-5)
        state, _ = method.round(state, fed.at(round))


def test_eta_weighs_clients_against_the_clusters_own_training() -> None:
    fed = federation()
    params = {}
    for eta in (1.0, 0.5, 0.0):
        method = Sofa(SofaConfig(eta=eta, shape=NO_SHAPE), SharingConfig(ratio=0.3))
        state, _ = method.init(fed.at(0))
        after, _ = method.round(state, fed.at(1))
        params[eta] = after.models
    root = state.tree.root
    torch.testing.assert_close(params[0.5][root], (params[1.0][root] + params[0.0][root]) / 2)
    assert not torch.allclose(params[1.0][root], params[0.0][root], atol=1e-4)
    (own,) = fed.at(1).train([fed.at(1).task(root, state.models[root], state.shared.pools[root])])
    assert own is not None
    torch.testing.assert_close(params[0.0][root], own.params)


NO_LOSSES = np.empty(0, dtype=np.float32)


def test_serves_the_mixture_or_its_own() -> None:
    fed = federation()
    config = SofaConfig()
    method = Sofa(config, NO_SHARING)
    state = stale_state(fed)
    client = NodeId(4)
    root, parent, _ = state.tree.path(client)
    mixing = Mixing({parent: 0.25, client: 0.75})
    state = replace(state, mixing=mixing)
    served = as_vector(method.view(state).served[client])
    models = [state.models[node] for node in (root, parent, client)]
    torch.testing.assert_close(served, mean(models, [0.25 * 0.75, 0.25 * 0.25, 0.75]))
    own = Sofa(replace(config, serve="own"), NO_SHARING).view(state).served[client]
    assert torch.equal(as_vector(own), state.models[client])


def test_cascade_trains_once_for_every_cluster_on_the_path() -> None:
    fed = federation(spy=True)
    assert isinstance(fed.engine, Spy)
    method = Sofa(SofaConfig(propagation="cascade", eta=1.0), NO_SHARING)
    state, _ = method.init(fed.at(0))
    fed.engine.tasks.clear()
    method.round(state, fed.at(1))
    for client in fed.clients:
        above = state.tree.path(client)[:-1]
        mine = [task for task in fed.engine.tasks if task.site == client]
        assert sum(task.batches for task in mine) == LOCAL.batches
        assert len({task.seed for task in mine}) == len(mine) == len(above)
        for task, cluster in zip(mine, above):
            assert torch.equal(as_vector(task.start), state.models[cluster])


def test_onepass_trains_once() -> None:
    fed = federation(spy=True)
    assert isinstance(fed.engine, Spy)
    method = Sofa(SofaConfig(propagation="onepass", eta=1.0), NO_SHARING)
    state, _ = method.init(fed.at(0))
    fed.engine.tasks.clear()
    method.round(state, fed.at(1))
    assert sorted(task.site for task in fed.engine.tasks) == list(fed.clients)


def test_a_client_goes_on_from_what_it_serves_and_is_pulled() -> None:
    fed = federation()
    method = Sofa(SofaConfig(), NO_SHARING)
    state = stale_state(fed)
    kept = {client: (0.0, 0.5, 1.0)[client % 3] for client in fed.clients}
    weights = {**dict.fromkeys(state.tree.clusters, 0.9), **kept}
    state = replace(state, mixing=Mixing(weights, {NodeId(1): 2}))
    for task, _ in lessons_of(state, method.config, fed.at(1)):
        client, a = task.site, kept[task.site]
        if client == 1:
            a **= 3  # it has missed two rounds
        root, parent, _ = state.tree.path(client)
        models = [state.models[node] for node in (root, parent, client)]
        expected = mean(models, [0.1 * (1 - a), 0.9 * (1 - a), a])
        torch.testing.assert_close(as_vector(task.start), expected)
        served = as_vector(method.view(state).served[client])
        torch.testing.assert_close(served, expected)
        size = len(state.tree.children[parent])
        assert [pull.weight for pull in task.pulls] == pytest.approx([1e-3, 1e-3, -1e-3 / size])


@pytest.mark.parametrize("start", ["path", "own"])
def test_where_some_train_clusters_move_by_their_updates(start: Literal["path", "own"]) -> None:
    """But where clients go on from their own models, as the paper has it, clusters are means."""
    fed = replace(federation(spy=True), participation=0.5)
    assert isinstance(fed.engine, Spy)
    method = Sofa(SofaConfig(start=start, shape=ShapeConfig(operations=())), NO_SHARING)
    state, _ = method.init(fed.at(0))
    fed.engine.tasks.clear()
    after, _ = method.round(state, fed.at(1))
    begun = {task.site: as_vector(task.start) for task in fed.engine.tasks}
    assert 1 < len(begun) < len(fed.clients)
    sizes = [fed.size(c) for c in begun]
    root = state.tree.root
    ends = mean([after.models[c] for c in begun], sizes)
    expected = ends
    if start == "path":
        expected = state.models[root] + ends - mean(list(begun.values()), sizes)
    torch.testing.assert_close(after.models[root], expected)


def test_a_cluster_moves_by_what_those_learned_who_trained() -> None:
    """If all train, it is their mean, whoever started where; if some do, others do not count."""
    fed = federation()
    state = stale_state(fed)
    tree = state.tree
    parent = tree.clusters[-1]
    some = tree.clients_of(parent)[:2]
    rng = np.random.default_rng(0)
    num = len(fed.initial())
    starts, ends = (
        {c: torch.from_numpy(rng.normal(size=num)).float() for c in some} for _ in range(2)
    )
    mixes = {c: Mix((starts[c], state.models[tree.root]), (3.0 + c, 1.0)) for c in some}
    updates = {c: Update(mixes[c], Outcome(ends[c], NO_LOSSES)) for c in some}
    models = means_up(tree, ends, fed)
    moved = moved_by_updates(tree, state.models, models, updates, fed)
    sizes = [fed.size(c) for c in some]
    learned = mean([ends[c] - as_vector(mixes[c]) for c in some], sizes)
    assert set(moved) == {parent, tree.root}
    for cluster in moved:
        torch.testing.assert_close(moved[cluster], state.models[cluster] + learned)
    buffered: Any = replace(fed, engine=SimpleNamespace(num_trainable=num - 2))
    with_buffers = moved_by_updates(tree, state.models, models, updates, buffered)
    for cluster in moved:
        assert torch.equal(with_buffers[cluster][:-2], moved[cluster][:-2])
        assert torch.equal(with_buffers[cluster][-2:], models[cluster][-2:]), "buffers are means"
    everybody = {
        c: Update(state.models[c], Outcome(state.models[c], NO_LOSSES)) for c in fed.clients
    }
    assert not moved_by_updates(tree, state.models, models, everybody, fed)


def test_finds_the_groups_that_there_are() -> None:
    fed = federation()
    state, _ = Sofa(SofaConfig(), NO_SHARING).init(fed.at(0))
    found = {frozenset(state.tree.clients_of(cluster)) for cluster in state.tree.clusters}
    assert {frozenset({0, 1, 2}), frozenset({3, 4, 5}), frozenset({6, 7, 8})} <= found


def test_directions_forget_how_far_a_model_is_from_the_mean() -> None:
    fed = federation()
    updates = updates_of(fed)
    space = positions_of(updates, SofaConfig(position="directions"), fed)
    full = np.stack([update.model.double().numpy() for update in updates.values()])
    centred = full - full.mean(axis=0)
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(
        space.positions @ space.positions.T, expected @ expected.T, atol=1e-5
    )


def test_clients_that_are_all_alike_have_no_direction() -> None:
    assert not directions(np.ones((4, 3))).any()


@pytest.mark.parametrize("kind", ["weights", "updates"])
def test_positions_keep_the_distances_of_what_they_stand_for(kind: str) -> None:
    fed = federation()
    kinds = {"weights": SofaConfig(position="weights"), "updates": SofaConfig(position="updates")}
    updates = updates_of(fed)
    space = positions_of(updates, kinds[kind], fed)
    start = {"weights": 0.0, "updates": 1.0}[kind]
    full = np.stack([(u.model - start * as_vector(u.start)).numpy() for u in updates.values()])
    expected = np.linalg.norm(full[:, None] - full[None], axis=2)
    distances = space.distances(space.positions, space.positions)
    np.testing.assert_allclose(distances, expected, atol=1e-4)
    assert space.weights.tolist() == [len(fed.owned[c]) for c in fed.clients]
