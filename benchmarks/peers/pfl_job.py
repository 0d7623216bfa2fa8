"""FedAvg with pfl-research; under torchrun, its simulation spreads the clients over processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from job import (
    BATCH_SIZE,
    BATCHES,
    LEARNING_RATE,
    TEST_BATCH,
    WEIGHT_DECAY,
    Clock,
    Job,
    arguments,
    load_job,
    shuffled_passes,
)
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightingStrategy
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, StringMetricName, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch_tutorial import Net

ACCURACY = "Central val | accuracy"


class Model(Net):
    """The network with what pfl asks of one."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.train()
        return nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        self.eval()
        return {"accuracy": Weighted(int((self(x).argmax(1) == y).sum()), len(y))}


class WeightByOwned(WeightingStrategy):
    """By the samples a client owns; pfl's own counts those of the round, here 2,500 for all."""

    def __init__(self, job: Job) -> None:
        self.sizes = {str(client): len(rows) for client, rows in enumerate(job.rows)}

    def postprocess_one_user(self, *, stats: Any, user_context: Any) -> tuple[Any, Metrics]:
        stats.reweight(self.sizes[user_context.user_id])
        return stats, Metrics()


class Report(TrainingProcessCallback):
    """A line per round; pfl evaluates before the first round, not after it."""

    def __init__(self) -> None:
        self.clock = Clock()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        name = StringMetricName(ACCURACY)
        if pytorch_ops.distributed.global_rank == 0:
            found = name in aggregate_metrics and central_iteration > 0
            self.clock.done(float(aggregate_metrics[name].overall_value) if found else None)
        return False, Metrics()


def federated(job: Job) -> FederatedDataset:
    """Users by client number; pfl does not shuffle, so a round's samples are drawn here."""
    x, y = torch.from_numpy(job.x), torch.from_numpy(job.y)
    rng = np.random.default_rng(pytorch_ops.distributed.global_rank)

    def user(client: str) -> PyTorchTensorDataset:
        rows = job.rows[int(client)]
        drawn = torch.from_numpy(rows[shuffled_passes(len(rows), rng)])
        return PyTorchTensorDataset((x[drawn], y[drawn]), user_id=client)

    users = [str(client) for client in range(len(job.rows))]
    return FederatedDataset(user, MinimizeReuseUserSampler(users))


def main() -> None:
    options = arguments()
    np.random.seed(0)  # noqa: NPY002 (pfl draws from it, and all processes must draw alike)
    torch.manual_seed(0)
    job = load_job(options.data)
    net, users = Model(), len(job.rows)
    model = PyTorchModel(
        net,
        lambda params, lr: torch.optim.Adam(params, lr=lr, weight_decay=WEIGHT_DECAY),
        torch.optim.SGD(net.parameters(), lr=1.0),
    )
    held_out = PyTorchTensorDataset((torch.from_numpy(job.test_x), torch.from_numpy(job.test_y)))
    evaluation = NNEvalHyperParams(local_batch_size=TEST_BATCH)
    data = federated(job)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=options.rounds,
            # Evaluation on the clients' own samples is no part of the job; round 0 has it still.
            evaluation_frequency=options.rounds + 1,
            train_cohort_size=users,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByOwned(job)]),
        model,
        NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=BATCHES,
            local_batch_size=BATCH_SIZE,
            local_learning_rate=LEARNING_RATE,
        ),
        evaluation,
        [CentralEvaluationCallback(held_out, evaluation), Report()],
    )


if __name__ == "__main__":
    main()
