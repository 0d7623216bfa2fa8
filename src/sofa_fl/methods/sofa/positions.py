"""Where clients are, by what they learned."""

from __future__ import annotations

import numpy as np

from sofa_fl.federation import Federation
from sofa_fl.methods.positions import coordinates, directions
from sofa_fl.methods.sofa.averages import Updates
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.models.flat import as_vector, inner_products
from sofa_fl.topology.space import Space

PROBE_SIZE = 200  # samples on which latent features are taken


def positions_of(updates: Updates, config: SofaConfig, fed: Federation) -> Space:
    """The space of the clients that contributed: where each is by what it learned.

    That is its model, its update, its features on a fixed batch, or its direction: that in which
    its model differs from the mean of all. The length is mostly noise, and depends on how much the
    client trained and on what. Only trainable parameters count. Rows are brought to as few
    coordinates as there are clients, with the same distances.
    """
    kind, n = config.position, fed.engine.num_trainable
    vectors = [update.model[:n] for update in updates.values()]
    if kind == "latent":
        models = [update.model for update in updates.values()]
        positions = np.asarray(fed.engine.embed(models, fed.probe(PROBE_SIZE)), dtype=np.float64)
    elif kind == "updates":
        starts = [as_vector(update.start)[:n] for update in updates.values()]
        moves = [vector - start for vector, start in zip(vectors, starts)]
        positions = coordinates(inner_products(moves))
    else:
        positions = coordinates(inner_products(vectors))
    positions = directions(positions) if kind == "directions" else positions
    weights = np.array([fed.size(client) for client in updates], dtype=np.float64)
    return Space(tuple(updates), positions, weights, config.metric, config.linkage)
