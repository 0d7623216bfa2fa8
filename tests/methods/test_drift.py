"""SOFA-FL where data change: the tree follows, at once; where nothing changes, it stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from sofa_fl.data.concepts import Concept, Phase
from sofa_fl.data.federated_data import Stage
from sofa_fl.data.scenarios import ScenarioConfig, ScenarioName, script_of
from sofa_fl.engine.config import FaultsConfig
from sofa_fl.engine.faulty import FaultyEngine
from sofa_fl.experiment.scoring.agreement import fscore
from sofa_fl.federation import Federation
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.local_update import LocalUpdate
from sofa_fl.methods.rules.state import ModelStore
from sofa_fl.methods.sofa import Sofa
from sofa_fl.models.flat import as_vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Join, Leave, Split
from tests.methods.cases import METHODS, after_rounds, in_units
from tests.methods.living import THREE_GROUPS, A, B, check_view, living

AT, LASTS = 3, 4
BLIND_LOSS = 16.0  # the groups' points are 4 from the origin
METHOD = Sofa(SofaConfig(), SharingConfig(ratio=0.1))
seeds = pytest.mark.parametrize("seed", range(3))


def scenario(name: ScenarioName, seed: int, per_group: int) -> Federation:
    groups = [group for group in range(3) for _ in range(per_group)]
    concepts = [Concept(120.0 * k) for k in range(3)]
    config = ScenarioConfig(name=name, at=AT, lasts=LASTS, fraction=0.4)
    fed = replace(living(script_of(config, groups, concepts, seed)), seed=seed)
    return in_units(fed, BLIND_LOSS)


def agreement(tree: Tree, fed: Federation) -> float:
    """1 if every group is a cluster, at whatever depth: levels above groups do no harm."""
    truth = fed.stage.truth[0]
    return fscore(tree, [truth[client] for client in tree.clients])


def followed(fed: Federation, rounds: int = AT + LASTS + 4) -> dict[int, tuple[float, list[Edit]]]:
    """By round: how well the tree agrees with the groups of that round, and the edits."""
    found = {}
    state, _ = METHOD.init(fed.at(0))
    for round in range(1, rounds):
        state, notes = METHOD.round(state, fed.at(round))
        check_view(METHOD.view(state), fed.at(round))
        found[round] = agreement(state.tree, fed.at(round)), list(notes.edits)
    return found


@seeds
@pytest.mark.parametrize("per_group", [3, 5])
@pytest.mark.parametrize("name", ["swap", "emerge", "converge", "recur", "churn"])
def test_the_tree_follows_within_three_rounds(
    name: ScenarioName, per_group: int, seed: int
) -> None:
    """One or two clients of each group change; in between and afterwards, nobody moves.

    At most DMAC becomes certain of more levels, as clients go their own way.
    """
    changes = [AT, AT + LASTS] if name == "recur" else [AT]
    for round, (score, edits) in followed(scenario(name, seed, per_group)).items():
        since = min((round - change for change in changes if round >= change), default=-1)
        if since < 0 or since >= 2:
            assert score == 1, f"round {round}"
        if since < 0:
            assert edits == [], f"round {round}"
        if since > 2:
            assert all(isinstance(edit, Split) for edit in edits), f"round {round}"
        if since == 0:
            assert edits, f"round {round}"


@seeds
@pytest.mark.parametrize("per_group", [3, 5])
def test_where_nothing_changes_nothing_is_edited(per_group: int, seed: int) -> None:
    for score, edits in followed(scenario("none", seed, per_group)).values():
        assert (score, edits) == (1, [])


@seeds
def test_churn_is_joins_and_leaves_and_nothing_else(seed: int) -> None:
    fed = scenario("churn", seed, 5)
    _, edits = followed(fed)[AT]
    before, after = (set(fed.at(round).clients) for round in (AT - 1, AT))
    assert {edit.node for edit in edits if isinstance(edit, Leave)} == before - after
    assert {edit.node for edit in edits if isinstance(edit, Join)} == after - before
    assert len(edits) == len(before ^ after)


@pytest.mark.parametrize("per_group", [3, 5])
def test_shape_alone_follows_later_than_the_alert(per_group: int) -> None:
    """SHAPE goes by what models lose after a round in the wrong place; the alert does not wait."""
    patient = Sofa(SofaConfig(alert=1e9), SharingConfig(ratio=0.1))
    fed = scenario("swap", 0, per_group)
    assert agreement(after_rounds(patient, fed, AT + 3).tree, fed.at(AT + 3)) == 1
    assert followed(fed)[AT][0] == 1


def test_few_are_asked_and_the_tree_follows_as_they_are() -> None:
    fed = replace(scenario("swap", 1, 5), participation=0.5)
    state, _ = METHOD.init(fed.at(0))
    scores = {}
    for round in range(1, AT + 10):
        state, _ = METHOD.round(state, fed.at(round))
        scores[round] = agreement(state.tree, fed.at(round))
    assert [scores[round] for round in range(1, AT)] == [1] * (AT - 1)
    assert scores[AT] < 1, "whoever is not asked cannot tell"
    assert scores[AT + 9] == 1


def test_a_newcomer_starts_from_what_suits_it_and_joins_its_group() -> None:
    fed = living([Phase(0, THREE_GROUPS), Phase(3, {**THREE_GROUPS, 9: B})])
    fed = in_units(fed, BLIND_LOSS)
    state = after_rounds(METHOD, fed, 2)
    home = state.tree.parent[NodeId(4)]
    assert home is not None
    stored = replace(state, params=ModelStore(state.params, keep=True))
    local = LocalUpdate(stored, METHOD.rules, METHOD.config, fed.at(3))
    ((task, _),) = local.first()
    assert task.site == 9
    centre = torch.from_numpy(fed.data.train.x[fed.at(3).owned[NodeId(9)]].mean(axis=0))

    def apart(model: torch.Tensor) -> float:
        return float(torch.linalg.vector_norm(model - centre))

    assert apart(as_vector(task.start)) < apart(state.params[state.tree.root])
    after, notes = METHOD.round(state, fed.at(3))
    assert notes.edits == (Join(NodeId(9), home),)
    assert apart(after.params[NodeId(9)]) < 1


def test_newcomers_join_one_that_was_alone() -> None:
    fed = living([Phase(0, {0: A}), Phase(2, {0: A, 1: A, 2: A})])
    for name in METHODS:
        method = METHODS[name](SharingConfig(ratio=0.2))
        state = after_rounds(method, fed, 1)
        for round in (2, 3):
            state, _ = method.round(state, fed.at(round))
            check_view(method.view(state), fed.at(round))


def test_all_but_one_leave_and_others_come() -> None:
    fed = living([Phase(0, THREE_GROUPS), Phase(2, {4: B}), Phase(4, {0: A, 4: B, 7: B})])
    for name in METHODS:
        method = METHODS[name](SharingConfig(ratio=0.2))
        state = after_rounds(method, fed, 1)
        for round in range(2, 6):
            state, _ = method.round(state, fed.at(round))
            check_view(method.view(state), fed.at(round))


def test_a_client_alone_whose_answer_cannot_be_used_keeps_its_model() -> None:
    """Though nothing is lossy, and newcomers are heard."""
    fed = living([Phase(0, {0: A}), Phase(2, {0: A, 1: A, 2: A})])
    state = after_rounds(METHOD, fed, 1)
    before = state.params[NodeId(0)].clone()
    odd = FaultyEngine(fed.engine, FaultsConfig(), fed.first_id)
    odd.bad = {NodeId(0): "nan"}
    state, _ = METHOD.round(state, replace(fed, engine=odd).at(2))
    check_view(METHOD.view(state), fed.at(2))
    assert torch.equal(state.params[NodeId(0)], before)


@pytest.mark.parametrize("name", ["hypcluster 2", "cfl", "hierfavg", "oracle", "feddrift"])
def test_whose_data_grow_counts_for_more(name: str) -> None:
    """In what is the mean of several clusters, from the round on that they do."""
    fed = living([Phase(0, THREE_GROUPS)])
    first = fed.stage.clients
    few = {c: replace(rows, train=rows.train[: 3 + 3 * (c < 3)]) for c, rows in first.items()}
    truth = fed.data.truth
    stages = (Stage(0, few, truth), Stage(2, first, truth))
    fed = replace(fed, data=replace(fed.data, stages=stages))
    method = METHODS[name](SharingConfig(ratio=0))
    for rounds in (1, 2):
        view = method.view(after_rounds(method, fed, rounds))
        sizes: Mapping[NodeId, int] = {c: fed.at(rounds).size(c) for c in fed.clients}
        served = np.stack([as_vector(view.served[c]).numpy() for c in fed.clients])
        expected = np.average(served, axis=0, weights=list(sizes.values()))
        np.testing.assert_allclose(
            as_vector(view.models[view.tree.root]).numpy(), expected, atol=1e-4
        )
