"""FedAvg with FedJAX: its algorithm, a Haiku network, optax's Adam, its default jit backend."""

from __future__ import annotations

from typing import Any

import fedjax
import haiku as hk
import jax
import numpy as np
import optax
from fedjax.algorithms import fed_avg
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
)


def forward(batch: dict[str, Any]) -> Any:
    network = hk.Sequential(
        [
            hk.Conv2D(32, 3, padding="SAME"),
            jax.nn.relu,
            hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
            hk.Conv2D(64, 3, padding="VALID"),
            jax.nn.relu,
            hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
            hk.Flatten(),
            hk.Linear(600),
            jax.nn.relu,
            hk.Linear(120),
            jax.nn.relu,
            hk.Linear(10),
        ]
    )
    return network(batch["x"])


def make_model() -> fedjax.Model:
    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(forward),
        sample_batch={"x": np.zeros((1, 28, 28, 1), np.float32), "y": np.zeros(1, np.int64)},
        train_loss=lambda batch, out: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], out),
        eval_metrics={"accuracy": fedjax.metrics.Accuracy()},
    )


def datasets(job: Job) -> tuple[fedjax.FederatedData, fedjax.ClientDataset]:
    """Clients' samples and the test set, channels last as JAX has them."""
    x, test_x = (images.transpose(0, 2, 3, 1) for images in (job.x, job.test_x))
    clients = {
        str(client).encode(): {"x": x[rows], "y": job.y[rows]}
        for client, rows in enumerate(job.rows)
    }
    held_out = fedjax.ClientDataset({"x": np.ascontiguousarray(test_x), "y": job.test_y})
    return fedjax.InMemoryFederatedData(clients), held_out


def main() -> None:
    options = arguments()
    clients, held_out = datasets(load_job(options.data))
    model = make_model()
    adam = optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.adam(LEARNING_RATE))
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.create_optimizer_from_optax(adam),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(BATCH_SIZE, num_epochs=None, num_steps=BATCHES),
    )
    key = jax.random.PRNGKey(0)
    state = algorithm.init(model.init(key))
    clock = Clock()
    for _ in range(options.rounds):
        key, *keys = jax.random.split(key, clients.num_clients() + 1)
        cohort = [(name, data, own) for (name, data), own in zip(clients.clients(), keys)]
        state, _ = algorithm.apply(state, cohort)
        test_batches = held_out.padded_batch(batch_size=TEST_BATCH)
        scores = fedjax.evaluate_model(model, state.params, test_batches)
        clock.done(float(scores["accuracy"]))


if __name__ == "__main__":
    main()
