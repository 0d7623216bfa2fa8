"""How far every node goes its own way: the mixing weights a, chosen by held-out loss.

What a node stands for is its own model x, mixed with what its parent stands for:

    m_root = x_root,    m_u = (1 − a_u) m_j + a_u x_u    for a child u of j

With a_u = 0 everywhere that is one model for all, with a_u = 1 at a client it is training alone.
A mixture is judged as a mixture: its own held-out loss decides, not those of its ingredients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.parent_trial import Trial, counts, is_better_alone, trials_of
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Mix, Model, as_vector
from sofa_fl.topology.geometry.space import Floats
from sofa_fl.topology.tree import NodeId, Tree

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)  # what a may be
NEGLIGIBLE = 0.01  # of what is known, blind loss − loss


@dataclass(frozen=True, slots=True)
class Mixing:
    """The mixing weights of a tree.

    Attributes:
        weights: a of every node but the root.
        starts: The same for where a client starts: 0 is what its parent stands for.
        parent_losses: Held-out loss of what its parent stands for, by client, steadied; and the
            parent. Of the round before, it tells how fast the parent still learns.
        trials: The clients that try their parent, of which every other goes on from its own model.
        alone: The clients that learn more alone, by a trial, until their parent's model is the best
            mixture for them.
    """

    weights: Mapping[NodeId, float] = field(default_factory=dict)
    starts: Mapping[NodeId, float] = field(default_factory=dict)
    parent_losses: Mapping[NodeId, tuple[NodeId, float]] = field(default_factory=dict)
    trials: Mapping[NodeId, Trial] = field(default_factory=dict)
    alone: tuple[NodeId, ...] = ()

    @property
    def on_trial(self) -> list[NodeId]:
        """The clients that go on from their own models for a trial."""
        return [client for client, trial in self.trials.items() if trial.goes_on]


def own_models(tree: Tree, *_: object) -> Mixing:
    """Every node stands for its own model alone, and goes on from it: the paper's rule."""
    return Mixing(dict.fromkeys(tree.parent, 1.0), dict.fromkeys(tree.clients, 1.0))


def weigh_by_losses(
    tree: Tree,
    models: Mapping[NodeId, Vector],
    losses: Mapping[NodeId, Mapping[NodeId, float]],
    before: Mixing,
    asked: Collection[NodeId],
    config: SofaConfig,
    fed: Federation,
) -> Mixing:
    """Choose the weights that lose least, from the root down; those who are not asked keep theirs.

    `losses` are those of the nodes' own models, by client and node of its path.
    A cluster goes by all its clients together. A client has few held-out samples, so its losses are
    steadied by those of its siblings: as if it had `config.steadiness` more samples, like theirs.
    """
    weights = {node: before.weights.get(node, 1.0) for node in tree.parent if node != tree.root}
    starts = {client: before.starts.get(client, 0.0) for client in tree.clients}
    parent_losses = {c: known for c, known in before.parent_losses.items() if c in tree.members}
    trials = {c: t for c, t in before.trials.items() if c in tree.members and c not in asked}
    alone = {c for c in before.alone if c in tree.members and c not in asked}
    stands_for: dict[NodeId, Vector] = {tree.root: models[tree.root]}
    parents = {c: losses[c][tree.root] for c in tree.clients if c in asked}  # what m_j loses
    for clusters in levels(tree):  # a whole level is asked at once: that is one exchange
        above = {cluster: stands_for[parent] for cluster, parent in clusters.items()}
        judges = [(c, k) for k in clusters for c in tree.clients_of(k) if c in asked]
        table = mixture_losses(judges, above, models, parents, losses, fed)
        for cluster in clusters:
            heard = [client for client, judged in table if judged == cluster]
            if heard:
                rows = np.array([table[client, cluster] for client in heard])
                best = int(np.average(rows, axis=0, weights=counts(heard, fed)).argmin())
                weights[cluster] = WEIGHTS[best]
                parents |= dict(zip(heard, rows[:, best].tolist()))
            m = mixture(above[cluster], models[cluster], weights[cluster])
            stands_for[cluster] = as_vector(m)
    above = {
        child: stands_for[parent]
        for parent in tree.clusters
        for child in tree.children[parent]
        if child in asked and child in tree.members
    }
    table = mixture_losses([(c, c) for c in above], above, models, parents, losses, fed)
    for parent in tree.clusters:
        siblings = {c: table[c, c] for c in tree.children[parent] if c in asked and (c, c) in table}
        if siblings:
            is_group = tree.members.issuperset(tree.children[parent])
            chosen = weigh_siblings(siblings, parent, before, config, fed, hope=is_group)
            weights |= chosen.weights
            starts |= chosen.starts
            parent_losses |= chosen.parent_losses
            trials |= chosen.trials
            alone.update(chosen.alone)
    return Mixing(weights, starts, parent_losses, trials, tuple(sorted(alone)))


def weigh_siblings(
    losses: Mapping[NodeId, Floats],
    parent: NodeId,
    before: Mixing,
    config: SofaConfig,
    fed: Federation,
    *,
    hope: bool,
) -> Mixing:
    """Choose the weights of clients with the same parent.

    `losses` are those of their mixtures, from the parent's to their own.
    Those whose own way is better try a parent that is new to all, and again in rounds that are
    powers of two, but not right after a trial, nor where clusters are below the parent, too: it is
    of no group, and there is no `hope`. Where clients may not be asked in the next round, there is
    no trial: it would compare models of different rounds.
    """
    held = counts(list(losses), fed)
    rows = dict(zip(losses, steadied(np.array(list(losses.values())), held, config.steadiness)))
    chances = config.chance / np.sqrt(steadied_counts(held, config.steadiness))
    learned = {
        client: what_parent_learned(client, parent, float(row[0]), before, hope=hope)
        for client, row in rows.items()
    }
    tried = {c: t for c in losses if (t := before.trials.get(c)) and t.parent == parent}
    is_alone = is_better_alone(tried, losses, fed)
    alone = {*before.alone, *(tried if is_alone else ())}
    alone = {client for client, row in rows.items() if client in alone and row.argmin()}
    starts = {
        client: start_weight(row, learned[client], chance, fed.blind_loss, alone=client in alone)
        for (client, row), chance in zip(rows.items(), chances.tolist())
    }
    undecided = [c for c, row in rows.items() if row.argmin() and not starts[c]]
    is_new = not any(before.parent_losses.get(c, (None,))[0] == parent for c in losses)
    is_possible = config.trials and hope and not tried and fed.participation == 1
    is_due = is_possible and (is_new or is_power_of_two(fed.round))
    trials = trials_of(undecided if is_due else (), parent, losses)
    return Mixing(
        weights={client: WEIGHTS[int(row.argmin())] for client, row in rows.items()},
        starts=starts | {client: float(trial.goes_on) for client, trial in trials.items()},
        parent_losses={client: (parent, float(row[0])) for client, row in rows.items()},
        trials=trials,
        alone=tuple(alone),
    )


def what_parent_learned(
    client: NodeId, parent: NodeId, loss: float, before: Mixing, *, hope: bool
) -> float:
    """By how much the loss of what its parent stands for fell for a client since the last round.

    A client that is new to its parent does not know: infinity, unless it has left a parent before.
    A parent with clusters below it besides is of no group: there is no `hope`.
    """
    was = before.parent_losses.get(client)
    if was is not None and was[0] == parent:
        return was[1] - loss
    return np.inf if hope and not before.starts.get(client) else 0.0


def start_weight(
    losses: Floats, learned: float, chance: float, blind_loss: float, *, alone: bool
) -> float:
    """Where a client starts: 0 is its parent, 1 its own model, and between them is a mixture.

    `losses` are those of the mixtures. A client leaves its parent if it learns more `alone`, if it
    gains enough (`is_left`), or if the parent is worse for it than a blind guess. It then goes on
    from what it serves, or from its own model if that is as good but for a trifle: a mixture undoes
    what it learned.
    """
    best = float(losses.min())
    is_misled = best < blind_loss <= losses[0]
    if not (alone or is_misled or is_left(losses, learned, chance, blind_loss)):
        return 0.0
    is_trifle = losses[-1] - best < NEGLIGIBLE * (blind_loss - best)
    return 1.0 if is_trifle else WEIGHTS[int(losses.argmin())]


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def after_moves(mixing: Mixing, before: Tree, after: Tree) -> Mixing:
    """The weights after a change of the tree: a client that moved starts from its new parent."""
    moved = {c for c in after.clients if after.parent[c] != before.parent.get(c)}
    return Mixing(
        {node: a for node, a in mixing.weights.items() if node in after.parent},
        {c: a for c, a in mixing.starts.items() if c in after.members and c not in moved},
        {c: loss for c, loss in mixing.parent_losses.items() if c in after.members},
        {c: trial for c, trial in mixing.trials.items() if c in after.members and c not in moved},
        tuple(c for c in mixing.alone if c in after.members and c not in moved),
    )


def is_left(losses: Floats, learned: float, chance: float, blind_loss: float) -> bool:
    """Whether a client leaves its parent behind.

    `losses` are those of the mixtures, the parent's first. What the client gains over its parent
    must be more than the parent has `learned` in the last round, or the client had better learn
    with its siblings; and more than the fraction of what is known, blind loss − best loss, that few
    held-out samples give by `chance`.
    """
    best = float(losses.min())
    return bool(losses[0] - best > max(learned, chance * (blind_loss - best), 0.0))


def mixture(parent: Model, own: Vector, a: float) -> Model:
    """(1 − a) · parent + a · own."""
    if a in (0.0, 1.0):
        return own if a else parent
    return Mix((as_vector(parent), own), (1 - a, a))


def mixture_losses(
    judges: Sequence[tuple[NodeId, NodeId]],
    above: Mapping[NodeId, Vector],
    models: Mapping[NodeId, Vector],
    parent_losses: Mapping[NodeId, float],
    losses: Mapping[NodeId, Mapping[NodeId, float]],
    fed: Federation,
) -> dict[tuple[NodeId, NodeId], Floats]:
    """Held-out losses of the mixtures of nodes' models and what is `above` each of them.

    By judge: a client, and a node of its path. What the two lose unmixed is known. Clients that
    could not score the mixtures are left out.
    """
    between = WEIGHTS[1:-1]
    mixed = {node: [mixture(above[node], models[node], a) for a in between] for _, node in judges}
    # The client has what they are made of.
    scores = fed.held_out([(c, m) for c, node in judges for m in mixed[node]], sent=True)
    mixed_losses = np.array([score.loss for score in scores]).reshape(len(judges), len(between))
    table = {
        (client, node): np.array([parent_losses[client], *row, losses[client][node]])
        for (client, node), row in zip(judges, mixed_losses)
    }
    return {judge: row for judge, row in table.items() if np.isfinite(row).all()}


def levels(tree: Tree) -> list[dict[NodeId, NodeId]]:
    """The clusters below the root by depth, each with its parent."""
    levels: list[dict[NodeId, NodeId]] = []
    parents = [tree.root]
    while parents:
        levels.append({k: p for p in parents for k in tree.children[p] if k not in tree.members})
        parents = list(levels[-1])
    return levels[:-1]


def steadied(losses: Floats, counts: Floats, samples: float) -> Floats:
    """Shrink each client's losses towards the mean of all, as if by `samples` more.

    A client holds out few samples, and a model that is better by chance must not win. One that
    is better by far, as for a client among others unlike it, still does.
    """
    mean = np.average(losses, axis=0, weights=counts)
    return np.asarray((counts[:, None] * losses + samples * mean) / (counts[:, None] + samples))


def steadied_counts(counts: Floats, samples: float) -> Floats:
    """How many samples each client's steadied losses are worth: 1 / their variance.

    Per sample the variance is taken as 1, for a client's own and its siblings' alike.
    """
    variances = (counts + samples**2 / counts.sum()) / (counts + samples) ** 2
    return np.asarray(1 / variances)
