"""The local objective: both of SOFA's pulls have the gradient that the paper's formula has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import vector_to_parameters

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import LocalConfig, Pull
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.averages import Updates
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.local import local_update
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.methods.sofa.mixing import Mixing
from sofa_fl.methods.sofa.state import SofaState
from sofa_fl.models.flat import Vector, as_vector
from sofa_fl.sharing import Shared, SharingConfig
from sofa_fl.topology.tree import NodeId, Tree
from tests.engine.cases import DATA, MLP, distance, make_data, task

# One step of plain descent over all samples: it moves by the gradient itself.
STEP = LocalConfig(
    batches=1,
    batch_size=30,
    optimizer="sgd",
    learning_rate=1.0,
    prior=False,
    weight_decay=0.0,
    momentum=0.0,
)
SAME_SIZE = make_data((30, 30, 30, 30))
SAME_SIZE = replace(
    SAME_SIZE,
    clients=tuple(
        replace(c, train=np.concatenate([c.holdout, c.train]), holdout=c.holdout[:0])
        for c in SAME_SIZE.clients
    ),
)
# Client 0 has a client and a cluster for siblings.
ROOT, HIGH, LOW = NodeId(4), NodeId(5), NodeId(6)
CLIENTS = tuple(map(NodeId, range(4)))
TREE = Tree(
    {
        ROOT: None,
        CLIENTS[3]: ROOT,
        HIGH: ROOT,
        CLIENTS[0]: HIGH,
        LOW: HIGH,
        CLIENTS[1]: LOW,
        CLIENTS[2]: LOW,
    },
    CLIENTS,
    7,
)


def trained(method: Sofa, state: SofaState, fed: Federation) -> Updates:
    """What comes of a round's local update."""
    return local_update(state, method.config, fed)


def written_out(
    x: Vector, samples: Samples, siblings: list[Vector], parent: Vector, alpha: float, beta: float
) -> float:
    """The paper's objective, in double precision."""
    network = MLP().double()
    vector_to_parameters(x.double(), network.parameters())
    inputs = torch.from_numpy(SAME_SIZE.train.x[samples].astype(np.float64))
    with torch.no_grad():
        out = network(inputs * SAME_SIZE.train.scale + SAME_SIZE.train.shift)
    loss = nn.functional.cross_entropy(out, torch.from_numpy(SAME_SIZE.train.y[samples]))
    size = len(siblings) + 1  # |C| counts the client itself
    to_siblings = sum(float((x - sibling.double()).square().sum()) for sibling in siblings)
    to_parent = float((x - parent.double()).square().sum())
    return float(loss) + alpha / size * to_siblings + beta * to_parent


@pytest.mark.parametrize(
    ("alpha", "beta"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.7), (0.3, 0.7)], ids=str
)
def test_gradient_agrees_with_finite_differences(alpha: float, beta: float) -> None:
    engine = SequentialEngine(MLP, SAME_SIZE, STEP)
    fed = Federation(SAME_SIZE, engine, STEP, round=1)
    method = Sofa(SofaConfig(pull_siblings=alpha, pull_parent=beta), SharingConfig(ratio=0))
    params = {node: engine.initial(int(node)) for node in TREE.parent}
    losses = {c: dict.fromkeys(TREE.path(c), 1.0) for c in CLIENTS}
    state = SofaState(TREE, params, losses, Mixing(), Shared())
    updates = trained(method, state, fed)
    rng = torch.Generator().manual_seed(0)
    for client in CLIENTS:
        parent = TREE.path(client)[-2]
        start = as_vector(updates[client].start)
        gradient = (start - updates[client].model).double()
        siblings = [params[node] for node in TREE.children[parent] if node != client]
        samples = SAME_SIZE.clients[client].train
        for _ in range(4):
            direction = torch.randn(len(gradient), dtype=torch.float64, generator=rng)
            direction /= direction.norm()
            up, down = (
                written_out(start + sign * 1e-4 * direction, samples, siblings,
                            params[parent], alpha, beta)
                for sign in (1, -1)
            )  # fmt: skip
            slope = (up - down) / 2e-4
            assert float(gradient @ direction) == pytest.approx(slope, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("which", ["pull_siblings", "pull_parent"])
def test_a_stronger_pull_ends_nearer_to_its_target(which: str) -> None:
    """From SOFA's own settings to where training ends up."""
    local = LocalConfig(batches=20, batch_size=16, optimizer="sgd", learning_rate=0.05)
    engine = SequentialEngine(MLP, DATA, local)
    fed = Federation(DATA, engine, local, round=1)
    params = {node: engine.initial(int(node)) for node in TREE.parent}
    losses = {c: dict.fromkeys(TREE.path(c), 1.0) for c in CLIENTS}
    state = SofaState(TREE, params, losses, Mixing(), Shared())
    target = {"pull_siblings": params[CLIENTS[2]], "pull_parent": params[LOW]}[which]
    ends = []
    for weight in (0.0, 0.03, 0.3, 3.0):
        none = {"pull_siblings": 0.0, "pull_parent": 0.0}
        config = SofaConfig(**(none | {which: weight}))  # type: ignore[arg-type]
        method = Sofa(config, SharingConfig(ratio=0))
        ends.append(distance(trained(method, state, fed)[CLIENTS[1]].model, target))
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] < 0.3 * ends[0]


def test_pulls_leave_the_buffers_alone() -> None:
    def factory() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))

    engine = SequentialEngine(factory, DATA, replace(STEP, batch_size=16))
    start, n = engine.initial(0), engine.num_trainable
    free, pulled = engine.train([task(start), replace(task(start), pulls=(Pull(start + 5, 0.01),))])
    one_step = [engine.train([replace(task(start), batches=1, pulls=p)])[0].params[n:]
                for p in ((), (Pull(start + 5, 0.01),))]  # fmt: skip
    assert torch.equal(*one_step)
    assert distance(free.params[:n], pulled.params[:n]) > 0.1
