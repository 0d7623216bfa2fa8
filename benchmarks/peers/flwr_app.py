"""Flower's ClientApp and ServerApp, after its PyTorch quickstart; imported by every Ray actor."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from job import TEST_BATCH, Clock, Job, load_job
from torch.utils.data import Subset, TensorDataset
from torch_tutorial import Net, test, train

client_app, server_app = ClientApp(), ServerApp()


@cache  # once per process, as the quickstart keeps its dataset in a global
def job() -> Job:
    return load_job(Path(os.environ["PEERS_DATA"]))


@cache
def client_samples(partition: int) -> Subset[tuple[torch.Tensor, ...]]:
    everything = TensorDataset(torch.from_numpy(job().x), torch.from_numpy(job().y))
    return Subset(everything, job().rows[partition].tolist())


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    net = Net()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    samples = client_samples(int(context.node_config["partition-id"]))
    train(net, samples)
    content = RecordDict(
        {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": len(samples)}),
        }
    )
    return Message(content=content, reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    held_out = TensorDataset(torch.from_numpy(job().test_x), torch.from_numpy(job().test_y))
    net, clock = Net(), Clock()

    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if round == 0:
            return None
        net.load_state_dict(arrays.to_torch_state_dict())
        accuracy = test(net, held_out, TEST_BATCH)
        clock.done(accuracy)
        return MetricRecord({"accuracy": accuracy})

    everybody = len(job().rows)
    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=everybody, min_available_nodes=everybody
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(net.state_dict()),
        train_config=ConfigRecord(),
        num_rounds=int(os.environ["PEERS_ROUNDS"]),
        evaluate_fn=evaluate,
    )
