"""What a site refuses, whatever the server asks, and what its operator may write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cases import FakeMessenger, events, lines, machines_of, tiny
from sofa_fl.data.own import from_arrays
from sofa_fl.engine.base import LocalConfig
from sofa_fl.errors import ConfigError
from sofa_fl.models.config import ModelConfig
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import MachineData, with_holdout
from sofa_fl_flower.machine.policy import Policy, check_app, load_policy
from sofa_fl_flower.machine.site import Site, create_site
from sofa_fl_flower.server.server import Server
from sofa_fl_flower.transport.message_checks import RefusalError
from sofa_fl_flower.transport.run_setup import RunSetup
from sofa_fl_flower.transport.wire_message import MessageBuilder, WireMessage
from test_server import four, quiet

LINEAR = ModelConfig(name="mlp", hidden=16)
POLICY = Policy(state="", model=LINEAR)
SETUP = RunSetup(
    seed=0, local=LocalConfig(batches=1, batch_size=30), model=LINEAR, num_outputs=3
)  # fmt: skip


def clinic(num: int = 600) -> MachineData:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(num, 4)).astype(np.float32), rng.integers(0, 3, num)
    return MachineData(from_arrays(x, y), from_arrays(x[:40], y[:40]))


def machine(policy: Policy = POLICY, setup: RunSetup = SETUP) -> ClientMachine:
    return ClientMachine(clinic(), setup, policy, Site(b"k" * 32))


def task(here: ClientMachine, builder: MessageBuilder, **changes: Any) -> dict[str, Any]:
    return {
        "start": builder.add_model(here.learner.initial(0)),
        "given": None, "batches": 1, "seed": 0, "pulls": None, "prior": True,
        **changes,
    }  # fmt: skip


def test_no_request_can_name_a_row() -> None:
    """Neither to train on, nor to be evaluated on: what a message says of rows is not read."""
    here, builder = machine(replace(POLICY, own_batches=False)), MessageBuilder()
    one = builder.add(np.zeros(1, dtype=np.int32))
    exam = {"params": builder.add_model(here.learner.initial(0)), "prior": False}
    exams = [{**exam, "split": name, "samples": one} for name in ("train", "holdout", "test")]
    trained = task(here, builder, samples=one)
    answer = here.answer(builder.message(tasks=[trained], exams=exams))
    num_train = len(here.data.train)
    sizes = [num_train, 600 - num_train, 40]
    assert [score[2] for score in answer.header["scores"]] == sizes
    assert 540 < num_train < 600
    same, builder = machine(replace(POLICY, own_batches=False)), MessageBuilder()
    other = same.answer(builder.message(tasks=[task(same, builder)]))
    assert np.array_equal(trained_in(answer), trained_in(other))


def trained_in(answer: WireMessage) -> NDArray[Any]:
    return answer.arrays[answer.header["outcomes"][0]["params"]]


@pytest.mark.parametrize("size", [1, 5, 19])
def test_a_training_on_few_rows_is_refused(size: int) -> None:
    setup = replace(SETUP, local=replace(SETUP.local, batch_size=size))
    here, builder = machine(setup=setup), MessageBuilder()
    with pytest.raises(RefusalError, match=f"one would have {size}"):
        here.answer(builder.message(tasks=[task(here, builder, batches=100)]))


def test_own_rows_cannot_hide_among_those_of_others() -> None:
    """A batch of 29 samples that the server knows and one that it does not tells of that one."""
    here, builder = machine(replace(POLICY, max_received=10)), MessageBuilder()
    builder.add(np.zeros((5000, 4), np.float32), "given_x")
    builder.add(np.zeros(5000, np.int64), "given_y")
    given = builder.add(np.arange(5000, dtype=np.int32))
    with pytest.raises(RefusalError, match="at least 20 distinct samples of this site"):
        here.answer(builder.message(tasks=[task(here, builder, given=given)]))


def test_a_batch_that_begins_anew_counts_a_row_once() -> None:
    setup = replace(SETUP, local=replace(SETUP.local, batch_size=64))
    policy = replace(POLICY, holdout=0, own_batches=False)
    here = ClientMachine(clinic(60), setup, policy, Site(b"k" * 32))
    builder = MessageBuilder()
    assert here.answer(builder.message(tasks=[task(here, builder, batches=3)])).arrays
    strict = replace(policy, min_rows=60)
    here, builder = ClientMachine(clinic(60), setup, strict, Site(b"k" * 32)), MessageBuilder()
    with pytest.raises(RefusalError, match="one would have 5"):
        here.answer(builder.message(tasks=[task(here, builder, batches=3)]))


def test_embeds_are_off() -> None:
    here, builder = machine(), MessageBuilder()
    header = {"model": builder.add_model(here.learner.initial(0))}
    with pytest.raises(RefusalError, match="returns no features"):
        here.answer(builder.message(embeds=[header]))


def test_an_embedding_is_a_mean_over_all_rows() -> None:
    """Also if the server asks for one row."""
    here, builder = machine(replace(POLICY, embeds=True)), MessageBuilder()
    model = here.learner.initial(0)
    one = builder.add(np.zeros(1, dtype=np.int32))
    answer = here.answer(
        builder.message(embeds=[{"model": builder.add_model(model), "samples": one}])
    )
    (name,) = answer.header["embeds"]
    whole = here.learner.embed(model, np.arange(len(here.data.train)))
    np.testing.assert_allclose(answer.arrays[name], whole, rtol=1e-6)


def test_small_splits_do_not_take_part() -> None:
    with pytest.raises(RefusalError, match="held-out samples; it needs more"):
        ClientMachine(clinic(200), SETUP, POLICY, Site(b"k" * 32))
    with pytest.raises(RefusalError, match="has only 19 training samples"):
        ClientMachine(clinic(19), SETUP, replace(POLICY, holdout=0), Site(b"k" * 32))


def test_few_test_samples_are_not_scored() -> None:
    data = replace(clinic(), test=clinic(19).train)
    here = ClientMachine(data, SETUP, POLICY, Site(b"k" * 32))
    assert here.profile().num_test == 0
    builder = MessageBuilder()
    exam = {"params": builder.add_model(here.learner.initial(0)), "prior": False, "split": "test"}
    assert here.answer(builder.message(exams=[exam])).header["scores"][0][2] == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": ModelConfig(name="mlp", hidden=17)}, "this site trains"),
        ({"local": LocalConfig(learning_rate=0.2)}, "local.learning_rate may be at most 0.1"),
        ({"local": LocalConfig(momentum=1.5)}, "local.momentum"),
        ({"local": LocalConfig(weight_decay=100)}, "local.weight_decay"),
        ({"num_outputs": 10**6}, "num_outputs may be at most 1000"),
        ({"num_outputs": -1}, "num_outputs"),
    ],
)  # fmt: skip
def test_another_network_or_optimizer_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(RefusalError, match=why):
        machine(setup=replace(SETUP, **change))


def test_too_many_requests_are_refused() -> None:
    here, builder = machine(), MessageBuilder()
    tasks = [task(here, builder)] * 129
    with pytest.raises(RefusalError, match="at most 128 requests"):
        here.answer(builder.message(tasks=tasks))


def test_the_site_draws_its_own_holdout() -> None:
    """The same samples in any order, and a sample that comes or goes moves no other."""
    data = clinic()
    order = np.random.default_rng(1).permutation(600)
    held = [
        {row.tobytes() for row in with_holdout(some, 0.05).holdout.x}  # type: ignore[union-attr]
        for some in (
            data,
            MachineData(data.train.take(order)),
            MachineData(data.train.take(order[:-1])),
        )
    ]
    assert 15 < len(held[0]) < 45
    assert held[0] == held[1]
    last = data.train.x[order[-1]].tobytes()
    assert held[0] - {last} == held[2]


def test_a_refusal_is_logged_and_the_run_goes_on(tmp_path: Path) -> None:
    config = tiny(rounds=2, sofa={"position": "latent"})
    machines = machines_of(config)
    machines[99].policy = replace(machines[99].policy, embeds=False)
    printed: list[str] = []
    messenger = FakeMessenger(machines)
    Server(messenger, config, four(tmp_path), printed.append).run()
    assert len(events(tmp_path)) == 3
    said = [line["why"] for line in lines(tmp_path) if "set_aside" in line]
    assert said
    assert all("this site returns no features of its samples" in why for why in said)
    assert any("client 1 is set aside: it declined" in line for line in printed)


def test_who_declines_to_take_part_is_not_waited_for(tmp_path: Path) -> None:
    config = tiny(rounds=1)
    machines = machines_of(config)
    machines[99].policy = replace(machines[99].policy, min_rows=50)
    Server(FakeMessenger(machines), config, replace(four(tmp_path), clients=3), quiet).run()
    assert events(tmp_path)[-1]["clients"] == [0, 1, 2]
    said = [line for line in lines(tmp_path) if "set_aside" in line]
    assert len(said) == 1, "it is not asked again and again"
    assert "at least 50 samples" in said[0]["why"]


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("min_row = 3\nstate = '/s'", "unknown key min_row; did you mean min_rows"),
        ("min_rows = 0\nstate = '/s'", "min_rows: input should be greater than or equal to 1"),
        ("max_disclosure = 2\nstate = '/s'", "max_disclosure"),
        ("state = 's'", "state .* must be an absolute path, got 's'"),
        ("state = '/s'\napp = 'a'", "app .* must be an absolute path"),
        ("min_rows = 3", "state"),
        ("min_rows", "not valid TOML"),
    ],
)
def test_a_wrong_policy_is_named_in_a_sentence(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        load_policy(write(tmp_path, text))


def test_a_new_site_has_the_defaults_and_is_private(tmp_path: Path) -> None:
    folder = create_site(tmp_path / "site", tmp_path / "app")
    policy = load_policy(folder / "policy.toml")
    assert policy == Policy(state=str(folder / "state"), app=str(tmp_path / "app"))
    for path in [folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    with pytest.raises(ConfigError, match="must be a new or empty folder"):
        create_site(tmp_path / "site", tmp_path / "app")


def test_a_policy_names_one_app(tmp_path: Path) -> None:
    for policy in (POLICY, replace(POLICY, app="/a", app_hash="b")):
        with pytest.raises(ConfigError, match="must name the app that may run"):
            check_app(policy)
    with pytest.raises(ConfigError, match="must be a Flower app"):
        check_app(replace(POLICY, app=str(tmp_path)))
    (tmp_path / "pyproject.toml").touch()
    check_app(replace(POLICY, app=str(tmp_path)))
    check_app(replace(POLICY, app_hash="b"))


def test_a_machine_answers_hello_with_nothing_of_its_samples() -> None:
    hello = machine().hello()
    assert isinstance(hello, WireMessage)
    other = ClientMachine(clinic(), SETUP, POLICY, Site(b"l" * 32)).hello()
    assert hello.header["fingerprint"] != other.header["fingerprint"], "nobody can guess samples"
    assert hello.header["identity"] != other.header["identity"]
