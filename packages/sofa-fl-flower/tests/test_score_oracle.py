"""A hostile server that reads samples from scores, each of which is on all of a site's samples.

A crafted network is constant for all samples but one, which it finds by counting how many lie in a
half-space; the mean loss is then a number of that sample.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cases import FakeMessenger, events, lines, machines_of, tiny
from sofa_fl.data.own import from_arrays
from sofa_fl.engine.base import LocalConfig
from sofa_fl.models.config import ModelConfig
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.coarse import CoarseLearner
from sofa_fl_flower.machine.machine_data import MachineData
from sofa_fl_flower.machine.policy import Policy, load_policy
from sofa_fl_flower.machine.privacy import SitePrivacy
from sofa_fl_flower.machine.site import Site, create_site, open_site
from sofa_fl_flower.machine.site_report import site_report
from sofa_fl_flower.server.server import Server
from sofa_fl_flower.transport.machine_profile import MachineProfile, pooled_variance
from sofa_fl_flower.transport.message_checks import RefusalError
from sofa_fl_flower.transport.run_setup import RunSetup
from sofa_fl_flower.transport.wire_message import MessageBuilder
from test_server import four, quiet

NETWORK = ModelConfig(name="mlp", hidden=4)
CLASSES = 3
FEATURES = 8
SITE = Policy(state="", model=NETWORK)  # all else by default
Matrix = NDArray[np.float64]


def setup(num_outputs: int = CLASSES) -> RunSetup:
    local = LocalConfig(batches=2, batch_size=30)
    return RunSetup(seed=0, local=local, model=NETWORK, num_outputs=num_outputs)


def clinic(features: int = FEATURES) -> MachineData:
    """Bytes, as of an image."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (600, features), dtype=np.uint8)
    return MachineData(from_arrays(x, rng.integers(0, CLASSES, 600)), None)


def machine(
    policy: Policy = SITE, data: MachineData | None = None, site: Site | None = None
) -> ClientMachine:
    return ClientMachine(data or clinic(), setup(), policy, site or Site(b"k" * 32))


class Oracle:
    """What a server learns of one sample by asking a site for scores."""

    def __init__(self, here: ClientMachine, features: int = FEATURES) -> None:
        self.here, self.features, self.asked = here, features, 0
        self.way = np.random.default_rng(1).normal(size=features)  # any direction will do
        self.way /= np.abs(self.way).sum()
        self.label = 0

    def losses(self, rows: Matrix, biases: list[float], classes: list[int]) -> Matrix:
        """The summed loss, above that of a guess, if the first hidden unit less the second one
        speaks against a class; of each class."""
        layer = np.zeros((4, self.features))
        layer[:2] = rows
        builder, exams = MessageBuilder(), []
        for label in classes:
            out = np.zeros((CLASSES, 4))
            out[label, :2] = -1, 1
            numbers = [layer.ravel(), np.array(biases), np.zeros(2), out.ravel(), np.zeros(CLASSES)]
            model = torch.from_numpy(np.concatenate(numbers).astype(np.float32))
            exam = {"params": builder.add_model(model), "split": "train", "prior": False}
            exams.append(exam)
        self.asked += len(exams)
        scores = self.here.answer(builder.message(exams=exams)).header["scores"]
        return np.array([(loss - math.log(CLASSES)) * num for loss, _, num in scores])

    def is_alone(self, bar: float) -> bool | None:
        """Whether one sample lies beyond a bar; None if none does."""
        steep = 1e3
        biases = [-steep * bar, -steep * bar - 4]  # the difference is 4 beyond the bar, 0 before it
        found = self.losses(steep * np.stack([self.way] * 2), biases, list(range(CLASSES)))
        self.label = int(found.argmax())
        return None if found.max() < 1 else bool(found.sum() < 4 and found[found > 1].size == 1)

    def gate(self) -> tuple[Matrix, float]:
        """What is far below 0 for all samples but one, and above 0 for that one."""
        low, high = -255.0, 255.0  # beyond these are several samples, and none
        while not (found := self.is_alone(bar := (low + high) / 2)):
            low, high = (low, bar) if found is None else (bar, high)
            if self.asked > 100:
                raise LookupError("no single sample is in any half-space that it can find")
        below = above = bar  # the sample lies above; the next one lies below
        for _ in range(5):
            middle = (above + high) / 2
            above, high = (middle, high) if self.is_alone(middle) else (above, middle)
            middle = (low + below) / 2
            below, low = (middle, low) if self.is_alone(middle) else (below, middle)
        self.is_alone(above)  # whose label it is
        gain = 400 / (above - below)
        return gain * self.way, -gain * above

    def read(self) -> NDArray[np.uint8]:
        """A byte by each loss: of all samples, the network passes on that of one."""
        gate, bias = self.gate()
        found = []
        for row in np.eye(self.features):
            (lost,) = self.losses(np.stack([gate + row, gate]), [bias, bias], [self.label])
            odds = (CLASSES * math.exp(min(lost, 600)) - 1) / (CLASSES - 1)
            found.append(round(math.log(max(odds, 1.0))))
        return np.array(found).astype(np.uint8)

    def read_bit_by_bit(self) -> NDArray[np.uint8]:
        """A bit by each loss, which even a coarse one tells."""
        gate, bias = self.gate()
        found = np.zeros(self.features)
        for at, row in enumerate(np.eye(self.features)):
            for bit in (128, 64, 32, 16, 8, 4, 2, 1):
                least = found[at] + bit - 0.5
                rows, biases = 8 * np.stack([gate + row, gate]), [8 * (bias - least), 8 * bias]
                (lost,) = self.losses(rows, biases, [self.label])
                found[at] += bit * (lost > 1)
        return found.astype(np.uint8)


def is_a_sample(found: NDArray[np.uint8], here: ClientMachine) -> bool:
    return bool((here.data.train.x == found).all(axis=1).any())


def test_exact_scores_tell_a_sample_bit_for_bit() -> None:
    """So it was by default, in any number of messages."""
    here = machine(replace(SITE, coarse_scores=False))
    oracle = Oracle(here)
    assert is_a_sample(oracle.read(), here)
    assert oracle.asked < 100


def test_a_loss_is_too_coarse_for_a_byte() -> None:
    here = machine()
    assert not is_a_sample(Oracle(here).read(), here)


def test_a_patient_server_is_ended_by_the_number_of_scores() -> None:
    """Rounded or not, each score may tell a bit of a sample, so only their number counts."""
    unlimited = machine(replace(SITE, max_scores=None))
    assert is_a_sample(Oracle(unlimited).read_bit_by_bit(), unlimited)
    oracle = Oracle(machine(replace(SITE, max_scores=100)))
    with pytest.raises(RefusalError, match="has told 100 of at most 100 losses and scores"):
        oracle.read_bit_by_bit()
    assert oracle.asked == 101


def test_noise_keeps_a_sample_whatever_the_number_of_scores() -> None:
    here = machine(replace(SITE, max_scores=0, privacy=SitePrivacy(epsilon=3.0)))
    found = None
    with contextlib.suppress(LookupError, RefusalError):
        found = Oracle(here).read_bit_by_bit()
    assert found is None or not is_a_sample(found, here)


def train(here: ClientMachine, **changes: object) -> dict[str, NDArray[np.float32]]:
    builder = MessageBuilder()
    header = {
        "start": builder.add_model(here.learner.initial(0)),
        "given": None, "batches": 5, "seed": 0, "pulls": None, "prior": False,
        **changes,
    }  # fmt: skip
    answer = here.answer(builder.message(tasks=[header]))
    (outcome,) = answer.header["outcomes"]
    return {name: answer.arrays[array] for name, array in outcome.items()}


def evaluate(here: ClientMachine, times: int = 1, scale: float = 1.0) -> list[list[float]]:
    builder = MessageBuilder()
    model = scale * here.learner.initial(0)
    exam = {"params": builder.add_model(model), "split": "holdout", "prior": False}
    scores: list[list[float]] = here.answer(builder.message(exams=[exam] * times)).header["scores"]
    return scores


def test_a_training_tells_one_rounded_number_beside_its_model() -> None:
    """Without a step, the losses of its batches would be so many scores of one model."""
    here, exact = machine(), machine(replace(SITE, coarse_scores=False))
    losses = train(here, learning_rate=0.0)["losses"]
    assert losses.shape == (5,)
    assert losses.tolist() == [np.float32(round(float(losses[0]), 3))] * 5
    own = train(exact, learning_rate=0.0)["losses"]
    assert losses[0] <= math.log(CLASSES) + 2.5, "it is clipped"
    assert len(set(own.tolist())) == 5
    assert here.record.num_scores() == 1


def test_a_model_is_the_same_whatever_is_told_of_its_losses() -> None:
    plain = replace(SITE, own_batches=False)
    first, second = [
        train(machine(replace(plain, coarse_scores=coarse)))["params"] for coarse in (True, False)
    ]
    assert np.array_equal(first, second)


def test_a_score_is_near_the_exact_one() -> None:
    data = clinic()
    data = MachineData(replace(data.train, scale=1 / 255), None)
    ((loss, accuracy, num),) = evaluate(machine(data=data))
    ((exact, share, same),) = evaluate(machine(replace(SITE, coarse_scores=False), data))
    assert (loss, accuracy, num) == (round(exact, 3), round(share, 3), same)
    assert loss != exact


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_model_that_has_diverged_has_no_score(value: float) -> None:
    here, builder = machine(), MessageBuilder()
    model = torch.full_like(here.learner.initial(0), value)
    exam = {"params": builder.add_model(model), "split": "train", "prior": False}
    ((loss, _, num),) = here.answer(builder.message(exams=[exam])).header["scores"]
    assert math.isnan(loss)
    assert num == len(here.data.train)


def test_losses_that_are_no_numbers_count_as_the_largest() -> None:
    here, builder = machine(), MessageBuilder()
    model = torch.full_like(here.learner.initial(0), 1e30)
    exam = {"params": builder.add_model(model), "split": "train", "prior": False}
    ((loss, _, _),) = here.answer(builder.message(exams=[exam])).header["scores"]
    assert loss == round(math.log(CLASSES) + 2.5, 3)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_a_regression_is_rounded_to_the_scale_of_its_targets(scale: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4)).astype(np.float32)
    y = scale * (x[:, 0] + 0.1 * rng.normal(size=600)) + 3 * scale
    data = MachineData(from_arrays(x, y.astype(np.float32)), None)
    here, exact = (
        ClientMachine(data, setup(1), replace(SITE, coarse_scores=coarse), Site(b"k" * 32))
        for coarse in (True, False)
    )
    small = min(1.0, scale)
    ((loss, explained, _),) = evaluate(here, scale=small)
    ((fine, share, _),) = evaluate(exact, scale=small)
    assert loss == pytest.approx(fine, abs=2e-3 * y.var())
    assert loss != fine
    assert explained == pytest.approx(share, abs=5e-3)
    profiles = [MachineProfile.read(machine.hello()) for machine in (here, exact)]
    assert profiles[0].target_sums != profiles[1].target_sums, "one target more would be told"
    assert pooled_variance(profiles[:1]) == pytest.approx(y.var(), rel=0.1)
    coarse = here.gate.plain
    assert isinstance(coarse, CoarseLearner)
    assert coarse.max_loss > 4 * (y**2).mean(), "clips only what is far off"
    train(here)


def test_the_number_of_scores_outlives_restarts_and_runs(tmp_path: Path) -> None:
    """Trainings count as well: each tells a loss."""
    state = create_site(tmp_path / "site", tmp_path / "app") / "state"
    policy = replace(SITE, max_scores=5)
    first = machine(policy, site=open_site(state))
    evaluate(first, times=2)
    train(first)
    for run in (1, 2):
        later = replace(setup(), seed=run)  # another run, after a restart
        again = ClientMachine(clinic(), later, policy, open_site(state))
        evaluate(again)
    with pytest.raises(
        RefusalError,
        match=r"has told 5 of at most 5 .* in all runs together, and was asked for 1 more; its "
        "operator can raise max_scores in its policy, or set privacy.epsilon",
    ):
        evaluate(again)
    with pytest.raises(RefusalError, match="has told 5 of at most 5"):
        train(again)
    assert evaluate(machine(replace(policy, max_scores=6), site=open_site(state)))
    private = replace(policy, privacy=SitePrivacy(epsilon=100.0))
    assert evaluate(machine(private, site=open_site(state))), "noise has a budget of its own"


def test_what_is_asked_at_once_is_refused_at_once() -> None:
    here = machine(replace(SITE, max_scores=5))
    with pytest.raises(RefusalError, match=r"told 0 of at most 5 .* asked for 6 more"):
        evaluate(here, times=6)
    assert here.record.num_scores() == 0


def test_a_mean_feature_counts_as_many_scores_as_it_has_numbers() -> None:
    here, builder = machine(replace(SITE, embeds=True, max_scores=7)), MessageBuilder()
    header = {"model": builder.add_model(here.learner.initial(0))}
    assert here.answer(builder.message(embeds=[header])).arrays
    assert here.record.num_scores() == 4
    with pytest.raises(RefusalError, match="told 4 of at most 7"):
        here.answer(builder.message(embeds=[header]))


def test_a_message_asks_for_few_things() -> None:
    here = machine()
    with pytest.raises(RefusalError, match=r"at most 128 requests .* raise max_requests"):
        evaluate(here, times=129)
    builder = MessageBuilder()
    task = {"start": builder.add_model(here.learner.initial(0))}
    with pytest.raises(RefusalError, match=r"at most 2 trainings .* raise max_trainings"):
        here.answer(builder.message(tasks=[task] * 3))


def test_a_batch_cannot_fill_the_memory() -> None:
    large = replace(setup(), local=LocalConfig(batch_size=1 << 16))
    with pytest.raises(RefusalError, match=r"local.batch_size may be at most 2\d\d\d at this site"):
        ClientMachine(clinic(), large, SITE, Site(b"k" * 32))


def test_the_audit_says_how_many_scores_left_and_what_bounds_them(tmp_path: Path) -> None:
    folder = create_site(tmp_path / "site", tmp_path / "app")
    policy = replace(load_policy(folder / "policy.toml"), model=NETWORK)
    evaluate(machine(policy, site=open_site(folder / "state")), times=3)
    assert site_report(policy)[-1] == (
        "scores: 3 without noise, of at most 3,000; only noise bounds what 3 scores can reveal"
    )


def test_a_run_goes_on_without_a_site_that_has_told_all_its_scores(tmp_path: Path) -> None:
    config = tiny(rounds=2)
    machines = machines_of(config)
    machines[99].policy = replace(machines[99].policy, max_scores=6)
    Server(FakeMessenger(machines), config, four(tmp_path), quiet).run()
    assert events(tmp_path)[-1]["absent"] == [1]
    said = [line["why"] for line in lines(tmp_path) if "set_aside" in line]
    assert said
    assert all("at most 6 losses and scores without noise" in why for why in said)


def test_a_run_with_coarse_scores_is_about_as_good(tmp_path: Path) -> None:
    means = []
    for coarse in (True, False):
        config = tiny(rounds=2, sharing={"ratio": 0})
        machines = machines_of(config)
        for one in machines.values():
            one.policy = replace(one.policy, coarse_scores=coarse)
        result = Server(FakeMessenger(machines), config, four(tmp_path / str(coarse)), quiet).run()
        means.append(result.summary["client"]["mean"])
    assert means[0] == pytest.approx(means[1], abs=0.03)
