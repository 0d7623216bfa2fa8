"""Differential privacy at a site: what is cut and noised, what it costs, and when it ends."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cases import OPEN, FakeMessenger, events, lines, machines_of, tiny
from sofa_fl.api.runs import run
from sofa_fl.data.federated_data import Arrays
from sofa_fl.data.own import from_arrays
from sofa_fl.engine.base import Exam, LocalConfig, Pull, Task
from sofa_fl.engine.learner import Learner, Store
from sofa_fl.engine.private import clipped_sums
from sofa_fl.errors import ConfigError, ModelError, RunError
from sofa_fl.privacy.accounting import Cost, epsilon_of, sampling_rate
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.gate import PrivateLearner
from sofa_fl_flower.machine.machine_data import MachineData, example_data
from sofa_fl_flower.machine.policy import Policy, load_policy
from sofa_fl_flower.machine.privacy import Budget, SitePrivacy
from sofa_fl_flower.machine.sealed_log import MemoryLog, SealedLog
from sofa_fl_flower.machine.site import Site
from sofa_fl_flower.server.server import Server
from sofa_fl_flower.transport.message_checks import RefusalError
from sofa_fl_flower.transport.run_setup import RunSetup
from sofa_fl_flower.transport.wire_message import MessageBuilder, WireMessage
from test_server import four, quiet

EXACT = SitePrivacy(epsilon=1, clip=1e9, noise=1e-12, score_noise=1e-9, max_loss=1e3)
LOCAL = LocalConfig(batches=3, batch_size=40, optimizer="sgd", learning_rate=0.1, weight_decay=0)


def samples(num: int = 40) -> Arrays:
    rng = np.random.default_rng(0)
    return from_arrays(rng.normal(size=(num, 5)).astype(np.float32), rng.integers(0, 3, num))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


def learner(arrays: Arrays | None = None, local: LocalConfig = LOCAL) -> Learner:
    arrays = samples() if arrays is None else arrays
    return Learner(network, {"train": Store(arrays), "test": Store(arrays)}, local)


def private(config: SitePrivacy, here: Learner | None = None, seed: int = 0) -> PrivateLearner:
    return PrivateLearner(here or learner(), config, np.random.default_rng(seed))


def task(here: Learner, num: int = 40, **changes: object) -> Task:
    start = here.initial(0)
    pulls = (Pull(here.initial(1), 0.1),)
    whole = Task(
        site=NodeId(0), start=start, samples=np.arange(num), batches=3, seed=0, pulls=pulls
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_without_cut_and_noise_it_is_plain_training() -> None:
    """A batch of all samples is drawn with certainty."""
    here = learner()
    plain, dp = here.train(task(here)), private(EXACT).train(task(here))
    torch.testing.assert_close(dp.params, plain.params, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dp.losses, plain.losses, rtol=1e-3)
    exam = Exam(here.initial(0), np.arange(40), "test")
    score, exact = private(EXACT).evaluate(exam), here.evaluate(exam)
    assert score.loss == pytest.approx(exact.loss, rel=1e-4)
    assert score.accuracy == pytest.approx(exact.accuracy, abs=1e-4)
    assert score.num_samples == exact.num_samples


@pytest.mark.parametrize("position", [0, 17])
def test_one_sample_changes_a_batch_by_no_more_than_the_clip(position: int) -> None:
    """Also one that is far out: the whole of the sum, gradient and loss together."""
    config = replace(EXACT, clip=0.5, max_loss=2.0)
    arrays = samples()
    wild = replace(arrays, x=arrays.x.copy())
    wild.x[position] = 1e4
    model = learner().initial(0)
    sums = []
    for some in (arrays, wild):
        for rows in (np.arange(40), np.delete(np.arange(40), position)):
            here = learner(some)
            here.flat.load(model)
            noising = private(config, here).noising
            found, loss = clipped_sums(
                here, torch.from_numpy(rows), torch.zeros(3), noising, slice(None)
            )
            sums.append((torch.cat([part.flatten() for part in found]).double(), loss))
    for (more, more_loss), (less, less_loss) in (sums[:2], sums[2:]):
        assert 0 < float(torch.linalg.vector_norm(more - less)) <= 0.5 + 1e-5
        assert 0 <= more_loss - less_loss <= 2.0 + 1e-6


def test_a_gradient_that_is_not_finite_counts_as_nothing() -> None:
    arrays = samples()
    broken = replace(arrays, x=arrays.x.copy())
    broken.x[3] = np.nan
    here = learner(broken)
    here.flat.load(here.initial(0))
    noising = private(EXACT, here).noising
    found, loss = clipped_sums(here, torch.arange(40), torch.zeros(3), noising, slice(None))
    assert all(part.isfinite().all() for part in found)
    assert math.isfinite(loss)


def test_the_noise_is_as_strong_as_it_says() -> None:
    """A batch in which no sample is: only noise moves the model."""
    config = SitePrivacy(epsilon=1, clip=2.0, noise=3.0)
    local = replace(LOCAL, batches=1, batch_size=1)
    here = learner(samples(), local)
    dp = private(config, here)
    dp.rng = Quiet(0)  # type: ignore[assignment]
    moved = []
    for _ in range(50):
        asked = task(here, batches=1, pulls=())
        outcome = dp.train(asked)
        moved.append((outcome.params - here.initial(0)) / -0.1)
    spread = float(torch.stack(moved).std())
    assert spread == pytest.approx(3.0 * 2.0 * math.sqrt(1.01), rel=0.03)


class Quiet:
    """Draws no sample, but noise."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def random(self, num: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.ones(num)

    def standard_normal(self, shape: object = None) -> object:
        return self.rng.standard_normal(shape)  # type: ignore[call-overload]


def test_scores_are_noised_and_possible() -> None:
    here = learner()
    exam = Exam(here.initial(0), np.arange(40), "test")
    config = SitePrivacy(epsilon=1, score_noise=2.0, max_loss=5.0)
    scores = [private(config, here, seed).evaluate(exam) for seed in range(300)]
    exact = here.evaluate(exam)
    losses = np.array([score.loss for score in scores])
    assert losses.std() == pytest.approx(5.0 * 2.0 * math.sqrt(2) / 40, rel=0.15)
    assert losses.mean() == pytest.approx(exact.loss, abs=0.1)
    wild = replace(config, score_noise=1e3)
    for seed in range(20):
        score = private(wild, here, seed).evaluate(exam)
        assert 0 <= score.loss <= 5
        assert 0 <= score.accuracy <= 1


def test_batches_are_drawn_one_by_one() -> None:
    assert sampling_rate(1000, 50) == 0.05
    assert sampling_rate(10, 50) == 1


def test_what_cannot_be_private_is_refused() -> None:
    def with_norm() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    with pytest.raises(ModelError, match="is not possible with BatchNorm"):
        private(EXACT, Learner(with_norm, {"train": Store(samples())}, LOCAL))
    x = samples().x
    regression = Store(from_arrays(x, x[:, :3]))
    with pytest.raises(ModelError, match="only in classification"):
        private(EXACT, Learner(network, {"train": regression}, LOCAL))


def test_costs_are_those_of_the_accountant() -> None:
    """Known values: the Gaussian mechanism, and DP-SGD as in the tutorials of such accountants."""
    assert epsilon_of([], 1e-5) == 0
    once = epsilon_of([Cost(1.0, 4.0)], 1e-5)
    assert 1.0 < once < 1.4
    assert epsilon_of([Cost(1.0, 4.0)] * 4, 1e-5) == pytest.approx(
        epsilon_of([Cost(1.0, 2.0)], 1e-5), rel=0.02
    )
    # MNIST in batches of 250 for 15 epochs: 1.18 by the older way from divergences to epsilon.
    mnist = epsilon_of([Cost(250 / 60000, 1.3, 15 * 240)], 1e-5)
    assert 0.8 < mnist < 1.19


def test_a_budget_ends() -> None:
    config = SitePrivacy(epsilon=3.0)
    budget = Budget(config, MemoryLog())
    cost = Cost(0.05, 1.0, 5)
    while epsilon_of([Cost(0.05, 1.0, 5 + 5 * len(budget.log.read().splitlines()))], 1e-5) <= 3:
        budget.spend("train", cost)
    assert len(budget.log.read().splitlines()) > 5
    assert 2 < budget.spent()["train"] <= 3.0
    with pytest.raises(RefusalError, match=r"its train samples have cost epsilon = 3.* of 3,"):
        budget.spend("train", cost)
    budget.spend("holdout", Cost(1.0, 20.0))  # other samples have a budget of their own
    assert budget.spent()["holdout"] < 1


def test_a_budget_is_kept_over_restarts_and_fails_closed(tmp_path: Path) -> None:
    config, file, key = SitePrivacy(epsilon=3.0), tmp_path / "budget", b"k" * 32
    with pytest.raises(RunError, match="missing or damaged"):
        Budget(config, SealedLog(file, key)).spend("train", Cost(1.0, 4.0))
    SealedLog.create(file, key)
    Budget(config, SealedLog(file, key)).spend("train", Cost(1.0, 4.0), counts=[1.5, 2.0])
    budget = Budget(config, SealedLog(file, key))
    assert budget.recorded("counts") == [1.5, 2.0]
    assert budget.spent()["train"] > 1
    with file.open("ab") as torn:
        torn.write(b'{"part": "tr')
    budget.spend("train", Cost(1.0, 8.0))
    assert len(file.read_bytes().splitlines()) == 2
    file.write_bytes(b"")
    with pytest.raises(RunError, match="truncated or altered"):
        budget.spend("train", Cost(1.0, 4.0))


def site_config(**changes: float) -> Policy:
    values = {"epsilon": 8.0, "noise": 1.0, "score_noise": 3.0, **changes}
    return replace(OPEN, max_disclosure=0.0, embeds=False, privacy=SitePrivacy(**values))


def ask_to_train(here: ClientMachine) -> WireMessage:
    builder = MessageBuilder()
    header = {
        "start": builder.add_model(here.learner.initial(0)),
        "given": None, "batches": 2, "seed": 0, "pulls": None, "prior": True,
    }  # fmt: skip
    return here.answer(builder.message(tasks=[header]))


def trained_in(answer: WireMessage) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(answer.arrays[answer.header["outcomes"][0]["params"]])


def test_a_private_machine_answers_until_its_budget_is_spent() -> None:
    """The server's seed does not say what the noise is, and the class mix is noised once."""
    config = tiny()
    setup = RunSetup(seed=0, local=config.local, model=config.model, num_outputs=10)
    site = Site(b"k" * 32)
    data = example_data(config.data, 0, 1)
    here = ClientMachine(data, setup, site_config(), site)
    first, second = trained_in(ask_to_train(here)), trained_in(ask_to_train(here))
    assert not np.array_equal(first, second)
    lines = [json.loads(line) for line in site.spent.read().splitlines()]
    assert [("counts" in line, line["cost"][2]) for line in lines] == [
        (True, 1),
        (False, 2),
        (False, 2),
    ]
    again = ClientMachine(data, setup, site_config(), site)  # another process, the same state
    answered = 0
    with contextlib.suppress(RefusalError):
        for _ in range(1000):
            ask_to_train(again)
            answered += 1
    assert 2 < answered < 1000
    assert again.gate.budget.spent()["train"] <= 8
    with pytest.raises(
        RefusalError, match="this site's privacy budget does not allow this request"
    ):
        ask_to_train(again)
    builder = MessageBuilder()
    exam = {"params": builder.add_model(here.learner.initial(0)), "split": "holdout", "prior": True}
    (score,) = again.answer(builder.message(exams=[exam])).header["scores"]
    assert score[2] == len(again.samples) - len(data.train), "held-out samples are other ones"


def test_a_private_site_gives_nothing_without_noise(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    for line in ("max_disclosure = 0.1", "embeds = true"):
        file.write_text(f"state = '/s'\n{line}\n[privacy]\nepsilon = 2")
        load_policy.cache_clear()
        with pytest.raises(ConfigError, match="max_disclosure must be 0 and embeds false"):
            load_policy(file)
    x = samples().x
    data = MachineData(from_arrays(x, x[:, :3]))
    config = tiny()
    setup = RunSetup(seed=0, local=config.local, model=config.model, num_outputs=3)
    with pytest.raises(RefusalError, match="only in classification"):
        ClientMachine(data, setup, site_config(), Site(b"k" * 32))


def test_a_run_of_private_machines_goes_on_without_those_that_are_spent(tmp_path: Path) -> None:
    config = tiny(rounds=3)
    machines = machines_of(config)
    for machine in machines.values():
        machine.policy = site_config(epsilon=1e4)
    machines[99].policy = site_config(epsilon=6.0)
    Server(FakeMessenger(machines), config, four(tmp_path), quiet).run()
    found = events(tmp_path)
    assert len(found) == 4
    assert found[-1]["absent"] == [1]
    said = [line["why"] for line in lines(tmp_path) if "set_aside" in line]
    assert said
    assert all("privacy budget does not allow this request" in why for why in said)
    assert all(0 <= accuracy <= 1 for accuracy in found[-1]["accuracies"] if accuracy is not None)
    assert max(found[-1]["disclosed"]) == 0


@pytest.mark.parametrize("evidence", ["losses", "models"])
def test_a_tree_from_models_alone_costs_the_held_out_samples_nothing(
    evidence: str, tmp_path: Path
) -> None:
    config = tiny(rounds=2, sofa={"evidence": evidence}, sharing={"ratio": 0})
    machines = machines_of(config)
    for machine in machines.values():
        machine.policy = site_config(epsilon=1e6)
    Server(FakeMessenger(machines), config, four(tmp_path), quiet).run()
    assert len(events(tmp_path)) == 3
    for machine in machines.values():
        spent = Budget(machine.policy.privacy, machine.site.spent).spent()
        assert spent["train"] > 0
        assert ("holdout" in spent) == (evidence == "losses")


def test_without_noise_models_alone_find_the_groups(tmp_path: Path) -> None:
    """Twelve clients in two groups; nobody tells a loss."""
    config = tiny(
        rounds=3, warmup=15, sharing={"ratio": 0}, sofa={"evidence": "models"},
        data={**GROUPS, "num_clients": 12, "num_train": 2400, "holdout": 0.1},
        local={"batches": 10, "batch_size": 50, "optimizer": "sgd", "learning_rate": 0.2},
    )  # fmt: skip
    result = run(replace(config, out=str(tmp_path / "run")))
    assert result.summary["groups"]["ari"] == [1.0]
    assert len(events(tmp_path / "run")) == 4


GROUPS = {"num_test": 120, "partition": "groups", "num_rotations": 2, "num_swaps": 1}
