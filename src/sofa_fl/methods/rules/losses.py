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
from collections.abc import Collection, Mapping, Sequence
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
from sofa_fl.topology.clustering.evidence import Question, ToldApart, moved_between
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree, value_at_level
from sofa_fl.topology.tree.edits import Edit

Losses = Mapping[NodeId, Mapping[NodeId, float]]  # held-out loss, by client and node of its path
FEW = 100  # held-out samples
LARGEST = 1e30  # the loss of what could not be scored


def compare_losses(
    tree: Tree,
    models: Models,
    fed: Federation,
    known: Losses | None = None,
    clients: Collection[NodeId] | None = None,
) -> dict[NodeId, Mapping[NodeId, float]]:
    """Measure the held-out loss of every model on each client's path, except what is `known`.

    Only `clients` (by default all) can be asked. The others keep what is known of them; for a
    model that a client has never measured, the loss of the next model above stands in.
    """
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
    scores = fed.held_out([(client, models[node]) for client, node in pairs])
    new = {pair: score.loss for pair, score in zip(pairs, scores)}
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
        on_trial, moved, told_apart: As `Evidence` has them.
        known: What was asked before, by question and whether training samples counted.
    """

    tree: Tree
    space: Space
    models: Models
    fed: Federation
    on_trial: Collection[NodeId] = ()
    moved: Collection[NodeId] = ()
    told_apart: ToldApart = ()
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
        new = [q for q in dict.fromkeys(questions) if (q, more) not in self.known]
        if new:
            self.known.update(zip(((q, more) for q in new), self._asked(new, more).tolist()))
        return np.array([self.known[q, more] for q in questions], dtype=np.float64)

    def _asked(self, questions: Sequence[Question], more: bool) -> Floats:
        means: dict[tuple[NodeId, ...], Vector] = {}
        for _, nodes in questions:
            if nodes not in means:
                means[nodes] = (
                    self.models[nodes[0]]
                    if len(nodes) == 1
                    else mean_of(nodes, self.tree, self.models, self.fed)
                )
        asks = [(client, means[nodes]) for client, nodes in questions]
        few = [ask for ask in asks if more and self._has_few(ask[0])]
        rows = {client: self._training_rows(client) for client in dict.fromkeys(c for c, _ in few)}
        samples = [self.fed.judged_on(client) for client, _ in asks]
        samples += [rows[client] for client, _ in few]
        scores = self.fed.held_out(asks + few, samples=samples)  # all in one exchange
        answers = np.array([score.loss for score in scores])
        answers = np.where(np.isfinite(answers), answers, LARGEST)
        losses, trained = answers[: len(asks)], iter(answers[len(asks) :])
        for at, (client, _) in enumerate(asks):
            if client in rows:
                held, extra = self.samples(client), len(rows[client])
                losses[at] = (held * losses[at] + extra * next(trained)) / (held + extra)
        return losses

    def _has_few(self, client: NodeId) -> bool:
        """Whether a client holds out too few samples to judge the model of a cluster alone.

        Then those that it trains on count, too: a cluster's model depends little on one client's
        samples, and where it does, that favours staying.
        """
        return (
            self.samples(client) < FEW and self.fed.judged_on(client) is not self.fed.owned[client]
        )

    def _training_rows(self, client: NodeId) -> Samples:
        """As many of a client's training samples as it holds out too few."""
        rows = self.fed.owned[client]
        return np.take(rows, _evenly(len(rows), min(FEW - self.samples(client), len(rows))))

    def after(self, tree: Tree, edits: Sequence[Edit]) -> Self:
        models = inherit(self.tree, self.models, edits, self.fed)
        same = {  # a node that stays keeps its model, but means are of what is below nodes
            (question, more): loss
            for (question, more), loss in self.known.items()
            if len(question[1]) == 1 and question[1][0] in tree.parent
        }
        moved = moved_between(self.tree, tree, self.moved)
        return replace(self, tree=tree, models=models, moved=moved, known=same)


@lru_cache(maxsize=256)  # many clients have as many samples
def _evenly(num: int, some: int) -> Samples:
    """As many positions below `num`, from the first to the last."""
    return np.linspace(0, num - 1, some).round().astype(np.int64)
