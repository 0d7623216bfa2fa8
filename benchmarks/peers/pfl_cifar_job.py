"""The job of `pfl_cifar.py` with pfl-research, set up as pfl's own benchmark of CIFAR-10 is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import get_default_device
from pfl.metrics import Metrics, StringMetricName, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

Images = tuple[NDArray[np.float32], NDArray[np.int64]]
# When a round ended, and the accuracy if measured; whether it was the last.
OnRound = Callable[[float, float | None], bool]


class Model(nn.Module):
    """A network with what pfl asks of one."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.train()
        return nn.functional.cross_entropy(self.network(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        self.eval()
        return {"accuracy": Weighted(int((self.network(x).argmax(1) == y).sum()), len(y))}


class Report(TrainingProcessCallback):
    """Calls `on_round` after every round, and ends the training when it says so."""

    def __init__(self, on_round: OnRound) -> None:
        self.on_round = on_round

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        name = StringMetricName("Central val | accuracy")
        found = name in aggregate_metrics
        accuracy = float(aggregate_metrics[name].overall_value) if found else None
        return self.on_round(time.perf_counter(), accuracy), Metrics()


def run_pfl(
    network: nn.Module,
    train: Images,
    test: Images,
    users: Sequence[NDArray[np.int64]],
    *,
    rounds: int,
    cohort: int,
    batch_size: int,
    learning_rate: float,
    every: int,
    on_round: OnRound,
    start: Path | None = None,
    save: Path | None = None,
) -> None:
    """Run FedAvg; samples lie on the device from the beginning, as in pfl's own benchmark.

    `start` and `save` are files of weights, so that a long run can be made in parts: plain SGD
    keeps nothing else from round to round.
    """
    np.random.seed(0)  # noqa: NPY002 (pfl draws from it)
    if start is not None:
        network.load_state_dict(torch.load(start, weights_only=True))
    net = Model(network)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    x, y = _on_device(train)
    data = {
        str(user): Dataset([x[rows], y[rows]], user_id=str(user))
        for user, rows in enumerate(map(torch.from_numpy, users))
    }
    held_out = Dataset(_on_device(test))
    evaluation = NNEvalHyperParams(local_batch_size=len(test[1]))
    clients = FederatedDataset(data.__getitem__, MinimizeReuseUserSampler(list(data)))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,  # of users' own samples: no part of the job
            train_cohort_size=cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(clients, clients, postprocessors=[WeightByUser()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=learning_rate,
            local_batch_size=batch_size,
        ),
        evaluation,
        [CentralEvaluationCallback(held_out, evaluation, frequency=every), Report(on_round)],
    )
    if save is not None:
        torch.save(network.state_dict(), save)


def _on_device(images: Images) -> list[Tensor]:
    return [torch.from_numpy(part).to(get_default_device()) for part in images]
