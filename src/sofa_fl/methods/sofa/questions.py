"""The second exchange of a round: whatever anybody wants to know is asked together.

What models lose for clients is asked on their held-out samples; of models that were made without a
client, also on some of those that it trains on, since few held-out samples say little.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from sofa_fl.data.federated_data import Samples
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.mixing import mixtures
from sofa_fl.methods.sofa.state import SofaState
from sofa_fl.models.flat import Mix, Model, Vector, as_vector, identity, mean
from sofa_fl.topology.shape import CONSTANT, Answer, Blend, Claim, Proposal
from sofa_fl.topology.space import Floats
from sofa_fl.topology.tree import NodeId

ENOUGH = 100  # samples to judge models by
MOST = 10.0  # constant predictions: a client's loss counts as no more in a claim
LARGEST = 1e30  # the loss of what could not be scored


class Answers(NamedTuple):
    """What clients said.

    Attributes:
        paths: The loss of every model on a client's path, by client and node.
        mixtures: The losses of mixtures (see `mixing`), by client and node.
        claims: What the models of a claim lose.
        others: What their parents' models lose for clients, as made without them.
    """

    paths: Mapping[NodeId, Mapping[NodeId, float]]
    mixtures: Mapping[tuple[NodeId, NodeId], Floats]
    claims: Mapping[Claim, Answer]
    others: Mapping[NodeId, float]


def ask(
    state: SofaState,
    proposals: Sequence[Proposal],
    others: Mapping[NodeId, Blend],
    made: Mapping[NodeId, Vector],
    asked: Collection[NodeId],
    fed: Federation,
    weighs: bool = True,
) -> Answers:
    """Ask all clients in one exchange; about mixtures only if nodes' weights are chosen.

    `made` has the mean of what the clients below each node have learned in this round; `others`,
    by client, what others made of its parent's model.
    """
    sheet = _Sheet(fed)
    tree, models = state.tree, state.models
    clients = [client for client in tree.clients if client in asked]
    paths = {c: {node: sheet.add(c, models[node]) for node in tree.path(c)} for c in clients}
    mixed = {
        judge: [sheet.add(judge[0], model) for model in choices]
        for judge, choices in mixtures(tree, models, state.mixing, asked if weighs else ()).items()
    }
    blends = _Blends(made)
    claims = dict.fromkeys(claim for proposal in proposals for claim in proposal.claims)
    claims |= {own: None for c, blend in others.items() for own in [Claim(c, blend, blend)]}
    asked_of = {
        claim: [
            [sheet.add(claim.client, blends[blend], part) for part in sheet.parts(claim)]
            for blend in (claim.new or claim.old, claim.old)
        ]
        for claim in claims
    }
    losses = sheet.losses()

    most = MOST * fed.blind_loss  # else one client could outvote all others

    def joined(entries: Sequence[int]) -> float:
        known = [(losses[k], sheet.num(k)) for k in entries]
        return float(sum(num * min(loss, most) for loss, num in known) / sum(n for _, n in known))

    answers = {
        claim: Answer(
            fed.blind_loss if claim.new == CONSTANT else joined(new),
            joined(old),
            sum(map(sheet.num, old)),
        )
        for claim, (new, old) in asked_of.items()
        if not np.isnan(losses[[*new, *old]]).any()
    }
    table = {judge: losses[entries] for judge, entries in mixed.items()}
    return Answers(
        {client: {n: float(losses[k]) for n, k in path.items()} for client, path in paths.items()},
        {judge: row for judge, row in table.items() if np.isfinite(row).all()},
        answers,
        {c: answers[own].old for c, b in others.items() if (own := Claim(c, b, b)) in answers},
    )


class _Sheet:
    """What is asked, each thing once."""

    def __init__(self, fed: Federation) -> None:
        self.fed = fed
        self._at: dict[object, int] = {}
        self._asks: list[tuple[NodeId, Model, Samples]] = []
        self._rows: dict[tuple[NodeId, str], Samples] = {}

    def add(self, client: NodeId, model: Model, part: str = "held out") -> int:
        """The number of a question."""
        key = (client, part, identity(model))
        if key not in self._at:
            self._at[key] = len(self._asks)
            self._asks.append((client, model, self._samples(client, part)))
        return self._at[key]

    def parts(self, claim: Claim) -> list[str]:
        """What a claim is asked on: held-out samples and, if these are few, others."""
        held = self._samples(claim.client, "held out")
        owned = self.fed.owned[claim.client]
        if not claim.unseen or len(held) >= ENOUGH or held is owned:
            return ["held out"]
        return ["held out", "trained on"]

    def num(self, entry: int) -> int:
        return len(self._asks[entry][2])

    def losses(self) -> Floats:
        """What everybody says; a model is sent to a client once, in however many mixes it is."""
        sent = {
            (c, id(part)): part.nbytes for c, model, _ in self._asks for part in parts_of(model)
        }
        self.fed.meter.bytes_down += sum(sent.values())
        pairs = [(client, model) for client, model, _ in self._asks]
        scores = self.fed.held_out(pairs, sent=True, samples=[rows for _, _, rows in self._asks])
        losses = np.array([score.loss for score in scores])
        return np.where(np.isinf(losses), LARGEST, losses)

    def _samples(self, client: NodeId, part: str) -> Samples:
        if (client, part) not in self._rows:
            held, owned = self.fed.judged_on(client), self.fed.owned[client]
            some = min(ENOUGH - len(held), len(owned))
            self._rows[client, part] = held if part == "held out" else _evenly(owned, some)
        return self._rows[client, part]


def parts_of(model: Model) -> tuple[Vector, ...]:
    """What a model is mixed of."""
    return model.models if isinstance(model, Mix) else (model,)


class _Blends(dict[Blend, Model]):
    """The models of blends: what several have in common is added up once."""

    def __init__(self, made: Mapping[NodeId, Vector]) -> None:
        super().__init__()
        self.made = made

    def __missing__(self, blend: Blend) -> Model:
        plus = tuple(takewhile(lambda share: share[1] > 0, blend))
        models, weights = [self.made[node] for node, _ in blend], [weight for _, weight in blend]
        model: Model = models[0] if len(blend) == 1 else Mix(tuple(models), tuple(weights))
        if 2 < len(plus) == len(blend):
            model = mean(models, weights)
        elif len(plus) > 2:
            rest, total = slice(len(plus), None), sum(weight for _, weight in plus)
            first = tuple((node, weight / total) for node, weight in plus)
            model = Mix((as_vector(self[first]), *models[rest]), (total, *weights[rest]))
        self[blend] = model
        return model


def _evenly(rows: Samples, some: int) -> Samples:
    """As many of the rows, from the first to the last."""
    return np.take(rows, np.linspace(0, len(rows) - 1, some).round().astype(np.int64))
