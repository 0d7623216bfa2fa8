"""What SOFA-FL keeps from round to round, and how it changes before a round.

Clients leave, and those whom their new data contradict move at once: SHAPE goes by what clients
have learned, so it cannot answer a change before they have trained on it. But a client notices
new data as soon as the model that it is about to train contradicts them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.clusters import Models, inherit
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.losses import Losses, compare_losses
from sofa_fl.methods.rules.mixing import Mixing, after_moves
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import Shared
from sofa_fl.topology.clustering.default_edits import descend
from sofa_fl.topology.clustering.evidence import ToldApart
from sofa_fl.topology.clustering.shape import find_leaves, find_takeover, with_prunes
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit, Graft, Join, Split, apply_all

SMALL = 2 << 30  # bytes of all models of a state


@dataclass(frozen=True, slots=True)
class SofaState:
    """Everything a round needs and returns.

    Attributes:
        tree: The clients that have answered at least once and have not left, and their clusters.
            Clients that took over a tree which everybody left need not have answered yet.
        params: One model per node of the tree.
        losses: Held-out loss of the models on each client's path.
        mixing: How much every node keeps of its own model.
        shared: What clients share.
        learned: The sum of every client's updates, where models are noised.
        told_apart: The clusters that splits have made, split by split, while their data are the
            same: SHAPE does not merge them again.
    """

    tree: Tree
    params: Models
    losses: Losses
    mixing: Mixing
    shared: Shared
    learned: Models = field(default_factory=dict)
    told_apart: ToldApart = ()


class ModelStore(dict[NodeId, Vector]):
    """The models that a round begins with; a client's model is freed when it is taken.

    So a thousand old models and a thousand new ones never exist at the same time. Where clients
    may fail to answer, and so go on with the model they have, nothing is freed; nor where all
    models are small, for the guard may set any update aside. A client whose model was freed and
    whose update is set aside has its parent's.
    """

    def __init__(self, models: Models, *, keep: bool) -> None:
        super().__init__(models)
        self.keep = keep

    def take(self, node: NodeId) -> None:
        """Let go of a model that is not needed any more."""
        if not self.keep:
            self.pop(node, None)


def are_small(models: Models) -> bool:
    """Whether models may stay in memory beside the ones that a round makes of them."""
    return sum(model.nbytes for model in models.values()) <= SMALL


def after_edits(state: SofaState, edits: Sequence[Edit], fed: Federation) -> SofaState:
    """The state on the tree after `edits`; losses that are not known are measured."""
    tree = apply_all(state.tree, edits)
    params = inherit(state.tree, state.params, edits, fed)
    losses = compare_losses(tree, params, fed, state.losses, fed.asked)
    shared = state.shared.after(edits).on(tree, fed.owned)
    mixing = after_moves(state.mixing, state.tree, tree)
    learned = {c: vector for c, vector in state.learned.items() if c in tree.members}
    told_apart = told_apart_after(state.told_apart, tree, (), fed)
    return SofaState(tree, params, losses, mixing, shared, learned, told_apart)


def told_apart_after(
    before: ToldApart, tree: Tree, edits: Sequence[Edit], fed: Federation
) -> ToldApart:
    """The clusters of a tree that splits have told apart, now or before; none with new data."""
    splits = [*before, *(edit.into for edit in edits if isinstance(edit, Split))]
    present = fed.stage.clients

    def is_same(cluster: NodeId) -> bool:
        clients = tree.clients_of(cluster) if cluster in tree.parent else ()
        return bool(clients) and not any(c in present and fed.has_new_data(c) for c in clients)

    same = (tuple(cluster for cluster in into if is_same(cluster)) for into in splits)
    return tuple(into for into in same if len(into) > 1)


def adapt_membership(
    state: SofaState, config: SofaConfig, fed: Federation
) -> tuple[SofaState, tuple[Edit, ...]]:
    """Remove clients that left; move those that their new data contradict (`sofa.alert`)."""
    state, leaves = let_leave(state, fed)
    state, moves = move_contradicted(state, config, fed)
    store = ModelStore(state.params, keep=fed.may_miss or are_small(state.params))
    return replace(state, params=store), (*leaves, *moves)


Limits = Mapping[NodeId, float]  # the loss that a client tolerates of a model


def let_leave(state: SofaState, fed: Federation) -> tuple[SofaState, list[Edit]]:
    """Remove the clients that are gone."""
    if not any(client in fed.owned for client in state.tree.clients):
        return take_over(state, fed)
    leaves = find_leaves(state.tree, fed.owned)
    return (after_edits(state, leaves, fed) if leaves else state), leaves


def take_over(state: SofaState, fed: Federation) -> tuple[SofaState, list[Edit]]:
    """Where everybody is gone, put the clients that are asked in their place.

    Each begins in the cluster that loses least for it, with that cluster's model: what was
    learned is not lost. If no client is asked, all that are present begin at the root.
    """
    tree, models = state.tree, dict(state.params)
    asked = list(fed.cohort)
    descents = search_down(tree, models, asked, fed)
    onto = {c: [tree.root, *descents.get(c, ())][-1] for c in asked or fed.clients}
    edits = find_takeover(tree, onto)
    for edit in edits:
        if isinstance(edit, Join):
            new = edit.node, edit.above
            models |= {node: models[edit.onto] for node in new if node is not None}
    return after_edits(replace(state, params=models), edits, fed), edits


def move_contradicted(
    state: SofaState, config: SofaConfig, fed: Federation
) -> tuple[SofaState, list[Edit]]:
    """Move the clients that no longer fit where they are (`sofa.alert`)."""
    tree, models = state.tree, state.params
    limits = find_contradicted(tree, models, state.losses, config.alert * fed.blind_loss, fed)
    if not limits:
        return state, []
    moves = find_moves(tree, search_down(tree, models, list(limits), fed), limits)
    losses = {c: {} if c in limits else known for c, known in state.losses.items()}
    return after_edits(replace(state, losses=losses), moves, fed), moves


def find_contradicted(
    tree: Tree, models: Models, losses: Losses, margin: float, fed: Federation
) -> dict[NodeId, float]:
    """The clients whose parent's model now loses more than before by `margin`, and their limits.

    Only clients that are asked in this round and that may have new data can notice. A client
    whose siblings are clusters goes by its own model: its parent's is a model of all, which suits
    new data as little as the old.
    """
    if math.isinf(margin):
        return {}
    clients = [c for c in tree.clients if c in fed.asked and fed.has_news(c)]
    if not clients:
        return {}
    above_clusters = {tree.parent[cluster] for cluster in tree.clusters}
    judges = {
        client: client if parent is None or parent in above_clusters else parent
        for client, parent in ((client, tree.parent[client]) for client in clients)
    }
    if is_as_measured(fed):
        judges = {client: judge for client, judge in judges.items() if judge != client}
    limits = {c: losses[c][judge] + margin for c, judge in judges.items()}
    scores = fed.held_out([(c, models[judge]) for c, judge in judges.items()], sent=True)
    return {c: limits[c] for c, score in zip(limits, scores) if score.loss > limits[c]}


def is_as_measured(fed: Federation) -> bool:
    """Whether clients' own models lose for them what they lost when they were last asked.

    They do if data never change, every client that is asked answers, and those who are not asked
    keep their models.
    """
    return len(fed.data.stages) < 2 and not fed.lossy and fed.participation < 1


def search_down(
    tree: Tree, models: Models, clients: Sequence[NodeId], fed: Federation
) -> dict[NodeId, dict[NodeId, float]]:
    """Go down from the root along the clusters that lose least for each client.

    Returns the clusters from the root down to the best one on the way, with the loss of each.
    """
    if tree.root in tree.members:
        return {client: {} for client in clients}

    def ask(pairs: Sequence[tuple[NodeId, NodeId]]) -> list[float]:
        return [s.loss for s in fed.held_out([(c, models[node]) for c, node in pairs])]

    ways = {
        c: {tree.root: loss} for c, loss in zip(clients, ask([(c, tree.root) for c in clients]))
    }
    for client, way in descend(tree, clients, ask).items():
        ways[client] |= way
    return {client: _down_to_the_best(way) for client, way in ways.items()}


def _down_to_the_best(way: dict[NodeId, float]) -> dict[NodeId, float]:
    nodes = list(way)
    end = nodes.index(min(nodes, key=lambda node: way[node]))
    return {node: way[node] for node in nodes[: end + 1]}


def find_moves(tree: Tree, descents: Losses, limits: Limits) -> list[Edit]:
    """Graft each client where its descent ended, or split it off if no model there suits it.

    Clients of one cluster whom no model in the tree suits become a cluster of their own beside
    it, unless no others would be left in it: then the whole cluster has changed, and will learn.
    """
    edits: list[Edit] = []
    unsuited: dict[NodeId, list[NodeId]] = {}
    for client, descent in descents.items():
        parent = tree.parent[client]
        if not descent or parent is None:
            continue
        end, loss = list(descent.items())[-1]
        if loss <= limits[client]:
            edits += [Graft(client, end)] if end != parent else []
        else:
            unsuited.setdefault(parent, []).append(client)
    next_id, moved = tree.next_id, {e.node for e in edits if isinstance(e, Graft)}
    for parent, clients in unsuited.items():
        arrived = [e.node for e in edits if isinstance(e, Graft) and e.onto == parent]
        stay = [n for n in tree.children[parent] if n not in moved and n not in clients] + arrived
        if stay and all(n in tree.members for n in stay):
            into = (NodeId(next_id), NodeId(next_id + 1))
            edits.append(Split(parent, into, (tuple(sorted(stay)), tuple(sorted(clients)))))
            next_id += 2
    return with_prunes(tree, edits) if edits else []
