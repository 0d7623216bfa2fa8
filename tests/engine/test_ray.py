"""Ray workers: on two nodes as on none, and none is missed when it dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sofa_fl.engine.base import Exam
from sofa_fl.engine.ray_cluster import ENVIRONMENT, import_ray
from sofa_fl.engine.ray_engine import RayEngine
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.errors import EngineError, ModelError
from sofa_fl.models.flat import Vector
from tests.engine.cases import DATA, LOCAL, MLP, task
from tests.engine.test_workers import (
    POISONED,
    Trap,
    assert_bits,
    expected,
    is_running,
    kill_self,
    tasks,
    wait_until,
)

pytestmark = pytest.mark.slow

ray = import_ray()
Nodes = Any  # ray.cluster_utils.Cluster
STORE = 160 << 20


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A cluster of two nodes with a CPU each, as `ray start` makes them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster as RayNodes

        head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
        cluster = RayNodes(initialize_head=True, head_node_args=head)
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def joined(nodes: Nodes) -> None:
    """This process is in the cluster; engines find it so, and its workers are not made anew."""
    if not ray.is_initialized():
        ray.init(address=nodes.address, log_to_driver=False)


def engine_with(spring: Callable[[], None]) -> closing[RayEngine]:
    return closing(RayEngine(lambda: Trap(spring), POISONED, LOCAL))


def test_leaves_a_cluster_as_it_found_it(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """And with the same bits as the sequential engine, through training and exams."""
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    with closing(RayEngine(MLP, DATA, LOCAL)) as engine:
        pid_of_worker = ray.remote(slow_pid)
        pids = set(ray.get([pid_of_worker.remote() for _ in range(4)]))
        plain = SequentialEngine(MLP, DATA, LOCAL)
        starts = [engine.initial(i) for i in range(3)]
        asked = [task(starts[i % 3], i % 4, seed=i) for i in range(12)]
        assert_bits(engine.train(asked), plain.train(asked))
        exams = [Exam(start, np.arange(200)) for start in starts]
        assert engine.evaluate(exams) == plain.evaluate(exams)
        np.testing.assert_array_equal(
            engine.embed(starts, np.arange(9)), plain.embed(starts, np.arange(9))
        )
    assert not ray.is_initialized()
    wait_until(lambda: not any(map(is_running, pids)), "our workers to end")
    assert not any(node.dead_processes() for node in nodes.list_all_nodes())


def slow_pid() -> int:
    time.sleep(0.2)
    return os.getpid()


def meeting(folder: Path, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Wait until two nodes are at it; a worker's parent is its node."""

    def spring() -> None:
        (folder / str(os.getppid())).touch()
        wait_until(lambda: len(list(folder.iterdir())) == 2, "the other node")
        then()

    return spring


@pytest.mark.usefixtures("joined")
def test_two_nodes_share_the_work(tmp_path: Path) -> None:
    clients = (0, 1, 0, 2, 0, 3)
    with engine_with(meeting(tmp_path)) as engine:
        assert_bits(tasks(engine, clients), expected(clients))
        assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.usefixtures("joined")
def test_a_worker_killed_in_mid_task_costs_only_time(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is killed in its third batch, once."""
    marks = [tmp_path / str(n) for n in range(3)]

    def spring() -> None:
        mark = next((mark for mark in marks if not mark.exists()), None)
        if mark is not None:
            mark.write_text(str(os.getpid()))
            if mark is marks[-1]:
                kill_self()

    with engine_with(spring) as engine:
        assert_bits(tasks(engine), expected())
        assert not is_running(int(marks[-1].read_text()))
        assert_bits(tasks(engine), expected())
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("joined")
def test_a_task_that_keeps_killing_its_worker_is_an_error() -> None:
    with engine_with(kill_self) as engine:
        with pytest.raises(EngineError, match="a Ray worker died 3 times on the same task"):
            tasks(engine)
        assert_bits(tasks(engine, (1, 2, 3)), expected((1, 2, 3)))


@pytest.mark.usefixtures("joined")
def test_an_exception_in_a_worker_says_what_and_where() -> None:
    def spring() -> None:
        raise ZeroDivisionError("the trap went off")

    with engine_with(spring) as engine:
        said = r"ZeroDivisionError: the trap went off \(.*test_ray.py, line \d+\)$"
        with pytest.raises(ModelError, match=said):
            tasks(engine)
        assert_bits(tasks(engine, (1, 2)), expected((1, 2)))


@pytest.mark.usefixtures("joined")
def test_a_model_is_put_into_the_store_once(monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[Vector] = []
    original = RayEngine._put

    def counted(self: RayEngine, vector: Vector) -> Any:
        put.append(vector)
        return original(self, vector)

    monkeypatch.setattr(RayEngine, "_put", counted)
    with closing(RayEngine(MLP, DATA, LOCAL)) as engine:
        start = engine.initial(0)
        engine.train([task(start, i % 4, seed=i) for i in range(9)])
        assert len(put) == 1


@pytest.mark.usefixtures("joined")
def test_the_store_does_not_fill_with_what_passes_through_it(nodes: Nodes) -> None:
    """Sixty models of 4 MB there and back, with room for 160 MB."""

    def wide() -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 15_000), torch.nn.Linear(15_000, 4)
        )

    with closing(RayEngine(wide, DATA, LOCAL)) as engine:
        outcomes = engine.train(task(engine.initial(i), batches=1) for i in range(60))
        assert len(outcomes) == 60
    for session in Path(nodes.head_node.get_session_dir_path()).glob("ray_spilled_objects*"):
        assert not list(session.iterdir())


@pytest.mark.usefixtures("joined")
def test_nodes_with_gpus_stack(nodes: Nodes) -> None:
    """Ray is told of a GPU that is not there; what would train on it trains on a CPU."""
    node = nodes.add_node(num_cpus=0, num_gpus=1, object_store_memory=STORE)
    nodes.wait_for_nodes()
    try:
        with closing(RayEngine(MLP, DATA, LOCAL, device="cpu")) as engine:
            plain = SequentialEngine(MLP, DATA, LOCAL)
            asked = [task(engine.initial(i), i % 4, seed=i) for i in range(40)]
            for one, other in zip(engine.train(asked), plain.train(asked), strict=True):
                torch.testing.assert_close(one.params, other.params, rtol=3e-4, atol=3e-4)
            exams = [Exam(one.start, one.samples, prior=None) for one in asked]
            for score, same in zip(engine.evaluate(exams), plain.evaluate(exams), strict=True):
                assert score.loss == pytest.approx(same.loss, rel=1e-5)
        with pytest.raises(EngineError, match="offers GPUs that torch cannot use there"):
            RayEngine(MLP, DATA, LOCAL)
    finally:
        nodes.remove_node(node)


@pytest.mark.usefixtures("joined")
def test_a_node_that_is_lost_costs_only_time(nodes: Nodes, tmp_path: Path) -> None:
    head = nodes.head_node.all_processes["raylet"][0].process.pid

    def lose_the_other() -> None:
        if os.getppid() != head:
            os.kill(os.getppid(), signal.SIGKILL)
            kill_self()

    clients = (0, 1, 0, 2, 0, 3)
    with engine_with(meeting(tmp_path, lose_the_other)) as engine:
        assert_bits(tasks(engine, clients), expected(clients))
        assert len(list(tmp_path.iterdir())) == 2
    assert any(node.dead_processes() for node in nodes.list_all_nodes())
