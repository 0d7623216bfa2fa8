"""The frozen part of a network is at every machine; it never travels, and must be the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from cases import FakeMessenger, machines_of, tiny
from sofa_fl.api.runs import run
from sofa_fl_flower.server.server import Server
from test_server import alike, four, quiet

WIDTH = 200


def network(shape: tuple[int, ...], num_outputs: int, scale: float = 1.0) -> nn.Module:
    """A wide frozen layer, and a small one that is trained."""
    state = torch.random.get_rng_state()
    torch.manual_seed(3)
    first = nn.Linear(28 * 28, WIDTH).requires_grad_(False)
    first.weight.data.mul_(scale)
    torch.random.set_rng_state(state)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(WIDTH, num_outputs))


def test_only_the_trained_part_travels(tmp_path: Path) -> None:
    config = tiny(sharing={"ratio": 0.0})
    run(replace(config, out=str(tmp_path / "one")), network=lambda: network((), 10))
    machines = machines_of(config)
    for machine in machines.values():
        machine.network = network
    messenger = FakeMessenger(machines)
    Server(messenger, config, four(tmp_path / "many"), quiet).run(network)
    alike(tmp_path / "one", tmp_path / "many")
    trained = 4 * (WIDTH * 10 + 10)
    frozen = 4 * (28 * 28 * WIDTH + WIDTH)
    for _, _, asked, answer in messenger.log:
        assert not isinstance(answer, str | None)
        sizes = [array.nbytes for array in (*asked.arrays.values(), *answer.arrays.values())]
        assert max(sizes, default=0) <= trained
        assert sum(sizes) < frozen / 4, "a whole message is smaller than what is frozen"
    assert list((tmp_path / "many").glob("frozen-*")), "the server wrote it once"


def test_a_machine_with_another_base_takes_no_part(tmp_path: Path) -> None:
    config = tiny(rounds=1)
    machines = machines_of(config)
    for machine in machines.values():
        machine.network = network
    machines[100].network = lambda shape, outputs: network(shape, outputs, scale=2.0)
    said: list[str] = []
    options = replace(four(tmp_path / "run"), clients=3)
    Server(FakeMessenger(machines), config, options, said.append).run(network)
    assert any("the frozen part of this site's network has the digest" in line for line in said)
    assert any("load the same base on all machines" in line for line in said)
