"""FedAvg as a plain PyTorch loop, the way tutorials write it; torch's own number of threads."""

from __future__ import annotations

import copy

import torch
from job import Clock, arguments, load_job
from torch import Tensor
from torch.utils.data import Subset, TensorDataset
from torch_tutorial import Net, test, train

TEST_BATCH = 1000  # as in PyTorch's MNIST example

StateDict = dict[str, Tensor]


def average(states: list[StateDict], sizes: list[int]) -> StateDict:
    total = sum(sizes)
    return {
        key: sum(
            (state[key] * (size / total) for state, size in zip(states, sizes)),
            start=torch.zeros_like(states[0][key]),
        )
        for key in states[0]
    }


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    job = load_job(options.data)
    everything = TensorDataset(torch.from_numpy(job.x), torch.from_numpy(job.y))
    held_out = TensorDataset(torch.from_numpy(job.test_x), torch.from_numpy(job.test_y))
    clients = [Subset(everything, rows.tolist()) for rows in job.rows]
    server = Net()
    clock = Clock()
    for _ in range(options.rounds):
        states = []
        for samples in clients:
            net = copy.deepcopy(server)
            train(net, samples)
            states.append(net.state_dict())
        server.load_state_dict(average(states, [len(samples) for samples in clients]))
        clock.done(test(server, held_out, TEST_BATCH))


if __name__ == "__main__":
    main()
