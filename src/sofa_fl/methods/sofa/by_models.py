"""SOFA-FL by models alone, for models with noise and clients that report no losses.

Noise makes every model long, but two models have in common only what was learned. So positions
follow from the inner products of updates, without those of an update with itself, which are mostly
noise. The clients of a cluster start from one model, so updates add up over rounds, and noise
cancels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import gammaln, stdtr

from sofa_fl.federation import Federation
from sofa_fl.methods.positions import coordinates
from sofa_fl.methods.sofa.averages import Models, Updates
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.methods.sofa.mixing import Mixing
from sofa_fl.methods.sofa.questions import Answers
from sofa_fl.methods.sofa.state import SofaState
from sofa_fl.models.flat import Vector, as_vector, inner_products
from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.dmac import dmac
from sofa_fl.topology.edits import Edit, apply_all, splits_of
from sofa_fl.topology.shape import Proposal
from sofa_fl.topology.space import Floats, Space, unit_rows
from sofa_fl.topology.tree import NodeId, Tree, flat_tree

FEWEST = 4  # clients of a cluster that may be divided: two groups of two
FALSE_ALARM = 0.001  # with which parts are seen that are none, at a look


class SofaByModels(Sofa):
    """Clusters are only split, and clients use the models of their clusters."""

    def learned(self, before: Models, updates: Updates, fed: Federation) -> dict[NodeId, Vector]:
        """The sum of every client's updates, with those of this round."""
        after, n = dict(before), fed.engine.num_trainable
        for client, update in updates.items():
            moved = update.model[:n] - as_vector(update.start)[:n]
            after[client] = after[client] + moved if client in after else moved
        return after

    def positions(self, updates: Updates, learned: Models, fed: Federation) -> Space:
        return place(learned, tuple(updates), fed)

    def grow(self, space: Space, learned: Models, fed: Federation) -> Tree:
        tree = flat_tree(space.clients, fed.first_id)
        return apply_all(tree, find_all_splits(tree, learned, self.config.dmac, fed))

    def ask(self, *_: object, **__: object) -> tuple[list[Proposal], Answers]:
        """Clients report no losses."""
        return [], Answers({}, {}, {}, {})

    def weighed(self, state: SofaState, answers: Answers, fed: Federation) -> SofaState:
        """Weights of 1 for clusters and 0 for clients, which use their parents' models.

        A cluster's model has less noise than any of its clients'.
        """
        weights = {n: 0.0 if n in state.tree.members else 1.0 for n in state.tree.parent}
        return replace(state.measured({}, fed.blind_loss), mixing=Mixing(weights))

    def edits(
        self,
        state: SofaState,
        space: Space,
        proposals: Sequence[Proposal],
        answers: Answers,
        fed: Federation,
    ) -> list[Edit]:
        if "split" not in self.config.shape.operations:
            return []
        return find_all_splits(state.tree, state.learned, self.config.dmac, fed)


def place(learned: Models, clients: Sequence[NodeId], fed: Federation) -> Space:
    """Positions: the directions in which the sums of updates differ from their mean."""
    products = inner_products([learned[client] for client in clients])
    weights = np.array([fed.size(client) for client in clients], dtype=np.float64)
    positions = unit_rows(coordinates(denoised(products)))
    return Space(tuple(clients), positions, weights, linkage="average")


def denoised(products: Floats) -> Floats:
    """Inner products around the mean; on the diagonal, that with the most similar other vector."""
    if len(products) < 2:
        return np.zeros_like(products)
    filled = products.copy()
    np.fill_diagonal(filled, -np.inf)
    np.fill_diagonal(filled, filled.max(axis=1))
    centred = np.eye(len(filled)) - 1 / len(filled)
    return np.asarray(centred @ filled @ centred)


def find_all_splits(tree: Tree, learned: Models, config: DmacConfig, fed: Federation) -> list[Edit]:
    """Split clusters until DMAC finds no groups in any, in rounds 0, 1, 2, 4, 8 and so on.

    Each test of evidence that has hardly changed is one more chance of an error, so there is a test
    only when there is twice as much evidence as at the last one.
    """
    edits: list[Edit] = []
    while not fed.round & (fed.round - 1) and (new := splits_by_models(tree, learned, config, fed)):
        tree, edits = apply_all(tree, new), [*edits, *new]
    return edits


def splits_by_models(
    tree: Tree, learned: Models, config: DmacConfig, fed: Federation
) -> list[Edit]:
    """Split clusters of clients in which DMAC finds groups that are not due to chance."""
    splits: dict[NodeId, list[tuple[NodeId, ...]]] = {}
    for cluster in tree.clusters:
        children = tree.children[cluster]
        if len(children) < FEWEST or not all(child in learned for child in children):
            continue
        groups = dmac(place(learned, children, fed), config, tree.next_id)
        tops = [part for part in groups.children[groups.root] if part not in groups.members]
        parts = [tuple(groups.clients_of(part)) for part in tops]
        if not parts or not agree_more(learned, children, parts):
            continue
        if rest := tuple(c for c in children if not any(c in part for part in parts)):
            parts.append(rest)
        splits[cluster] = parts
    return splits_of(tree, splits)


def agree_more(
    learned: Models, clients: Sequence[NodeId], parts: Sequence[Sequence[NodeId]]
) -> bool:
    """Whether clients of one part agree more than others, and not by chance.

    By Student's t of the inner products of all pairs, corrected for the number of ways to pick such
    parts (Bonferroni). Pairs that are in no part do not count.
    """
    products = inner_products([learned[client] for client in clients])
    part_of = {client: k for k, part in enumerate(parts) for client in part}
    which = np.array([part_of.get(client, -1) for client in clients])
    one, other = np.triu_indices(len(clients), 1)
    is_same = (which[one] == which[other]) & (which[one] >= 0)
    same, differ = products[one, other][is_same], products[one, other][which[one] != which[other]]
    degrees = len(same) + len(differ) - 2
    if degrees < 1 or not len(differ):
        return False
    scatter = len(same) * same.var() + len(differ) * differ.var()
    error = (scatter / degrees * (1 / len(same) + 1 / len(differ))) ** 0.5
    t = (same.mean() - differ.mean()) / max(error, 1e-300)
    sizes = [len(part) for part in parts]
    counts = [*sizes, len(clients) - sum(sizes), *Counter(sizes).values()]
    ways = float(gammaln(len(clients) + 1) - sum(gammaln(count + 1) for count in counts))
    return bool(np.log(max(stdtr(degrees, -t), 1e-300)) + ways < np.log(FALSE_ALARM))
