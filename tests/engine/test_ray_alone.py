"""What the Ray engine does before and without a cluster: refuse in a sentence, set up a worker."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from sofa_fl.data.federated_data import Arrays, FederatedData
from sofa_fl.engine.ray_cluster import ENVIRONMENT, import_ray
from sofa_fl.engine.ray_engine import RayEngine
from sofa_fl.engine.ray_worker import RayWorker, WorkerSetup
from sofa_fl.engine.select import make_engine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.stacked import StackedEngine
from sofa_fl.errors import EngineError
from sofa_fl.models.networks import Cnn
from tests.engine.cases import DATA, LOCAL, MLP

pytestmark = pytest.mark.slow


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"^engine: ray needs .* pip install 'sofa-fl\[ray\]'$"):
        make_engine("ray", MLP, DATA, LOCAL)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("ray://somewhere:10001", "must run on a machine of the cluster"),
        ("somewhere", "must be auto, local or host:port, got 'somewhere'"),
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_a_wrong_address_is_refused(
    address: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(EngineError, match=why):
        RayEngine(MLP, DATA, LOCAL)
    assert not import_ray().is_initialized()


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *others) = ENVIRONMENT
    monkeypatch.setenv(first, "1")
    for name in others:
        monkeypatch.delenv(name, raising=False)
    import_ray()
    assert os.environ[first] == "1"
    assert not set(others) & set(os.environ)


def test_a_worker_of_another_version_is_refused() -> None:
    setup = WorkerSetup.of(MLP, DATA, LOCAL, "cpu", stacked=False)
    older = replace(setup, versions={**setup.versions, "torch": "1.0.0"})
    with pytest.raises(EngineError, match=r"must have .*'torch': '1.0.0'.*, but one has"):
        RayWorker(older)


def test_many_at_once_only_where_told_to() -> None:
    worker = RayWorker(WorkerSetup.of(MLP, DATA, LOCAL, "cpu", stacked=True))
    assert isinstance(worker.engine, StackedEngine)
    worker = RayWorker(WorkerSetup.of(MLP, DATA, LOCAL, "cpu", stacked=False))
    assert isinstance(worker.engine, SequentialEngine)


@pytest.mark.parametrize("channels", [1, 3])
def test_workers_read_the_samples_where_they_are(channels: int) -> None:
    """As they come out of the object store: not to be written to, and not copied."""
    x = np.random.default_rng(0).integers(0, 255, (211, channels, 8, 8)).astype(np.uint8)
    images = Arrays(x, DATA.train.y.copy())
    data = FederatedData(images, images, DATA.clients, 4)
    setup = WorkerSetup.of(
        lambda: Cnn((channels, 8, 8), 4, batch_norm=False), data, LOCAL, "cpu", stacked=False
    )
    sent = setup.data.train
    for part in (sent.x, sent.y):
        part.flags.writeable = False
    engine = RayWorker(setup).engine
    assert isinstance(engine, SequentialEngine)
    store = engine.learner.stores["train"]
    assert store.x.data_ptr() == sent.x.ctypes.data
    assert store.y.data_ptr() == sent.y.ctypes.data
    batch, _ = store.batch(torch.tensor([5, 3]))
    np.testing.assert_array_equal(batch.numpy(), x[[5, 3]].astype(np.float32))
