"""`sofa.dmac` counts in every round, not only for the first tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sofa_fl
from sofa_fl.data.concepts import Concept, Phase, perform
from sofa_fl.data.federated_data import FederatedData
from sofa_fl.data.own import from_arrays
from sofa_fl.data.partition import Parts

NUM, EACH, LATE = 9, 60, (0, 3, 6)


def easy_data() -> FederatedData:
    """All clients are alike; from round 3 on, the images of three are turned a little.

    A model of all goes on to suit everybody, so no client gains by another cluster: only where
    clients are says that there are two groups.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, NUM * EACH)
    x = rng.integers(0, 60, (NUM * EACH, 1, 8, 8)).astype(np.uint8)
    for label in range(4):
        x[y == label, :, 2 * label, :4] += 120
    rows = [np.arange(i * EACH, (i + 1) * EACH, dtype=np.int64) for i in range(NUM)]
    plain = {client: Concept() for client in range(NUM)}
    script = [Phase(0, plain), Phase(3, {**plain, **dict.fromkeys(LATE, Concept(degrees=30.0))})]
    parts, arrays = Parts(rows, rows), from_arrays(x, y)
    return perform(script, arrays, arrays, parts, num_outputs=4, holdout=0.1, seed=0)


def groups_made(out: Path, dmac: sofa_fl.DmacConfig) -> list[set[int]]:
    """All groups of clients that splits have made."""
    config = sofa_fl.Config(
        rounds=6, warmup=20, engine="sequential", out=str(out),
        model=sofa_fl.ModelConfig(name="mlp", hidden=16),
        local=sofa_fl.LocalConfig(batches=20, batch_size=20, learning_rate=0.01),
        sofa=sofa_fl.SofaConfig(dmac=dmac, alert=1e9), sharing=sofa_fl.SharingConfig(ratio=0.0),
    )  # fmt: skip
    events = list[Any]()
    sofa_fl.run(config, data=easy_data(), observers=[events.append])
    edits = [edit for event in events if event["event"] == "round" for edit in event["edits"]]
    return [set(group) for edit in edits for group in edit.get("groups", ())]


def test_by_default_a_group_that_forms_late_becomes_a_cluster(tmp_path: Path) -> None:
    assert set(LATE) in groups_made(tmp_path, sofa_fl.DmacConfig())


@pytest.mark.parametrize(
    "dmac",
    [sofa_fl.DmacConfig(increase=1e9), sofa_fl.DmacConfig(certain=False)],
    ids=["everything joins at once", "certain of nothing"],
)
def test_what_dmac_does_not_find_shape_does_not_make(
    tmp_path: Path, dmac: sofa_fl.DmacConfig
) -> None:
    assert set(LATE) not in groups_made(tmp_path, dmac)
