"""What models lose on held-out samples: along paths, in the objective L, and as SHAPE's evidence.

    L = Σ_j w_j Σ_{u ∈ C_j} w_u F_u(x_u)                    (1) hierarchical model loss
      + Σ_j α_j / |C_j| Σ_{u1, u2 ∈ C_j} D(x_u1, x_u2)      (2) similarity among siblings
      + Σ_j β_j Σ_{u ∈ C_j} D(x_u, x_j)                     (3) consistency with the parent

j runs over the clusters Q, and C_j are the children of j, clients or clusters. Where the paper is
silent, chosen: D is the squared euclidean distance of the trainable weights; a pair of siblings
counts once; w_u is u's share of the samples below j, and w_j that of j's samples among all
samples; α_j and β_j are set by the level of j; F_u of a cluster is the mean held-out loss of its
model over the clients below it, weighted by samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Self

import numpy as np
import torch

from sofa_fl.data.federated_data import Samples
from sofa_fl.federation import Federation
from sofa_fl.methods.rules.clusters import Models, inherit, mean_of
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.models.flat import Vector, distances, mean
from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.evidence import Question, ToldApart, moved_between
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree, value_at_level
from sofa_fl.topology.tree.edits import Edit

Losses = Mapping[NodeId, Mapping[NodeId, float]]  # held-out loss, by client and node of its path
Pairs = Sequence[tuple[NodeId, NodeId]]  # of a client, and a node whose model it is asked about
ENOUGH = 100  # held-out samples to judge the model of a cluster by
LARGEST = 1e30  # the loss of what could not be scored


def compare_losses(
    tree: Tree,
    models: Models,
    fed: Federation,
    known: Losses | None = None,
    clients: Collection[NodeId] | None = None,
    ask: Callable[[Pairs], Sequence[float]] | None = None,
) -> dict[NodeId, Mapping[NodeId, float]]:
    """Measure the held-out loss of every model on each client's path, except what is `known`.

    Only `clients` (by default all) can be asked. The others keep what is known of them; for a
    model that a client has never measured, the loss of the next model above stands in.
    `ask` is how they are asked; by default, about all pairs at once.
    """

    def ask_all(pairs: Pairs) -> list[float]:
        return [score.loss for score in fed.held_out([(c, models[node]) for c, node in pairs])]

    before: Losses = known or {}
    losses = {client: before.get(client, {}) for client in tree.clients}
    above: dict[NodeId | None, tuple[NodeId, ...]] = {c: tree.path(c) for c in tree.clusters}
    # Of most clients nothing is new: what is known of them stays as it is.
    paths = {
        client: path
        for client, measured in losses.items()
        if (path := (*above.get(tree.parent[client], ()), client)) != tuple(measured)
    }
    asked = paths if clients is None else [client for client in paths if client in clients]
    pairs = [(c, node) for c in asked for node in paths[c] if node not in losses[c]]
    new = dict(zip(pairs, (ask or ask_all)(pairs)))
    for client, path in paths.items():
        so_far = losses[client]
        measured = {n: new.get((client, n), so_far.get(n, math.nan)) for n in path}
        losses[client] = _complete(measured, fed)
    return losses


def _complete(losses: Mapping[NodeId, float], fed: Federation) -> dict[NodeId, float]:
    """The losses along a path: where there is none, that of the next node above."""
    finite = {node: loss for node, loss in losses.items() if math.isfinite(loss)}
    last = max(finite.values(), default=fed.blind_loss)
    return {node: (last := finite.get(node, last)) for node in losses}


def objective_value(
    tree: Tree, models: Models, losses: Losses, config: SofaConfig, fed: Federation
) -> dict[str, float]:
    """The three terms of L, by the held-out losses of every client's path; L is their sum."""
    samples = {client: fed.size(client) for client in tree.clients}
    weighted = {client: samples[client] * losses[client][client] for client in tree.clients}
    for cluster in reversed(tree.clusters):  # children first
        below = tree.clients_of(cluster)
        samples[cluster] = sum(samples[client] for client in below)
        weighted[cluster] = sum(samples[client] * losses[client][cluster] for client in below)
    everyone = samples[tree.root]
    loss = sum(weighted[node] for node in samples if node != tree.root) / everyone
    siblings = parent = 0.0
    for cluster in tree.clusters:
        children = [models[child] for child in tree.children[cluster]]
        alpha = value_at_level(config.pull_siblings, tree.level[cluster])
        beta = value_at_level(config.pull_parent, tree.level[cluster])
        if alpha and len(children) > 1:
            # The squared distances of all pairs are |C| times those to the mean.
            siblings += alpha * _scatter(children, mean(children, [1.0] * len(children)), fed)
        if beta:
            parent += beta * _scatter(children, models[cluster], fed)
    return {"loss": loss, "siblings": siblings, "parent": parent}


def _scatter(models: list[Vector], centre: Vector, fed: Federation) -> float:
    """Σ ‖x − centre‖² over the trainable weights."""
    n = fed.engine.num_trainable
    norms = distances([model[:n] for model in models], [centre[:n]] * len(models))
    return float(torch.stack(norms).double().square().sum()) if norms else 0.0


@dataclass(frozen=True, slots=True)
class FederationEvidence:
    """The models of a tree's nodes, and the clients that answered in this round (`space`).

    Attributes:
        moved, told_apart, dmac: As `Evidence` has them.
        known: What was asked before, by question and whether training samples counted.
    """

    tree: Tree
    space: Space
    models: Models
    fed: Federation
    moved: Collection[NodeId] = ()
    told_apart: ToldApart = ()
    dmac: DmacConfig = field(default_factory=DmacConfig)
    known: dict[tuple[Question, bool], float] = field(default_factory=dict)

    @property
    def round(self) -> int:
        return self.fed.round

    @property
    def blind_loss(self) -> float:
        return self.fed.blind_loss

    def samples(self, client: NodeId) -> int:
        return len(self.fed.judged_on(client))

    def losses(self, questions: Sequence[Question], *, more: bool = False) -> Floats:
        self.ask((question, more) for question in questions)
        losses = np.array([self.known[q, more] for q in questions], dtype=np.float64)
        return np.where(np.isfinite(losses), losses, LARGEST)

    def path_losses(self, pairs: Pairs, foreseen: Sequence[Question] = ()) -> list[float]:
        """What nodes' models lose on held-out samples; NaN where nobody answered.

        What is `foreseen` to be asked with `more` samples is asked in the same exchange.
        """
        asked = [((client, (node,)), False) for client, node in pairs]
        self.ask([*asked, *((question, True) for question in foreseen)])
        return [self.known[question] for question in asked]

    def ask(self, wanted: Iterable[tuple[Question, bool]]) -> None:
        """Ask for what is not known, all in one exchange; True is with more samples.

        On held-out samples a question is asked once, whether or not there are more.
        """
        known = self.known
        new = [question for question in dict.fromkeys(wanted) if question not in known]
        held = [q for q in dict.fromkeys(q for q, _ in new) if (q, False) not in known]
        few = [q for q, more in new if more and self._has_few(q[0])]
        if held or few:
            rows = {c: self._training_rows(c) for c in dict.fromkeys(client for client, _ in few)}
            samples = [self.fed.judged_on(c) for c, _ in held] + [rows[c] for c, _ in few]
            scores = self.fed.held_out(self._asks([*held, *few]), samples=samples)
            answers = [score.loss for score in scores]
            known.update(((q, False), loss) for q, loss in zip(held, answers))
            for (client, nodes), loss in zip(few, answers[len(held) :]):
                question, extra = (client, nodes), len(rows[client])
                parts = (known[question, False], self.samples(client)), (loss, extra)
                known[question, True] = _joined(*parts)
        known.update(((q, True), known[q, False]) for q, more in new if (q, more) not in known)

    def _asks(self, questions: Sequence[Question]) -> list[tuple[NodeId, Vector]]:
        """The clients that are asked, each with the mean model that it is asked about."""
        means: dict[tuple[NodeId, ...], Vector] = {}
        for _, nodes in questions:
            if nodes not in means:
                means[nodes] = (
                    self.models[nodes[0]]
                    if len(nodes) == 1
                    else mean_of(nodes, self.tree, self.models, self.fed)
                )
        return [(client, means[nodes]) for client, nodes in questions]

    def _has_few(self, client: NodeId) -> bool:
        """Whether a client holds out too few samples to judge the model of a cluster alone.

        Then those that it trains on count, too: a cluster's model depends little on one client's
        samples, and where it does, that favours staying.
        """
        return (
            self.samples(client) < ENOUGH
            and self.fed.judged_on(client) is not self.fed.owned[client]
        )

    def _training_rows(self, client: NodeId) -> Samples:
        """As many of a client's training samples as it holds out too few."""
        rows = self.fed.owned[client]
        return np.take(rows, _evenly(len(rows), min(ENOUGH - self.samples(client), len(rows))))

    def after(self, tree: Tree, edits: Sequence[Edit]) -> Self:
        models = inherit(self.tree, self.models, edits, self.fed)
        same = {  # a node that stays keeps its model, but means are of what is below nodes
            (question, more): loss
            for (question, more), loss in self.known.items()
            if len(question[1]) == 1 and question[1][0] in tree.parent
        }
        moved = moved_between(self.tree, tree, self.moved)
        return replace(self, tree=tree, models=models, moved=moved, known=same)


def _joined(*parts: tuple[float, int]) -> float:
    """The mean of losses by samples; one that could not be measured counts as very large."""
    counted = [(loss if math.isfinite(loss) else LARGEST, num) for loss, num in parts]
    return sum(num * loss for loss, num in counted) / sum(num for _, num in counted)


@lru_cache(maxsize=256)  # many clients have as many samples
def _evenly(num: int, some: int) -> Samples:
    """As many positions below `num`, from the first to the last."""
    return np.linspace(0, num - 1, some).round().astype(np.int64)
