"""A round of SOFA-FL: two exchanges, a state that follows every edit, and steps to replace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sofa_fl
from sofa_fl.data.concepts import Phase
from sofa_fl.engine.base import Exam, Outcome, Score, Task
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.config import RulesConfig, RuleSet, SofaConfig
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.methods.sofa.mixing import Mixing
from sofa_fl.methods.sofa.questions import Answers
from sofa_fl.methods.sofa.state import SofaState
from sofa_fl.models.flat import as_vector
from sofa_fl.sharing import Shared, SharingConfig, share
from sofa_fl.topology.config import DmacConfig, ShapeConfig
from sofa_fl.topology.edits import Edit, Graft, Join, Leave, Merge, MutableTree, Prune, Split
from sofa_fl.topology.shape import Proposal
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from tests.experiment.cases import own_data, tiny
from tests.methods.cases import Spy, after_rounds, federation
from tests.methods.living import CHURN, DRIFT, THREE_GROUPS, check_view, living
from tests.topology.strategies import examples

SHARING = SharingConfig(ratio=0.2)


@dataclass
class Calls(Spy):
    """Counts the exchanges."""

    calls: list[str] = field(default_factory=list)

    def train(self, tasks: Iterable[Task]) -> Sequence[Outcome | None]:
        self.calls.append("train")
        return super().train(tasks)

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        self.calls.append("ask")
        return super().evaluate(exams)


@pytest.mark.parametrize("script", [CHURN, DRIFT], ids=["churn", "drift"])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_a_round_has_two_exchanges_whatever_happens(
    script: list[Phase], participation: float
) -> None:
    fed = living(script, participation=participation)
    calls = Calls(fed.engine)
    fed = replace(fed, engine=calls)
    method = Sofa(SofaConfig(shape=ShapeConfig(every=1)), SHARING)
    state, _ = method.init(fed.at(0))
    assert calls.calls == ["train", "ask"]
    edits: list[Edit] = []
    for round in range(1, 7):
        calls.calls.clear()
        state, notes = method.round(state, fed.at(round))
        edits += notes.edits
        assert calls.calls == ["train", "ask"]
    assert edits, "or nothing happened"


def test_so_has_every_round_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the scores on test samples, which are for people to read."""
    calls: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        function = getattr(Federation, name)

        def call(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return function(*args, **options)

        return call

    for name in ("train", "held_out"):
        monkeypatch.setattr(Federation, name, counted(name))
    sofa_fl.run(tiny(tmp_path / "run"), data=own_data())
    rounds = tiny(tmp_path / "run").rounds
    assert calls == ["train", "held_out"] * (1 + rounds)


def random_edits(tree: Tree, clients: Sequence[NodeId], rng: np.random.Generator) -> list[Edit]:
    """Edits of all kinds, in a row, each of them possible by then."""
    draft, edits = MutableTree(tree), list[Edit]()

    def pick(nodes: Iterable[NodeId], num: int) -> tuple[NodeId, ...]:
        found = sorted(nodes)
        return tuple(found[at] for at in sorted(rng.choice(len(found), num, replace=False)))

    def made() -> Edit | None:
        now = draft.done()
        clusters = [c for c in now.clusters if c != now.root]
        kind = rng.integers(6)
        if kind == 0:
            (node,) = pick([n for n in now.parent if n != now.root], 1)
            inside = set(draft.walk(node))
            homes = [c for c in now.clusters if c not in inside and c != now.parent[node]]
            return Graft(node, *pick(homes, 1)) if homes else None
        if kind == 1:
            return Prune(*pick(clusters, 1)) if clusters else None
        if kind == 2:
            pairs = [(a, b) for a in clusters for b in clusters
                     if a < b and now.parent[a] == now.parent[b]]  # fmt: skip
            return Merge(pairs[rng.integers(len(pairs))], NodeId(now.next_id)) if pairs else None
        if kind == 3:
            large = [c for c in now.clusters if len(now.children[c]) > 2]
            if not large:
                return None
            (cluster,) = pick(large, 1)
            part = pick(now.children[cluster], 2)
            return Split(cluster, (NodeId(now.next_id),), (part,))
        if kind == 4:
            new = [c for c in clients if c not in now.members]
            return Join(*pick(new, 1), *pick(now.clusters, 1)) if new else None
        return Leave(*pick(now.clients, 1)) if len(now.clients) > 2 else None

    for _ in range(rng.integers(1, 7)):
        if (edit := made()) is not None:
            edit.apply(draft)
            edits.append(edit)
    return edits


FED = federation()
METHOD = Sofa(SofaConfig(), SHARING)
FIRST = after_rounds(METHOD, FED, 2)


@examples(80)
@given(st.integers(0, 100_000))
def test_everything_follows_the_tree(seed: int) -> None:
    """Whatever the edits: models, losses, weights, counts and pools are those of its nodes."""
    rng = np.random.default_rng(seed)
    here = FED.clients[: rng.integers(4, 10)]
    leaves = [Leave(client) for client in FED.clients if client not in here]
    start = replace(
        FIRST,
        mixing=replace(
            FIRST.mixing,
            missed=dict.fromkeys(FED.clients[::2], 2),
            idle=dict.fromkeys(FIRST.tree.clusters[1:], 3),
        ),
        learned={client: FIRST.models[client] for client in FED.clients},
    ).after(leaves, FED)
    edits = random_edits(start.tree, FED.clients, rng)
    after = start.after(edits, FED)
    tree = after.tree
    assert set(after.models) == set(tree.parent)
    assert all(bool(model.isfinite().all()) for model in after.models.values())
    for node in after.models.keys() & start.models.keys():
        assert after.models[node] is start.models[node], "who stays keeps its model"
    assert list(after.losses) == list(tree.clients)
    for client, losses in after.losses.items():
        assert tuple(losses) == tree.path(client)
        assert np.isfinite([*losses.values()]).all()
    assert set(after.learned) == tree.members & start.learned.keys()
    mixing = after.mixing
    assert set(mixing.weights) <= set(tree.parent)
    assert set(mixing.missed) <= tree.members
    assert set(mixing.idle) <= set(tree.clusters)
    assert set(after.shared.pools) == set(tree.clusters)
    for client in tree.clients:
        assert as_vector(after.effective(client)).isfinite().all()
        on_path = np.concatenate([after.shared.pools[c] for c in tree.path(client)[:-1]])
        others = np.setdiff1d(on_path, FED.owned[client])
        given_to = after.shared.ledger.given(others, client)
        np.testing.assert_array_equal(given_to, others, err_msg="it is in the ledger")
    once_more = share(tree, FED.owned, after.shared, SHARING, seed=0, round=3)
    assert set(once_more.pools) == set(tree.clusters)


def test_idle_clusters_are_pruned_and_nobodys_model_changes() -> None:
    """Clients that are alike in nothing, in a tree with clusters: no one gains by these."""
    fed = federation()
    patience = 3
    shape = ShapeConfig(operations=("prune",), patience=patience)
    method = Sofa(SofaConfig(shape=shape, steadiness=0.0), SharingConfig(ratio=0))
    state, _ = method.init(fed.at(0))
    pruned = 0
    for round in range(1, 12):
        now = fed.at(round)
        before = state.mixing.idle
        state, notes = method.round(state, now)
        for edit in notes.edits:
            assert isinstance(edit, Prune)
            assert before[edit.node] == patience - 1
            pruned += 1
    assert pruned
    assert all(rounds < patience for rounds in state.mixing.idle.values())


def test_what_a_client_serves_is_the_same_after_idle_clusters_are_pruned() -> None:
    fed = federation()
    state = FIRST
    clusters = [c for c in state.tree.clusters if c != state.tree.root]
    for weights in (dict.fromkeys(clusters, 0.0), dict.fromkeys(fed.clients, 1.0)):
        mixing = Mixing({**dict.fromkeys(state.tree.parent, 0.5), **weights})
        known = replace(state, mixing=mixing)
        after = known.after([Prune(cluster) for cluster in reversed(clusters)], fed)
        assert after.tree.depth == 1
        for client in fed.clients:
            torch.testing.assert_close(
                as_vector(after.effective(client)), as_vector(known.effective(client))
            )


@pytest.mark.parametrize("rules", list(product(("default", "paper"), repeat=3)), ids="-".join)
def test_rules_of_the_paper_go_with_ours(rules: tuple[RuleSet, RuleSet, RuleSet]) -> None:
    """Any of them, from trees that are wrong, so that there is much to edit at once."""
    config = SofaConfig(
        rules=RulesConfig(graft=rules[0], merge=rules[1], split=rules[2]),
        shape=ShapeConfig(every=1, least=0.0, chance=0.4, split=0.3, merge=1.0, nearest=5),
        dmac=DmacConfig(increase=1.3),
    )
    method = Sofa(config, SHARING)
    for seed in (4, 14):
        fed, rng = federation(seed=seed), np.random.default_rng(seed)
        state, _ = method.init(fed.at(0))
        for round in range(1, 7):
            state = state.after(random_edits(state.tree, fed.clients, rng), fed)
            state, _ = method.round(state, fed.at(round))
            assert set(state.models) == set(state.tree.parent)


def test_a_step_can_be_replaced(tmp_path: Path) -> None:
    class NoSplits(sofa_fl.Sofa):
        asked = 0

        def edits(
            self,
            state: SofaState,
            space: Space,
            proposals: Sequence[Proposal],
            answers: Answers,
            fed: Federation,
        ) -> list[Edit]:
            NoSplits.asked += 1
            others = [p for p in proposals if p.operation != "split"]
            return super().edits(state, space, others, answers, fed)

    config = tiny(tmp_path / "run", method="sofa")
    result = sofa_fl.run(config, method=NoSplits(config.sofa, config.sharing), data=own_data())
    assert NoSplits.asked == config.rounds
    assert result.tree.is_compact


def test_who_stays_alone_and_who_comes_to_it() -> None:
    fed = living([Phase(0, {0: THREE_GROUPS[0]}), Phase(2, dict(list(THREE_GROUPS.items())[:4]))])
    method = Sofa(SofaConfig(), SHARING)
    state = after_rounds(method, fed, 1)
    assert state.tree.clusters == ()
    for round in (2, 3, 4):
        state, _ = method.round(state, fed.at(round))
        check_view(method.view(state), fed.at(round))


def test_a_state_is_made_of_few_things() -> None:
    state = SofaState(FIRST.tree, FIRST.models)
    assert state.measured({}, 2.0).losses == {
        c: dict.fromkeys(FIRST.tree.path(c), 2.0) for c in FIRST.tree.clients
    }
    assert state.shared == Shared()


def test_a_split_may_leave_a_cluster_that_all_have_left() -> None:
    """Grafts of the same round took its last clients."""
    fed = federation(5)
    root, high, low, gone = map(NodeId, (10, 11, 12, 13))
    parent: dict[NodeId, NodeId | None] = {root: None, high: root, low: root, gone: high}
    places = (high, high, gone, low, low)
    tree = Tree(parent | dict(zip(fed.clients, places)), fed.clients, 14)
    models = {node: fed.initial(int(node)) for node in tree.parent}
    state = SofaState(tree, models).measured({}, 1.0)
    parts = (fed.clients[:2], (gone,))
    edits: list[Edit] = [Graft(fed.clients[2], low), Split(high, (NodeId(14), NodeId(15)), parts)]
    after = state.after(edits, fed)
    assert torch.equal(after.models[NodeId(15)], models[gone])
