"""A parent is tried: every other client whose own way is better goes on from its own model.

Of a parent nobody knows how fast a client would learn that goes on from its own model, and of a new
one not even how fast it learns itself. So of the clients whose own way is better every other one
goes on from its own model for a round, and the rest start from the parent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.topology.clustering.default_edits import ERRORS, mean_and_error
from sofa_fl.topology.geometry.space import Floats
from sofa_fl.topology.tree import NodeId


@dataclass(frozen=True, slots=True)
class Trial:
    """What a client lost when it and its siblings tried both ways to start.

    Attributes:
        parent: The parent that they have in common.
        own_loss: Held-out loss of the client's own model.
        parent_loss: Held-out loss of what the parent stands for.
        goes_on: Whether the client goes on from its own model.
    """

    parent: NodeId
    own_loss: float
    parent_loss: float
    goes_on: bool


def trials_of(
    clients: Sequence[NodeId], parent: NodeId, losses: Mapping[NodeId, Floats]
) -> dict[NodeId, Trial]:
    """The trials of siblings, given the losses of their mixtures, the parent's first."""
    return {
        client: Trial(parent, float(losses[client][-1]), float(losses[client][0]), i % 2 == 0)
        for i, client in enumerate(clients)
    }


def is_better_alone(
    tried: Mapping[NodeId, Trial], losses: Mapping[NodeId, Floats], fed: Federation
) -> bool:
    """Whether clients that went on from their own models learned more than their parent did.

    More by two standard errors, as the spread over clients tells: one client has none, so by itself
    it decides nothing. `tried` are the siblings that took part in a trial, `losses` those of their
    mixtures after it, from the parent's to their own.
    """
    alone = {client: trial for client, trial in tried.items() if trial.goes_on}
    if not alone:
        return False
    by_own = [trial.own_loss - losses[client][-1] for client, trial in alone.items()]
    by_parent = [trial.parent_loss - losses[client][0] for client, trial in tried.items()]
    own, own_error = mean_and_error(np.array(by_own), counts(list(alone), fed))
    parent, parent_error = mean_and_error(np.array(by_parent), counts(list(tried), fed))
    return bool(own - parent > ERRORS * math.hypot(own_error, parent_error))


def counts(clients: Sequence[NodeId], fed: Federation) -> Floats:
    """How many samples each client is judged on."""
    return np.array([len(fed.judged_on(client)) for client in clients], dtype=np.float64)
