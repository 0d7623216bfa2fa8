"""What methods are tested on: the table of methods, small federations, equality of states."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch

from sofa_fl.data.federated_data import FederatedData
from sofa_fl.engine.base import Engine, EngineAround, Exam, LocalConfig, Outcome, Score, Task
from sofa_fl.federation import Federation
from sofa_fl.methods.baselines.apfl import Apfl
from sofa_fl.methods.baselines.cfl import Cfl
from sofa_fl.methods.baselines.ditto import Ditto
from sofa_fl.methods.baselines.fedadam import FedAdam
from sofa_fl.methods.baselines.fedala import FedAla
from sofa_fl.methods.baselines.fedavg import FedAvg
from sofa_fl.methods.baselines.fedavg_ft import FedAvgFt
from sofa_fl.methods.baselines.feddrift import FedDrift
from sofa_fl.methods.baselines.fedprox import FedProx
from sofa_fl.methods.baselines.fedrep import FedRep
from sofa_fl.methods.baselines.fedrod import FedRod
from sofa_fl.methods.baselines.fedyogi import FedYogi
from sofa_fl.methods.baselines.fl_hc import FlHc
from sofa_fl.methods.baselines.hierfavg import HierFavg
from sofa_fl.methods.baselines.hypcluster import HypCluster
from sofa_fl.methods.baselines.hypcluster_restarts import HypClusterRestarts
from sofa_fl.methods.baselines.local import Local
from sofa_fl.methods.baselines.oracle import Oracle
from sofa_fl.methods.baselines.regroup import Regroup
from sofa_fl.methods.baselines.scaffold import Scaffold
from sofa_fl.methods.config import (
    ApflConfig,
    CflConfig,
    DittoConfig,
    FedAlaConfig,
    FedDriftConfig,
    FedOptConfig,
    FedProxConfig,
    FedRepConfig,
    FedRodConfig,
    FlHcConfig,
    HierFavgConfig,
    HypClusterConfig,
    OracleConfig,
)
from sofa_fl.methods.method import Method
from sofa_fl.methods.sofa.averages import Update
from sofa_fl.methods.sofa.config import RulesConfig, SofaConfig
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.tree import NodeId
from tests.engine.quadratic import quadratic_data

# The closed-form engine descends at this rate, whatever it is told; SCAFFOLD must know it.
LOCAL = LocalConfig(batches=10, batch_size=8, optimizer="sgd", learning_rate=0.05)


def sofa(**settings: Any) -> Callable[[SharingConfig], Method[Any]]:
    return lambda sharing: Sofa(SofaConfig(**settings), sharing)


def hypcluster(num_clusters: int) -> Callable[[SharingConfig], Method[Any]]:
    return lambda sharing: HypCluster(HypClusterConfig(num_clusters=num_clusters), sharing)


METHODS: dict[str, Callable[[SharingConfig], Method[Any]]] = {
    "sofa": sofa(),
    "sofa as written": sofa(
        position="weights",
        linkage="centroid",
        start="own",
        serve="own",
        clusters="regularized",
        rules=RulesConfig(graft="paper", merge="paper", split="paper"),
        dmac=DmacConfig(increase=1.2),
    ),
    "sofa cascade eta 0.5": sofa(propagation="cascade", eta=0.5),
    "sofa goes on from its own": sofa(start="own", serve="own"),
    "sofa regularized": sofa(clusters="regularized", pull_siblings=(0.1, 0.2), pull_parent=0.3),
    "sofa latent": sofa(position="latent", metric="cosine"),
    "sofa by models": sofa(evidence="models"),
    "sofa accumulates": lambda sharing: Sofa(
        SofaConfig(), dataclasses.replace(sharing, accumulate=True, reshare=True)
    ),
    "local": Local,
    "fedavg": FedAvg,
    "fedavg tuned": FedAvgFt,
    "fedprox": lambda sharing: FedProx(FedProxConfig(pull=0.5), sharing),
    "ditto": lambda sharing: Ditto(DittoConfig(pull=0.5), sharing),
    "hypcluster 1": hypcluster(1),
    "hypcluster 2": hypcluster(2),
    "hypcluster 3": hypcluster(3),
    "cfl": lambda sharing: Cfl(CflConfig(stationary=0.6, deviation=0.5), sharing),
    "cfl without splits": lambda sharing: Cfl(CflConfig(stationary=0), sharing),
    "fl_hc": lambda sharing: FlHc(FlHcConfig(rounds=1), sharing),
    "fl_hc after the warm-up": lambda sharing: FlHc(
        FlHcConfig(rounds=0, metric="cosine", linkage="average"), sharing
    ),
    "hierfavg": lambda sharing: HierFavg(HierFavgConfig(num_edges=2, period=2), sharing),
    "hierfavg, many edges": lambda sharing: HierFavg(
        HierFavgConfig(num_edges=5, period=3), sharing
    ),
    "feddrift": lambda sharing: FedDrift(FedDriftConfig(change=3.0), sharing),
    "apfl": lambda sharing: Apfl(ApflConfig(), sharing),
    "fedrep": lambda sharing: FedRep(FedRepConfig(), sharing),
    "fedala": lambda sharing: FedAla(FedAlaConfig(), sharing),
    "fedrod": lambda sharing: FedRod(FedRodConfig(), sharing),
    "fedadam": lambda sharing: FedAdam(FedOptConfig(rate=1.0, beta1=0.5, adaptivity=0.5), sharing),
    "fedyogi": lambda sharing: FedYogi(FedOptConfig(rate=1.0, beta1=0.5, adaptivity=0.5), sharing),
    "scaffold": Scaffold,
    "hypcluster, restarts": lambda sharing: HypClusterRestarts(
        HypClusterConfig(num_clusters=2, search_rounds=2), sharing
    ),
    "regroup": lambda sharing: Regroup(SofaConfig(), sharing),
    "oracle": lambda sharing: Oracle(OracleConfig(), sharing),
    "oracle above": lambda sharing: Oracle(OracleConfig(level=1), sharing),
}
# Those that train clients and nothing else: the same budget for all.
SAME_BUDGET = [name for name in METHODS if "eta" not in name]


@dataclass
class Spy(EngineAround[Engine]):
    """An engine that remembers what it was asked."""

    engine: Engine
    tasks: list[Task] = field(default_factory=list)
    exams: list[Exam] = field(default_factory=list)

    def train(self, tasks: Iterable[Task]) -> Sequence[Outcome | None]:
        tasks = list(tasks)
        self.tasks += tasks
        return self.engine.train(tasks)

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        self.exams += exams
        return super().evaluate(exams)


def make_data(num_clients: int = 9, noise: float = 0.3) -> tuple[FederatedData, Engine]:
    """Clients of unequal size in three groups, with room between the clients of a group."""
    rng = np.random.default_rng(5)
    centres = np.repeat(rng.normal(size=(3, 6)) * 3, 3, axis=0)[:num_clients]
    centres = centres + 0.5 * rng.normal(size=centres.shape)
    data, engine = quadratic_data(centres, num_samples=40, noise=noise)
    clients = tuple(
        dataclasses.replace(client, train=client.train[: 20 + 2 * i])
        for i, client in enumerate(data.clients)
    )
    groups = [i // 3 for i in range(num_clients)]
    truth = (tuple(groups), tuple(group // 2 for group in groups))
    return dataclasses.replace(data, clients=clients, truth=truth), engine


def federation(num_clients: int = 9, *, seed: int = 3, spy: bool = False) -> Federation:
    data, engine = make_data(num_clients)
    return Federation(data, Spy(engine) if spy else engine, LOCAL, seed=seed, warmup=5)


def in_units(fed: Federation, blind_loss: float) -> Federation:
    """A federation with the blind loss that its data have: in closed form it is not known."""
    kind = type("InUnits", (type(fed),), {"blind_loss": blind_loss})
    return cast(
        Federation, kind(**{part.name: getattr(fed, part.name) for part in dataclasses.fields(fed)})
    )


def updates_of(fed: Federation) -> dict[NodeId, Update]:
    """What clients make of a start each."""
    tasks = [fed.task(c, fed.initial(int(c))) for c in fed.clients]
    outcomes = fed.train(tasks)
    return {t.site: Update(t.start, out) for t, out in zip(tasks, outcomes) if out is not None}


def after_rounds(method: Method[Any], fed: Federation, rounds: int) -> Any:
    state, _ = method.init(fed.at(0))
    for round in range(1, rounds + 1):
        state, _ = method.round(state, fed.at(round))
    return state


def assert_equal(a: Any, b: Any, path: str = "state") -> None:
    """Bit for bit, in order, and of the same types."""
    assert type(a) is type(b), path
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype, path
        assert torch.equal(a, b), path
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, path
        np.testing.assert_array_equal(a, b, err_msg=path)
    elif dataclasses.is_dataclass(a):
        for part in dataclasses.fields(a):
            assert_equal(getattr(a, part.name), getattr(b, part.name), f"{path}.{part.name}")
    elif isinstance(a, Mapping):
        assert list(a) == list(b), path
        for key in a:
            assert_equal(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, tuple | list):
        assert len(a) == len(b), path
        for i, (one, other) in enumerate(zip(a, b)):
            assert_equal(one, other, f"{path}.{i}")
    else:
        assert a == b or (a != a and b != b), path
