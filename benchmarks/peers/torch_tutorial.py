"""The network, local training and evaluation as PyTorch tutorials write them."""

from __future__ import annotations

from typing import Any

import torch
from job import BATCH_SIZE, BATCHES, LEARNING_RATE, WEIGHT_DECAY
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Net(nn.Module):
    """The paper's CNN, 1,475,146 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(2304, 600)
        self.fc2 = nn.Linear(600, 120)
        self.fc3 = nn.Linear(120, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(nn.functional.relu(self.conv1(x)))
        x = self.pool(nn.functional.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = nn.functional.relu(self.fc1(x))
        x = nn.functional.relu(self.fc2(x))
        out: Tensor = self.fc3(x)
        return out


def train(net: nn.Module, samples: Any) -> None:
    """One client's round: a new optimizer, 25 shuffled batches."""
    # Without replacement, pass after pass: a client with fewer samples sees some twice.
    sampler = RandomSampler(samples, num_samples=BATCHES * BATCH_SIZE)
    loader = DataLoader(samples, batch_size=BATCH_SIZE, sampler=sampler)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    criterion = nn.CrossEntropyLoss()
    net.train()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(net(images), labels)
        loss.backward()
        optimizer.step()


def test(net: nn.Module, samples: Dataset[Any], batch_size: int) -> float:
    """Accuracy on all samples."""
    correct, total = 0, 0
    net.eval()
    with torch.no_grad():
        for images, labels in DataLoader(samples, batch_size=batch_size):
            correct += int((net(images).argmax(1) == labels).sum())
            total += len(labels)
    return correct / total
