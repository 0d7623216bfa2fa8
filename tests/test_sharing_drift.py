"""A cap holds for samples, not for copies of them: who sees one turned has seen it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from sofa_fl.api.runs import run
from sofa_fl.data.concepts import Concept, Phase, perform
from sofa_fl.data.federated_data import FederatedData, OwnedRows
from sofa_fl.data.own import from_arrays
from sofa_fl.data.partition import Parts
from sofa_fl.experiment.run.config import parse_config
from sofa_fl.sharing import Ledger, Shared, SharingConfig, share
from sofa_fl.topology.tree import NodeId, flat_tree

NUM, EACH, PHASES = 4, 50, 8


def drifting() -> FederatedData:
    """Four clients, whose images turn by 45 degrees every two rounds."""
    x = np.random.default_rng(0).integers(0, 255, (NUM * EACH, 1, 8, 8)).astype(np.uint8)
    arrays = from_arrays(x, np.arange(NUM * EACH) % 3)
    rows = [np.arange(i * EACH, (i + 1) * EACH, dtype=np.int64) for i in range(NUM)]
    script = [
        Phase(2 * k, {client: Concept(degrees=45.0 * k) for client in range(NUM)})
        for k in range(PHASES)
    ]
    parts = Parts(rows, rows)
    return perform(script, arrays, arrays, parts, num_outputs=3, holdout=0.1, seed=0)


def owned_at(data: FederatedData, round: int) -> OwnedRows[NodeId]:
    rows = {NodeId(c): own.train for c, own in data.stage(round).clients.items()}
    return OwnedRows(rows, data.sources)


def seen_of(data: FederatedData, shared: Shared) -> Mapping[int, set[int]]:
    """Counted by hand: the samples of every client that another has had any copy of."""
    assert data.sources is not None
    seen: dict[int, set[int]] = {client: set() for client in range(NUM)}
    for to, bits in shared.ledger.received.items():
        for row in np.flatnonzero(np.unpackbits(bits)):
            sample = int(data.sources[row])
            assert sample // EACH != to, "nobody is given its own"
            seen[sample // EACH].add(sample)
    return seen


@pytest.mark.parametrize("mode", ["random", "fixed"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("cap", [0.1, 0.5, None])
def test_turned_copies_count_as_their_sample(
    mode: str, accumulate: bool, cap: float | None
) -> None:
    data = drifting()
    config = parse_config(
        {
            "sharing": {
                "ratio": 0.3, "mode": mode, "max_disclosure": cap, "accumulate": accumulate
            }
        }
    ).sharing  # fmt: skip
    tree = flat_tree([NodeId(i) for i in range(NUM)], NUM)
    shared, most = Shared(), 0.3 if cap is None else cap
    for round in range(2 * PHASES):
        shared = share(tree, owned_at(data, round), shared, config, seed=0, round=round)
        disclosed = shared.ledger.disclosed(owned_at(data, round))
        for client, seen in seen_of(data, shared).items():
            assert 0 < len(seen) <= most * EACH
            assert len(disclosed[NodeId(client)]) == len(seen), "the record says what is so"


def test_without_copies_a_row_is_a_sample() -> None:
    owned = {NodeId(0): np.arange(5), NodeId(1): np.arange(5, 9)}
    known = Ledger({NodeId(1): np.packbits([1, 0, 1])}).known(owned)
    assert known.tolist() == [True, False, True, *[False] * 6]
    assert known.tolist() == Ledger({NodeId(1): np.packbits([1, 0, 1])}).known(
        OwnedRows(owned, np.arange(9))
    ).tolist()  # fmt: skip


def test_a_run_under_drift_keeps_its_cap(tmp_path: Path) -> None:
    """The summary is about samples as well."""
    config = parse_config(
        {
            "rounds": 2 * PHASES - 1, "warmup": 1, "engine": "sequential", "out": str(tmp_path),
            "model": {"name": "mlp", "hidden": 4}, "local": {"batches": 1, "batch_size": 5},
            "sharing": {"ratio": 0.3, "max_disclosure": 0.1},
        }
    )  # fmt: skip
    data = drifting()
    result = run(config, data=data)
    seen = seen_of(data, result.view.shared)
    assert max(map(len, seen.values())) <= 0.1 * EACH
    assert max(map(len, seen.values())) > 0


def test_a_cap_of_1_shares_as_before() -> None:
    """A cap of 1 holds nobody back, so that knowing about copies changes no draw."""
    data, config = drifting(), SharingConfig(ratio=0.3, max_disclosure=1.0)
    tree = flat_tree([NodeId(i) for i in range(NUM)], NUM)
    ours = theirs = Shared()
    for round in range(2 * PHASES):
        owned = owned_at(data, round)
        ours = share(tree, owned, ours, config, seed=0, round=round)
        theirs = share(tree, dict(owned), theirs, config, seed=0, round=round)
        for cluster, rows in ours.pools.items():
            assert np.array_equal(rows, theirs.pools[cluster])
