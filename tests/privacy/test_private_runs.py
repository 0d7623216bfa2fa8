"""Private runs: what is noised, what is spent, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sofa_fl.api.runs import run
from sofa_fl.engine.base import Exam, Task
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.errors import ConfigError, DataError
from sofa_fl.experiment.run.config import check_private_config, parse_config
from sofa_fl.federation import Federation
from sofa_fl.privacy.accounting import Cost, epsilon_of
from sofa_fl.privacy.config import PrivacyConfig
from sofa_fl.privacy.private_engine import PrivateEngine
from sofa_fl.topology.tree import NodeId
from tests.engine.cases import DATA, LOCAL, MLP, make_data
from tests.experiment.cases import own_data, tiny

PRIVATE: dict[str, Any] = {"sharing": {"ratio": 0}, "privacy": {"epsilon": 3.0}}
METHODS = ["sofa", "local", "fedavg", "hypcluster", "ditto", "fedrep", "cfl"]


def engine_of(config: PrivacyConfig, rounds: int = 2, data: Any = DATA) -> PrivateEngine:
    plain = SequentialEngine(MLP, data, LOCAL)
    return PrivateEngine(plain, data, config, LOCAL, seed=0, rounds=rounds, warmup=LOCAL.batches)


def task_of(engine: PrivateEngine, client: int = 1, seed: int = 0) -> Task:
    rows = DATA.clients[client].train
    return Task(site=NodeId(client), start=engine.initial(0), samples=rows, batches=6, seed=seed)


@pytest.mark.parametrize("method", METHODS)
def test_no_method_spends_more_than_it_may(method: str, tmp_path: Path) -> None:
    """Some train more than once a round: then they are heard in fewer rounds."""
    config = tiny(tmp_path / "run", method=method, **PRIVATE)
    result = run(config, data=own_data())
    spent = result.summary["privacy"]
    assert (spent["epsilon"], spent["delta"]) == (3.0, 1e-5)
    assert 0 < spent["spent"] <= 3.0
    assert min(spent["noise"]) > 0.3
    assert result.summary["sharing"]["disclosed_max"] == 0


def test_the_plan_is_just_what_a_run_needs() -> None:
    engine = engine_of(PrivacyConfig(epsilon=2.0))
    answers = [engine.train([task_of(engine, seed=round)])[0] for round in range(5)]
    assert [answer is not None for answer in answers] == [True, True, True, False, False]
    assert 1.99 < engine.budgets.epsilon_spent() <= 2.0
    assert engine.train([task_of(engine, client=0)])[0] is not None, "others go on"


def test_noise_that_is_given_is_used() -> None:
    engine = engine_of(PrivacyConfig(epsilon=2.0, noise=7.0))
    assert set(engine.noise.values()) == {7.0}
    answers = 0
    while engine.train([task_of(engine)])[0] is not None:
        answers += 1
    assert answers > 3, "more noise lasts longer"
    assert engine.budgets.epsilon_spent() <= 2.0


def test_scores_are_noised_paid_for_and_end() -> None:
    config = PrivacyConfig(epsilon=4.0, scores=2)
    engine = engine_of(config)
    client = DATA.clients[1]
    exam = Exam(engine.initial(0), client.holdout)
    exact = SequentialEngine(MLP, DATA, LOCAL).evaluate([exam])[0]
    scores = [engine.evaluate([exam])[0] for _ in range(8)]
    given = [score.loss for score in scores if not np.isnan(score.loss)]
    assert len(given) == 6, "two in each of three rounds"
    assert len(set(given)) > 1
    assert all(0 <= loss <= config.max_loss for loss in given)
    assert all(np.isnan(score.accuracy) for score in scores)
    costs = [Cost(1.0, engine.score_noise, 6)]
    assert 3.99 < epsilon_of(costs, config.delta) <= 4.0
    test = Exam(engine.initial(0), client.test, split="test")
    assert engine.evaluate([test]) == SequentialEngine(MLP, DATA, LOCAL).evaluate([test])
    loud = replace(config, epsilon=1e12, score_noise=1e-5)
    assert engine_of(loud).evaluate([exam])[0].loss == pytest.approx(exact.loss, abs=1e-4)


def test_without_scores_no_loss_is_told() -> None:
    engine = engine_of(PrivacyConfig(epsilon=4.0))
    exams = [Exam(engine.initial(0), client.holdout) for client in DATA.clients]
    assert all(np.isnan(score.loss) for score in engine.evaluate(exams))
    assert ("holdout" in {part for _, part in engine.budgets.spent}) is False


def test_a_score_is_about_one_client() -> None:
    engine = engine_of(PrivacyConfig(epsilon=4.0, scores=2))
    both = np.concatenate([client.holdout for client in DATA.clients])
    with pytest.raises(ConfigError, match="on the samples of one client"):
        engine.evaluate([Exam(engine.initial(0), both)])
    with pytest.raises(ConfigError, match="features of samples would leave without noise"):
        engine.embed([engine.initial(0)], both)


def test_the_class_mix_is_noised_and_stays() -> None:
    engine = engine_of(PrivacyConfig(epsilon=4.0))
    fed = Federation(DATA, engine, LOCAL, privacy=engine)
    plain = Federation(DATA, SequentialEngine(MLP, DATA, LOCAL), LOCAL)
    for client in fed.clients:
        ours, exact = fed.priors[client], plain.priors[client]
        assert ours is not None
        assert exact is not None
        assert not np.allclose(ours, exact)
        np.testing.assert_array_equal(ours, fed.at(3).priors[client])
        assert fed.task(client, engine.initial(0)).prior is ours
    counts = np.full(4, 1000)
    noised = engine.class_counts(NodeId(0), counts)
    assert 0 < np.abs(noised - counts).max() < 100
    assert (engine.class_counts(NodeId(0), np.zeros(4, dtype=np.int64)) >= 0).all()


def test_what_would_leave_without_noise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"privacy.epsilon needs sharing.ratio=0, got 0.1"):
        run(tiny(tmp_path / "a", privacy={"epsilon": 1}), data=own_data())
    assert not (tmp_path / "a").exists()
    config = parse_config(PRIVATE)
    with pytest.raises(ConfigError, match="each site sets it in its policy"):
        check_private_config(config, is_deployed=True)
    scored = {**PRIVATE, "privacy": {"epsilon": 3.0, "scores": 3}}
    latent = tiny(tmp_path / "b", **scored, sofa={"position": "latent"})
    with pytest.raises(ConfigError, match=r"use a sofa\.position other than latent"):
        run(latent, data=own_data())
    drifting = {"scenario": {"name": "swap", "at": 1}, "partition": "groups"}
    with pytest.raises(ConfigError, match="needs data that do not change"):
        run(parse_config({**PRIVATE, "data": {**drifting, "num_train": 500, "num_clients": 8}}))
    data = make_data()
    floats = replace(data.train, y=np.zeros((len(data.train), 4), dtype=np.float32))
    with pytest.raises(DataError, match="needs a classification"):
        engine_of(PrivacyConfig(epsilon=1.0), data=replace(data, train=floats))


def test_checkpoints_say_nothing_of_inputs(tmp_path: Path) -> None:
    """The mean input of a client is for `assign`, and would leave without noise."""
    from sofa_fl.experiment.storage.saving import mean_inputs_of

    engine = engine_of(PrivacyConfig(epsilon=4.0))
    fed = Federation(DATA, engine, LOCAL, privacy=engine)
    assert mean_inputs_of(fed, ()).means.size == 0
    run(tiny(tmp_path / "run", **PRIVATE), data=own_data())
    events = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert all(json.loads(event)["edits"] == [] for event in events)


def test_a_private_run_is_the_same_on_two_engines(tmp_path: Path) -> None:
    def means(engine: str) -> list[float]:
        folder = tmp_path / engine
        run(tiny(folder, engine=engine, **PRIVATE), data=own_data())
        lines = (folder / "events.jsonl").read_text().splitlines()
        return [json.loads(line)["client"]["mean"] for line in lines]

    assert means("sequential") == pytest.approx(means("stacked"), abs=0.02)
