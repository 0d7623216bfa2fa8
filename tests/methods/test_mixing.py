"""How far every node goes its own way."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
import torch

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.clusters import Models
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.losses import compare_losses
from sofa_fl.methods.rules.mixing import (
    WEIGHTS,
    Mixing,
    after_moves,
    is_left,
    mixture,
    own_models,
    start_weight,
    steadied,
    steadied_counts,
    weigh_by_losses,
)
from sofa_fl.models.mix import as_vector
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Graft, Leave, apply_all
from tests.methods.cases import Spy, federation, in_units

# Three groups of three clients, each with a target of its own; a model of zeros loses less.
FED = in_units(federation(spy=True), blind_loss=100.0)
CLIENTS = FED.clients
ROOT, A, B, C = map(NodeId, range(20, 24))
TREE = Tree(
    {ROOT: None, A: ROOT, B: ROOT, C: ROOT, **{c: (A, B, C)[c // 3] for c in CLIENTS}}, CLIENTS, 24
)
CONFIG = SofaConfig(steadiness=0.0, chance=0.05)


def weigh(
    tree: Tree,
    models: Models,
    before: Mixing,
    asked: Collection[NodeId],
    config: SofaConfig,
    fed: Federation = FED,
) -> Mixing:
    """By the losses of `models`, which are known before."""
    losses = compare_losses(tree, models, replace(fed, meter=type(fed.meter)()))
    return weigh_by_losses(tree, models, losses, before, asked, config, fed)


def targets() -> dict[NodeId, torch.Tensor]:
    """For every client the model that loses least: the mean of its held-out points."""
    rows = {c: FED.data.train.x[FED.judged_on(c)] for c in CLIENTS}
    return {c: torch.from_numpy(x.mean(axis=0)).float() for c, x in rows.items()}


def held_out_loss(client: NodeId, model: torch.Tensor) -> float:
    points = torch.from_numpy(FED.data.train.x[FED.judged_on(client)])
    return float((points - model).square().sum(dim=1).mean())


def test_a_client_whose_model_is_best_goes_its_own_way_and_others_stay() -> None:
    best = targets()
    models = {node: torch.zeros_like(best[NodeId(0)]) for node in TREE.parent}
    models |= {A: best[NodeId(0)], NodeId(0): best[NodeId(0)] + 100, NodeId(3): best[NodeId(3)]}
    found = weigh(TREE, models, Mixing(), CLIENTS, CONFIG)
    assert found.weights[NodeId(0)] == 0, "its parent has what it needs"
    assert found.weights[NodeId(3)] == 1
    assert set(found.weights) == set(TREE.parent) - {ROOT}
    assert set(found.starts) == set(CLIENTS)


def test_weights_are_those_of_the_mixture_that_loses_least() -> None:
    rng = np.random.default_rng(3)
    models = {
        node: torch.from_numpy(rng.normal(size=len(FED.initial()))).float() for node in TREE.parent
    }
    found = weigh(TREE, models, Mixing(), CLIENTS, CONFIG)
    root = models[ROOT]
    for cluster in (A, B, C):
        below = TREE.clients_of(cluster)
        sums = {
            a: sum(held_out_loss(c, as_vector(mixture(root, models[cluster], a))) for c in below)
            for a in WEIGHTS
        }
        assert found.weights[cluster] == min(sums, key=lambda a: sums[a])
        parent = as_vector(mixture(root, models[cluster], found.weights[cluster]))
        for client in below:
            losses = {
                a: held_out_loss(client, as_vector(mixture(parent, models[client], a)))
                for a in WEIGHTS
            }
            assert found.weights[client] == min(losses, key=lambda a: losses[a])
            assert found.parent_losses[client][0] == cluster
            assert found.parent_losses[client][1] == pytest.approx(losses[0.0], rel=1e-4)


def test_who_was_not_asked_keeps_what_it_has() -> None:
    models = {node: FED.initial(int(node)) for node in TREE.parent}
    before = Mixing({NodeId(0): 0.5, A: 0.25}, {NodeId(0): 0.9}, {NodeId(0): (A, 7.0)})
    found = weigh(TREE, models, before, CLIENTS[3:], CONFIG)
    assert found.weights[NodeId(0)] == 0.5
    assert found.weights[A] == 0.25
    assert found.starts[NodeId(0)] == 0.9
    assert found.parent_losses[NodeId(0)] == (A, 7.0)
    assert found.starts[NodeId(1)] == 0.0, "a client of which nothing is known"


def apart() -> dict[NodeId, torch.Tensor]:
    """Clients' models that lose least, and clusters that have learned nothing."""
    best = targets()
    return {node: torch.zeros_like(best[NodeId(0)]) for node in TREE.parent} | best


def test_a_new_parent_is_tried_by_every_other_client_that_is_better_alone() -> None:
    """Of a new parent nobody knows how fast it learns."""
    models = apart()
    first = weigh(TREE, models, Mixing(), CLIENTS, CONFIG)
    assert list(first.trials) == list(CLIENTS)
    for client, trial in first.trials.items():
        assert trial.parent == TREE.parent[client]
        assert trial.goes_on is (client % 3 != 1), "the first and third of three siblings"
        assert first.starts[client] == trial.goes_on
        assert trial.own_loss == pytest.approx(held_out_loss(client, models[client]), rel=1e-4)
        nothing = held_out_loss(client, models[ROOT])
        assert trial.parent_loss == pytest.approx(nothing, rel=1e-4)
    assert first.on_trial == [client for client in CLIENTS if client % 3 != 1]
    second = weigh(TREE, models, first, CLIENTS, CONFIG)
    assert not second.alone, "neither has learned anything"
    assert all(second.starts.values()), "the parent learned nothing, and loses more"
    assert not second.trials


def test_all_who_tried_leave_a_parent_that_learns_less_than_those_who_went_on() -> None:
    models = apart()
    first = weigh(TREE, models, Mixing(), CLIENTS, CONFIG)
    worse = {
        c: replace(trial, own_loss=trial.own_loss + 999, parent_loss=trial.parent_loss + 900)
        for c, trial in first.trials.items()
    }
    fast = {c: (parent, loss + 900) for c, (parent, loss) in first.parent_losses.items()}
    first = replace(first, trials=worse, parent_losses=fast)
    second = weigh(TREE, models, first, CLIENTS, CONFIG)
    assert second.alone == tuple(sorted(CLIENTS))
    assert set(second.starts.values()) == {1.0}, "though the parent learned 900"
    third = weigh(TREE, models, replace(second, parent_losses=fast), CLIENTS, CONFIG)
    assert set(third.starts.values()) == {1.0}, "the verdict stays"
    elsewhere = {client: replace(trial, parent=ROOT) for client, trial in worse.items()}
    second = weigh(TREE, models, replace(first, trials=elsewhere), CLIENTS, CONFIG)
    assert set(second.starts.values()) == {0.0}
    assert not second.alone


def test_who_learns_more_alone_does_until_it_is_asked_and_its_parent_is_best() -> None:
    """Or until it moves or is gone."""
    best, models = targets(), apart()
    before = Mixing(alone=CLIENTS)
    kept = weigh(TREE, models, before, CLIENTS, CONFIG)
    assert kept.alone == CLIENTS
    assert set(kept.starts.values()) == {1.0}
    models |= {A: best[NodeId(0)], NodeId(0): best[NodeId(0)] + 100}
    assert weigh(TREE, models, before, CLIENTS, CONFIG).alone == CLIENTS[1:]
    assert weigh(TREE, models, before, CLIENTS[1:], CONFIG).alone == CLIENTS, "not asked"
    moved = apply_all(TREE, [Graft(CLIENTS[3], A)])
    assert after_moves(before, TREE, moved).alone == tuple(c for c in CLIENTS if c != 3)
    left = apply_all(TREE, [Leave(CLIENTS[3])])
    assert after_moves(before, TREE, left).alone == tuple(c for c in CLIENTS if c != 3)
    assert weigh(left, models, before, (), CONFIG).alone == tuple(c for c in CLIENTS if c != 3)


def test_a_parent_need_not_be_tried() -> None:
    found = weigh(TREE, apart(), Mixing(), CLIENTS, replace(CONFIG, trials=False))
    assert not found.trials
    assert not any(found.starts.values())


def test_nobody_tries_what_is_no_better() -> None:
    models = {node: FED.initial(0) for node in TREE.parent}
    found = weigh(TREE, models, Mixing(), CLIENTS, CONFIG)
    assert not found.trials
    assert not any(found.starts.values())


def test_a_client_that_left_stays_away_and_one_that_moved_starts_from_its_new_parent() -> None:
    models = apart()
    second = Mixing()
    for _ in range(2):
        second = weigh(TREE, models, second, CLIENTS, CONFIG)
    moved = apply_all(TREE, [Graft(CLIENTS[0], B)])
    third = weigh(moved, models, second, CLIENTS, CONFIG)
    assert third.starts[CLIENTS[0]] > 0
    assert CLIENTS[0] not in third.trials
    fresh = after_moves(second, TREE, moved)
    assert CLIENTS[0] not in fresh.starts
    assert fresh.starts[CLIENTS[1]] == second.starts[CLIENTS[1]]
    found = weigh(moved, models, fresh, CLIENTS, CONFIG)
    assert found.starts[CLIENTS[0]] == 0
    assert not found.trials, "others know this parent"


def test_a_trial_ends_with_its_tree_and_waits_for_those_who_were_not_asked() -> None:
    models = apart()
    first = weigh(TREE, models, Mixing(), CLIENTS, CONFIG)
    moved = apply_all(TREE, [Graft(CLIENTS[0], B)])
    assert set(after_moves(first, TREE, moved).trials) == set(CLIENTS[1:])
    second = weigh(TREE, models, first, CLIENTS[:3], CONFIG)
    assert set(second.trials) == set(CLIENTS[3:])


@pytest.mark.parametrize(
    ("losses", "learned", "left"),
    [
        ([1.0, 0.5], 0.4, True),
        ([1.0, 0.5], 0.5, False),  # the parent learns as fast as the client gains
        ([1.0, 0.5], -3.0, True),
        ([1.0, 0.97], 0.0, False),  # 0.03 of 1.03: less than a twentieth of what is known
        ([1.0, 0.94], 0.0, True),  # 0.06 of 1.06
        ([1.0, 1.0], -1.0, False),
        ([3.0, 2.99], -1.0, True),  # of less than nothing any gain counts
        ([1.0, 0.5], np.inf, False),
    ],
)
def test_when_a_client_leaves_its_parent(losses: list[float], learned: float, left: bool) -> None:
    assert is_left(np.array(losses), learned, 0.05, blind_loss=2.0) is left


def test_losses_are_steadied_by_those_of_siblings() -> None:
    losses, counts = np.array([[1.0, 4.0], [3.0, 0.0]]), np.array([10.0, 30.0])
    mean = np.array([2.5, 1.0])
    found = steadied(losses, counts, 30.0)
    np.testing.assert_allclose(found[0], 0.25 * losses[0] + 0.75 * mean)
    np.testing.assert_allclose(found[1], 0.5 * losses[1] + 0.5 * mean)
    np.testing.assert_allclose(steadied(losses, counts, 0.0), losses)


def test_what_steadied_losses_are_worth() -> None:
    """Their variance, by simulation: own samples and all siblings' samples, each of variance 1."""
    counts = np.array([4.0, 12.0])
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(20_000, 2)) / np.sqrt(counts)
    variances = np.var([steadied(row[:, None], counts, 8.0)[:, 0] for row in draws], axis=0)
    alone = steadied_counts(counts, 0.0)
    np.testing.assert_allclose(alone, counts)
    # Own samples are also in the mean; taken as independent, that errs on the side of more.
    assert (steadied_counts(counts, 8.0) > alone).all()
    assert (1 / variances > 0.5 * steadied_counts(counts, 8.0)).all()
    assert (1 / variances < steadied_counts(counts, 8.0)).all()


def test_few_samples_do_not_make_a_client_leave() -> None:
    best = targets()
    models = {node: torch.zeros_like(best[NodeId(0)]) for node in TREE.parent} | best
    before = weigh(TREE, models, Mixing(), CLIENTS, replace(CONFIG, trials=False))
    assert all(weigh(TREE, models, before, CLIENTS, CONFIG).starts.values())
    unsure = replace(CONFIG, chance=1e6)
    assert not any(weigh(TREE, models, before, CLIENTS, unsure).starts.values())


@pytest.mark.parametrize(
    ("losses", "start"),
    [
        ([1.0, 0.9, 0.6, 0.5, 0.50, 0.80], 0.75),
        ([1.0, 0.9, 0.6, 0.5, 0.50, 0.51], 1.0),  # 0.01 of 1.5: a trifle
        ([1.0, 0.9, 0.6, 0.5, 0.50, 0.52], 0.75),
        ([1.0, 1.0, 1.0, 1.0, 1.00, 0.99], 0.0),  # not left
    ],
)
def test_where_a_client_starts(losses: list[float], start: float) -> None:
    assert start_weight(np.array(losses), 0.0, 0.05, blind_loss=2.0, alone=False) == start


@pytest.mark.parametrize(
    ("losses", "start"),
    [
        ([2.0, 1.9, 1.8, 1.8, 1.8, 1.7], 1.0),  # the parent is as bad as a blind guess
        ([2.0, 1.9, 1.8, 1.7, 1.8, 1.9], 0.75),
        ([1.99, 1.9, 1.8, 1.8, 1.8, 1.7], 0.0),  # it is better
        ([2.5, 2.4, 2.3, 2.2, 2.1, 2.0], 0.0),  # but so is the rest
    ],
)
def test_a_parent_that_is_worse_than_a_blind_guess_is_left(
    losses: list[float], start: float
) -> None:
    """However fast it learns, and whatever chance gives."""
    assert start_weight(np.array(losses), np.inf, 9.0, blind_loss=2.0, alone=False) == start


@pytest.mark.parametrize(("alone", "start"), [(True, 1.0), (False, 0.0)])
def test_who_learns_more_alone_does_not_ask_how_much_it_gains(alone: bool, start: float) -> None:
    losses = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.99])
    assert start_weight(losses, np.inf, 9.0, blind_loss=2.0, alone=alone) == start


def test_mixtures_cost_no_bytes_and_the_paper_asks_nothing() -> None:
    assert isinstance(FED.engine, Spy)
    fed = replace(FED, meter=type(FED.meter)())
    models = {node: FED.initial(int(node)) for node in TREE.parent}
    weigh(TREE, models, Mixing(), CLIENTS, CONFIG, fed)
    assert fed.meter.bytes_down == 0
    FED.engine.exams.clear()
    found = own_models(TREE, models, {}, Mixing(), CLIENTS, CONFIG, fed)
    assert not FED.engine.exams
    assert set(found.weights.values()) == {1.0}
