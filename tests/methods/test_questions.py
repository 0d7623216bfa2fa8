"""The second exchange: what is asked, of whom, on what, and about which models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from sofa_fl.engine.base import Exam, Score
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.averages import made_by
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.methods.sofa.mixing import Mixing
from sofa_fl.methods.sofa.questions import ENOUGH, Answers, ask
from sofa_fl.methods.sofa.state import SofaState
from sofa_fl.models.flat import Vector, as_vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.config import DmacConfig, ShapeConfig
from sofa_fl.topology.shape import CONSTANT, Blend, Claim, Proposal, Proposer
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from tests.methods.cases import Spy, federation, in_units, updates_of

FED = in_units(federation(9, spy=True), blind_loss=100.0)
CLIENTS = FED.clients
ROOT, A, B, LOW = map(NodeId, (20, 21, 22, 23))
# The root has A and B; A has LOW (clients 0 to 2) and clients 3 and 4; B has the others.
PARENT: dict[NodeId, NodeId | None] = {ROOT: None, A: ROOT, B: ROOT, LOW: A}
PLACES = (LOW, LOW, LOW, A, A, B, B, B, B)
TREE = Tree(PARENT | dict(zip(CLIENTS, PLACES)), CLIENTS, 24)
UPDATES = updates_of(FED)
WEIGHTS = {node: 0.25 * (node % 4) for node in TREE.parent}
STATE = SofaState(TREE, {n: FED.initial(int(n)) for n in TREE.parent}, mixing=Mixing(WEIGHTS))


def spy_of(fed: Federation) -> Spy:
    assert isinstance(fed.engine, Spy)
    fed.engine.exams.clear()
    return fed.engine


def asked(
    proposals: list[Proposal], fed: Federation = FED, some: tuple[NodeId, ...] = CLIENTS
) -> Answers:
    updates = {client: UPDATES[client] for client in some}
    return ask(STATE, proposals, {}, made_by(TREE, updates, fed), some, fed)


def all_proposals(selfish: frozenset[NodeId] = frozenset()) -> list[Proposal]:
    rng = np.random.default_rng(1)
    places = 0.3 * rng.normal(size=(9, 4)) + 5 * np.repeat(np.eye(4)[:3], 3, axis=0)
    sizes = np.array([FED.size(c) for c in CLIENTS], dtype=float)
    space = Space(CLIENTS, places, sizes, linkage="average")
    return Proposer(TREE, space, ShapeConfig(), DmacConfig(), selfish=selfish).all()


def of_clients(weights: dict[NodeId, float]) -> Vector:
    total = sum(weights.values())
    parts = [w / total * UPDATES[c].model.double() for c, w in weights.items()]
    return torch.stack(parts).sum(dim=0)


def written_out(blend: Blend) -> dict[NodeId, float]:
    """How much of each client's model is in a blend: a node is the mean of its clients."""
    shares: dict[NodeId, float] = defaultdict(float)
    for node, weight in blend:
        below = TREE.clients_of(node)
        for client in below:
            shares[client] += weight * FED.size(client) / sum(map(FED.size, below))
    return shares


def loss_on(client: NodeId, model: Vector, rows: np.ndarray) -> float:
    points = torch.from_numpy(FED.data.train.x[rows]).double()
    return float((points - model).square().sum(dim=1).mean())


@pytest.mark.parametrize("selfish", [frozenset(), frozenset(TREE.parent) - {ROOT}], ids=["", "own"])
def test_claims_are_about_means_of_clients(selfish: frozenset[NodeId]) -> None:
    proposals = all_proposals(selfish)
    assert {proposal.operation for proposal in proposals} == {"graft", "merge", "split"}
    claims = {claim for proposal in proposals for claim in proposal.claims}
    assert any(len(claim.new) > 3 for claim in claims), "or means of several are not tested"
    answers = asked(proposals).claims
    assert set(answers) == claims
    for claim, answer in answers.items():
        held, owned = FED.judged_on(claim.client), FED.owned[claim.client]
        some = min(ENOUGH - len(held), len(owned))
        more = owned[np.linspace(0, len(owned) - 1, some).round().astype(int)]
        rows = np.concatenate([held, more]) if claim.unseen else held
        for blend, loss in ((claim.new, answer.new), (claim.old, answer.old)):
            expected = FED.blind_loss
            if blend != CONSTANT:
                expected = loss_on(claim.client, of_clients(written_out(blend)), rows)
            assert loss == pytest.approx(expected, rel=1e-4)
        assert answer.samples == len(rows)


def test_what_is_tried_on_training_samples_was_made_without_the_client() -> None:
    for selfish in (frozenset[NodeId](), frozenset(TREE.parent) - {ROOT}):
        for proposal in all_proposals(selfish):
            for claim in proposal.claims:
                for blend in filter(None, (claim.new, claim.old)):
                    share = written_out(blend).get(claim.client, 0.0) / sum(w for _, w in blend)
                    assert share == pytest.approx(0, abs=1e-12) or not claim.unseen


def test_nothing_is_asked_twice_and_all_in_one_exchange() -> None:
    spy, proposals = spy_of(FED), all_proposals()
    calls: list[int] = []
    evaluate = spy.evaluate

    def counted(exams: Sequence[Exam]) -> list[Score]:
        calls.append(len(exams))
        return evaluate(exams)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spy, "evaluate", counted)
        asked([*proposals, *proposals])
    assert len(calls) == 1
    parts = [
        (exam.samples.tobytes(), as_vector(exam.params).numpy().tobytes()) for exam in spy.exams
    ]
    assert len(parts) == calls[0]
    # A mean that was made twice may be there twice, as a path's model and as a claim's.
    assert len(parts) - len(set(parts)) <= len(TREE.parent)


def test_paths_and_mixtures_are_those_of_the_models() -> None:
    answers = asked([])
    for client in CLIENTS:
        rows = FED.judged_on(client)
        assert list(answers.paths[client]) == list(TREE.path(client))
        for node, loss in answers.paths[client].items():
            model = STATE.models[node].double()
            assert loss == pytest.approx(loss_on(client, model, rows), rel=1e-5)
        above = STATE.models[ROOT].double()
        for node in TREE.path(client)[1:]:
            own = STATE.models[node].double()
            expected = [
                loss_on(client, (1 - a) * above + a * own, rows)
                for a in (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
            ]
            np.testing.assert_allclose(answers.mixtures[client, node], expected, rtol=1e-5)
            above = (1 - WEIGHTS[node]) * above + WEIGHTS[node] * own


def test_only_those_are_asked_who_contributed() -> None:
    spy = spy_of(FED)
    some = (CLIENTS[1], CLIENTS[6])
    answers = asked([], some=some)
    assert set(answers.paths) == {client for client, _ in answers.mixtures} == set(some)
    theirs = {FED.judged_on(client).tobytes() for client in some}
    assert {exam.samples.tobytes() for exam in spy.exams} == theirs


def test_without_held_out_samples_training_samples_count_once() -> None:
    clients = tuple(
        replace(c, train=np.concatenate([c.holdout, c.train]), holdout=c.holdout[:0])
        for c in FED.data.clients
    )
    fed = replace(FED, data=replace(FED.data, clients=clients))
    spy = spy_of(fed)
    client = CLIENTS[0]
    claim = Claim(client, ((B, 1.0),), ((A, 3.0), (LOW, -1.0)))
    answers = asked([Proposal("graft", client, (B,), (claim,))], fed)
    assert answers.claims[claim].samples == fed.size(client)
    assert all(len(exam.samples) for exam in spy.exams)


def test_a_claim_without_an_answer_is_left_out() -> None:
    claim = Claim(CLIENTS[5], ((A, 1.0),), ((B, 1.0),))
    proposal = Proposal("graft", CLIENTS[5], (A,), (claim,))
    nan = replace(UPDATES[CLIENTS[0]].outcome, params=UPDATES[CLIENTS[0]].model * float("nan"))
    updates = {**UPDATES, CLIENTS[0]: replace(UPDATES[CLIENTS[0]], outcome=nan)}
    answers = ask(STATE, [proposal], {}, made_by(TREE, updates, FED), CLIENTS, FED)
    assert answers.claims == {}


def test_who_uses_its_own_model_is_not_asked_about_mixtures() -> None:
    method = Sofa(SofaConfig(start="own", serve="own"), SharingConfig(ratio=0))
    spy = spy_of(FED)
    state, _ = method.init(FED.at(0))
    assert len(spy.exams) == sum(len(state.tree.path(client)) for client in CLIENTS)
    assert set(state.mixing.weights.values()) == {1.0}
