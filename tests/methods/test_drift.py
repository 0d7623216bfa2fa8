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
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.local import lessons_of
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.models.flat import as_vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.edits import Edit, Graft, Join, Leave, Split
from sofa_fl.topology.tree import NodeId, Tree
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
    script = script_of(config, groups, concepts, seed)
    return in_units(replace(living(script, alike=True), seed=seed), BLIND_LOSS)


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
def test_the_tree_follows_in_two_rounds(name: ScenarioName, per_group: int, seed: int) -> None:
    """One or two clients of each group change; in between and afterwards, nobody moves."""
    changes = [AT, AT + LASTS] if name == "recur" else [AT]
    for round, (score, edits) in followed(scenario(name, seed, per_group)).items():
        since = min((round - change for change in changes if round >= change), default=-1)
        if since < 0 or since >= 2:
            assert (score, edits) == (1, []), f"round {round}"
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


@seeds
def test_few_are_asked_and_move_when_they_are(seed: int) -> None:
    """Whoever has new data, and was not asked when they came, moves as soon as it is."""
    fed = replace(scenario("swap", seed, 5), participation=0.5)
    before = fed.at(AT - 1).stage.clients
    waiting = {c for c in fed.clients if fed.at(AT).stage.clients[c] is not before[c]}
    state = after_rounds(METHOD, fed, AT - 1)
    moved: set[NodeId] = set()
    for round in range(AT, AT + 6):
        now = fed.at(round)
        state, notes = METHOD.round(state, now)
        for edit in notes.edits:
            if isinstance(edit, Graft):
                moved.add(edit.node)
            elif isinstance(edit, Split):
                moved |= {node for group in edit.groups for node in group}
        if round == AT:
            assert waiting - set(now.cohort), "or this shows nothing"
    assert waiting <= moved


def test_a_newcomer_starts_from_what_suits_it_and_joins_its_group() -> None:
    fed = living([Phase(0, THREE_GROUPS), Phase(3, {**THREE_GROUPS, 9: B})], alike=True)
    fed = in_units(fed, BLIND_LOSS)
    state = after_rounds(METHOD, fed, 2)
    home = state.tree.parent[NodeId(4)]
    assert home is not None
    task = next(task for task, _ in lessons_of(state, METHOD.config, fed.at(3)))
    assert task.site == 9
    assert torch.equal(as_vector(task.start), state.models[state.tree.root])
    centre = torch.from_numpy(fed.data.train.x[fed.at(3).owned[NodeId(9)]].mean(axis=0))

    def apart(model: torch.Tensor) -> float:
        return float(torch.linalg.vector_norm(model - centre))

    after, notes = METHOD.round(state, fed.at(3))
    assert notes.edits == (Join(NodeId(9), home),)
    assert apart(after.models[NodeId(9)]) < 0.5 * apart(as_vector(task.start))


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
    before = state.models[NodeId(0)].clone()
    odd = FaultyEngine(fed.engine, FaultsConfig(), fed.first_id)
    odd.bad = {NodeId(0): "nan"}
    state, _ = METHOD.round(state, replace(fed, engine=odd).at(2))
    check_view(METHOD.view(state), fed.at(2))
    assert torch.equal(state.models[NodeId(0)], before)


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
