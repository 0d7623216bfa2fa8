"""How far clients with one parent go their own way: every condition, by a hair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.mixing import (
    WEIGHTS,
    Mixing,
    after_moves,
    is_left,
    levels,
    mixture,
    own_models,
    start_weight,
    weigh_by_losses,
    weigh_siblings,
)
from sofa_fl.methods.rules.parent_trial import Trial
from sofa_fl.models.mix import Mix
from sofa_fl.topology.tree import NodeId
from tests.topology.strategies import ids, node, tree_of

CONFIG = SofaConfig(steadiness=0.0, chance=0.0)
P = node(9)  # the parent
ONE, OTHER = ids(0, 1)


def fed_of(sizes: dict[int, int] | None = None, blind_loss: float = 2.0, round: int = 0) -> Any:
    """As much of a federation as is asked for: 100 held-out samples of each client."""
    held = sizes or {}
    return SimpleNamespace(
        blind_loss=blind_loss,
        judged_on=lambda client: range(held.get(client, 100)),
        round=round,
        participation=1.0,
    )


def row_of(parent: float, own: float, mixed: float = 9.0) -> Any:
    """The losses of mixtures, of which those in between are all alike."""
    return np.array([parent, *[mixed] * (len(WEIGHTS) - 2), own])


def weighed(
    rows: dict[NodeId, Any],
    before: Mixing | None = None,
    config: SofaConfig = CONFIG,
    *,
    hope: bool = True,
    round: int = 0,
    participation: float = 1.0,
) -> Mixing:
    fed = fed_of(round=round)
    fed.participation = participation
    return weigh_siblings(rows, P, before or Mixing(), config, fed, hope=hope)


def test_the_more_samples_the_smaller_a_gain_may_be() -> None:
    """A gain of 0.2 of the 1.2 that are known, by 100 samples: chance gives a tenth."""
    rows = {ONE: row_of(1.0, 0.8)}
    for chance, start in ((1.0, 1.0), (2.0, 0.0)):
        config = SofaConfig(steadiness=0.0, chance=chance)
        assert weighed(rows, config=config, hope=False).starts == {ONE: start}


@pytest.mark.parametrize(("was", "start"), [(1.4, 1.0), (1.6, 0.0)])
def test_the_parents_own_loss_says_what_it_learned(was: float, start: float) -> None:
    """From 1.4 or 1.6 to 1, while the client gains 0.5; the mixtures say nothing of it."""
    before = Mixing(parent_losses={ONE: (P, was)})
    assert weighed({ONE: row_of(1.0, 0.5, mixed=2.0)}, before).starts == {ONE: start}


def test_a_new_parent_gives_hope_and_without_hope_a_small_gain_is_enough() -> None:
    rows = {ONE: row_of(1.0, 0.9), OTHER: row_of(1.0, 1.0)}
    assert weighed(rows, config=replace(CONFIG, trials=False)).starts == {ONE: 0.0, OTHER: 0.0}
    assert weighed(rows, hope=False).starts == {ONE: 1.0, OTHER: 0.0}
    assert weighed(rows, hope=False).trials == {}


def test_those_try_a_new_parent_who_gain_by_their_own_way() -> None:
    rows = {ONE: row_of(1.0, 0.9), OTHER: row_of(1.0, 1.0), node(2): row_of(1.0, 0.8)}
    first = weighed(rows)
    assert first.trials == {ONE: Trial(P, 0.9, 1.0, True), 2: Trial(P, 0.8, 1.0, False)}
    assert first.starts == {ONE: 1.0, OTHER: 0.0, 2: 0.0}
    known = Mixing(parent_losses={OTHER: (P, 1.0)})
    assert weighed(rows, known).trials == {}, "one of them knows this parent"
    elsewhere = Mixing(parent_losses={OTHER: (node(8), 1.0)})
    assert weighed(rows, elsewhere).trials.keys() == {ONE, 2}


def test_a_known_parent_is_tried_again_in_rounds_that_are_powers_of_two() -> None:
    """By those whose own way is better and who start from it all the same: it learned much."""
    rows = {ONE: row_of(1.0, 0.9), OTHER: row_of(1.0, 1.0), node(2): row_of(1.0, 0.8)}
    known = Mixing(parent_losses=dict.fromkeys(rows, (P, 1.5)))
    due = [round for round in range(40) if weighed(rows, known, round=round).trials]
    assert due == [1, 2, 4, 8, 16, 32]
    found = weighed(rows, known, round=4)
    assert found.trials == {ONE: Trial(P, 0.9, 1.0, True), 2: Trial(P, 0.8, 1.0, False)}
    assert found.starts == {ONE: 1.0, OTHER: 0.0, 2: 0.0}
    off = replace(CONFIG, trials=False)
    assert weighed(rows, known, off, round=4).trials == {}


def test_when_no_parent_is_tried() -> None:
    """Right after a trial, without hope, where some are not asked, or by who has left."""
    rows = {ONE: row_of(1.0, 0.9), OTHER: row_of(1.0, 0.8), node(2): row_of(1.0, 0.8)}
    known = Mixing(parent_losses=dict.fromkeys(rows, (P, 1.5)))
    assert weighed(rows, known, round=4).trials.keys() == {ONE, OTHER, 2}
    assert weighed(rows, known, round=4, hope=False).trials == {}
    assert weighed(rows, known, round=4, participation=0.5).trials == {}
    assert weighed(rows, participation=0.5).trials == {}, "a new parent neither"
    tried = replace(known, trials={OTHER: Trial(P, 0.8, 1.0, True)})
    assert weighed(rows, tried, round=4).trials == {}
    elsewhere = replace(known, trials={OTHER: Trial(node(8), 0.8, 1.0, True)})
    assert weighed(rows, elsewhere, round=4).trials.keys() == {ONE, OTHER, 2}
    assert weighed(rows, replace(known, alone=(OTHER,)), round=4).trials.keys() == {ONE, 2}
    slow = replace(known, parent_losses={**known.parent_losses, OTHER: (P, 1.1)})
    assert weighed(rows, slow, round=4).trials.keys() == {ONE, 2}, "it gains more than that"


@pytest.mark.parametrize(("own", "start"), [(0.6, 1.0), (0.8, 0.0)])
def test_a_trial_decides_for_all_who_tried(own: float, start: float) -> None:
    """The parent learns 0.2, and those who went on from their own models 0.3 or 0.1."""
    third, fourth = ids(2, 3)
    tried = {
        ONE: Trial(P, 0.9, 1.0, True),
        OTHER: Trial(P, 0.9, 1.0, False),
        third: Trial(P, 0.9, 1.0, True),
    }
    before = Mixing(parent_losses=dict.fromkeys((*tried, fourth), (P, 1.0)), trials=tried)
    rows = {
        ONE: row_of(0.8, own),
        OTHER: row_of(0.8, 0.7),
        third: row_of(0.8, own),
        fourth: row_of(0.8, 0.7),
    }
    found = weighed(rows, before)
    assert found.starts == {ONE: start, OTHER: start, third: start, fourth: 0.0}
    assert set(found.alone) == ({ONE, OTHER, third} if start else set())
    assert found.trials == {}
    of_another = {client: replace(trial, parent=node(8)) for client, trial in tried.items()}
    assert weighed(rows, replace(before, trials=of_another)).starts[OTHER] == 0.0
    rows[OTHER] = row_of(0.8, 0.9)
    assert weighed(rows, before).starts[OTHER] == 0.0, "its parent's model is best for it"


def test_who_learns_more_alone_does_until_its_parents_model_is_best_for_it() -> None:
    rows = {ONE: row_of(1.0, 0.99), OTHER: row_of(1.0, 1.0), node(2): row_of(1.0, 0.99)}
    before = Mixing(parent_losses=dict.fromkeys(rows, (P, 9.0)), alone=(ONE, OTHER))
    found = weighed(rows, before)
    assert found.alone == (ONE,)
    assert found.starts == {ONE: 1.0, OTHER: 0.0, 2: 0.0}
    after = weighed({ONE: row_of(0.9, 0.99)}, found)
    assert (after.alone, after.starts) == ((), {ONE: 0.0})
    again = weighed({ONE: row_of(1.0, 0.99)}, replace(after, parent_losses={ONE: (P, 9.0)}))
    assert (again.alone, again.starts) == ((), {ONE: 0.0}), "and not again without a trial"


@pytest.mark.parametrize(
    ("losses", "learned", "chance", "blind_loss", "left"),
    [
        ([5.0, 5.0], -1.0, 0.5, 1.0, False),  # no gain, where less than nothing is known
        ([1.0, 0.5], 0.0, 0.1, 10.5, False),  # 0.5 of 10: less than a tenth
        ([1.0, 0.5], 0.0, 0.1, 5.0, True),
    ],
)
def test_what_is_known_sets_the_scale(
    losses: list[float], learned: float, chance: float, blind_loss: float, left: bool
) -> None:
    assert is_left(np.array(losses), learned, chance, blind_loss) is left


def test_a_hundredth_of_what_is_known_is_no_trifle() -> None:
    losses = row_of(60.0, 2.0, mixed=1.0)
    assert start_weight(losses, 0.0, 0.0, blind_loss=101.0, alone=False) == WEIGHTS[1]
    assert start_weight(losses, 0.0, 0.0, blind_loss=101.5, alone=False) == 1.0


def test_a_mixture_of_one_is_that_one() -> None:
    parent, own = torch.zeros(2), torch.ones(2)
    assert mixture(parent, own, 0.0) is parent
    assert mixture(parent, own, 1.0) is own
    both = mixture(parent, own, 0.25)
    assert isinstance(both, Mix)
    assert both.weights == (0.75, 0.25)


# 5 ── 6 ── 7 ── 0, 1
#   │     └─ 2
#   └─ 8 ── 3, 4
DEEP = tree_of([[[0, 1], 2], [3, 4]])


def test_clusters_by_depth() -> None:
    top, low = [c for c in DEEP.clusters if DEEP.parent[c] == DEEP.root], DEEP.parent[node(0)]
    assert levels(DEEP) == [dict.fromkeys(top, DEEP.root), {low: DEEP.parent[node(2)]}]
    assert levels(tree_of([0, 1])) == []


def test_own_models_stand_alone() -> None:
    everywhere, clients = dict.fromkeys(DEEP.parent, 1.0), dict.fromkeys(DEEP.clients, 1.0)
    assert own_models(DEEP) == Mixing(everywhere, clients)


def test_what_is_left_after_a_move() -> None:
    """Client 4 is gone, and so is what was known of it; the others keep all."""
    after = tree_of([[[0, 1], 2], [3]])
    known = dict.fromkeys(DEEP.clients, (P, 1.0))
    found = after_moves(Mixing(dict.fromkeys(DEEP.parent, 0.5), {}, known), DEEP, after)
    assert set(found.weights) == set(DEEP.parent) & set(after.parent)
    assert set(found.parent_losses) == set(after.clients)


def by_value(targets: dict[int, float], sizes: dict[int, int]) -> Any:
    """A model is one number, and loses for a client the squared distance to its target."""

    def held_out(asks: Sequence[tuple[NodeId, Any]], *, sent: bool) -> list[Any]:
        values = [
            float(np.average([float(m) for m in model.models], weights=model.weights))
            for _, model in asks
        ]
        return [
            SimpleNamespace(loss=(value - targets[client]) ** 2)
            for (client, _), value in zip(asks, values)
        ]

    fed = fed_of(sizes)
    fed.held_out = held_out
    return fed


@pytest.mark.parametrize(("sizes", "weight"), [({0: 1, 1: 99}, 1.0), ({0: 99, 1: 1}, 0.0)])
def test_a_cluster_goes_by_samples(sizes: dict[int, int], weight: float) -> None:
    """The root's model suits client 0, the cluster's client 1."""
    tree = tree_of([[0, 1], 2])
    (cluster,) = (c for c in tree.clusters if c != tree.root)
    targets = {0: 0.0, 1: 1.0, 2: 0.0}
    values = {tree.root: 0.0, cluster: 1.0, node(0): 0.0, node(1): 1.0, node(2): 0.0}
    models = {each: torch.tensor([value]) for each, value in values.items()}
    losses = {c: {n: (values[n] - targets[c]) ** 2 for n in tree.path(c)} for c in tree.clients}
    fed = by_value(targets, sizes)
    found = weigh_by_losses(tree, models, losses, Mixing(), ids(0, 1), CONFIG, fed)
    assert found.weights[cluster] == weight
    assert found.weights[node(2)] == 1.0, "was never asked"
