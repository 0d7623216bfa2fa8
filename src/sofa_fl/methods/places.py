"""The place of a client: the vector that tells it apart, from what it learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from sofa_fl.engine.base import Outcome, Task
from sofa_fl.federation import Federation
from sofa_fl.models.flat import inner_products
from sofa_fl.topology.bodies import Floats
from sofa_fl.topology.space import Metric, coordinates

Place = Literal["weights", "updates", "latent"]
PROBE_SIZE = 200  # samples on which latent features are taken


def places_of(
    lessons: Sequence[tuple[Task, Outcome]], place: Place, metric: Metric, fed: Federation
) -> Floats:
    """One row per lesson: the model, how it moved, or its features on a fixed batch.

    Only trainable parameters count. Rows are brought to as few coordinates as there are clients,
    with the same distances; the manhattan metric knows no such coordinates.
    """
    if place == "latent":
        models = [outcome.params for _, outcome in lessons]
        features = fed.engine.embed(models, fed.probe(PROBE_SIZE))
        return np.asarray(features, dtype=np.float64)
    n = fed.engine.num_trainable
    vectors = [outcome.params[:n] for _, outcome in lessons]
    if place == "updates":
        vectors = [vector - task.start[:n] for vector, (task, _) in zip(vectors, lessons)]
    if metric == "manhattan":
        return torch.stack(vectors).double().cpu().numpy()
    return coordinates(inner_products(vectors))
