"""Messages of every kind with anything in any place: nothing dies of them, on either side."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import MNIST, OPEN, tiny
from sofa_fl.engine.base import Exam, Task
from sofa_fl.errors import SofaError
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import example_data
from sofa_fl_flower.machine.site import Site
from sofa_fl_flower.masked_sum.masks import public_of, sum_key_of
from sofa_fl_flower.masked_sum.member import SEALED_SIZE
from sofa_fl_flower.masked_sum.plan import SumPlan
from sofa_fl_flower.server.exchange import Answer, Exchange
from sofa_fl_flower.server.remote_engine import RemoteEngine
from sofa_fl_flower.server.roster import Roster
from sofa_fl_flower.server.sample_relay import SampleRelay
from sofa_fl_flower.server.server import Server, ServerConfig
from sofa_fl_flower.transport.machine_profile import MachineProfile
from sofa_fl_flower.transport.message_checks import MessageError
from sofa_fl_flower.transport.run_setup import RunSetup, work_digest
from sofa_fl_flower.transport.wire_message import MessageBuilder, WireMessage, asked_in, left_in

CONFIG = tiny(model={"name": "mlp", "hidden": 2}, local={"batches": 1, "batch_size": 10})
SETUP = RunSetup(seed=0, local=CONFIG.local, model=CONFIG.model, num_outputs=10)
POLICY = replace(OPEN, model=CONFIG.model, max_batches=20)
MACHINE = 5
CASES = 400  # of every kind of message
fuzzed = settings(
    max_examples=CASES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def deep(levels: int = 5000) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


# What may stand in any place of a header, and in place of any array.
JUNK: list[Any] = [
    None, True, False, 0, -1, 1, 3, 1 << 31, 1 << 62, 1 << 64, 10**400, -(10**400), 0.5, 1e308,
    math.inf, -math.inf, math.nan, "", "a0", "x" * 100_000, "\x1b[2J\n", "float64", [], [[]], {},
    {"a": 1}, [1, 2, 3], [None] * 3, [math.inf] * 3, [["a0", 1.0]], [["a0", math.nan]],
    ["uint8", 1 << 62], ["uint8", 0], ["float32", *[1] * 40], deep(50), "test", "train",
]  # fmt: skip
ARRAYS: list[Any] = [
    np.zeros(0, np.float32), np.zeros(3, np.int64), np.full(2000, np.nan, np.float32),
    np.full(4, np.inf), np.zeros((2, 0, 3), np.uint8), np.array([-1, 5], np.int32),
    np.array([1 << 62]), np.array([1 << 30], np.int32), np.zeros((), np.float64),
    np.zeros(1592, np.float16), np.full((3, 1, 28, 28), 7, np.uint8), np.array([-5, 900, 3]),
    np.arange(3, dtype=np.int32), np.zeros(3, np.int32),
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
    """Where something can be put into nested values."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value[:5])
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


@st.composite
def spoilt(draw: st.DrawFn, message: WireMessage) -> WireMessage:
    """A message with one to three things wrong in it."""
    header = copy.deepcopy(dict(message.header))
    arrays = dict(message.arrays)
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["put", "put", "put", "drop", "array", "swap"]))
        if kind in ("put", "drop"):
            *path, key = draw(st.sampled_from(sorted(places(header), key=str)))
            inner: Any = header
            for step in path:
                inner = inner[step]
            if kind == "drop" and isinstance(inner, dict):
                del inner[key]
            else:
                inner[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
        elif arrays and kind == "array":
            name = draw(st.sampled_from(sorted(arrays)))
            arrays[name] = draw(st.sampled_from(ARRAYS))
        elif arrays:
            one, other = (draw(st.sampled_from(sorted(arrays))) for _ in range(2))
            arrays[one], arrays[other] = arrays[other], arrays[one]
        if not header:
            break
    return WireMessage(header, arrays)


@cache
def machine() -> ClientMachine:
    here = ClientMachine(
        example_data(CONFIG.data, 0, 1), SETUP, POLICY, Site(b"k" * 32), 1
    )  # fmt: skip
    here.caches_models = True
    return here


def questions() -> dict[str, WireMessage]:
    """A valid message of every kind."""
    here, setup = machine(), SETUP.to_dict()
    found = {"hello": MessageBuilder().message(ask="hello", setup=setup)}
    builder = MessageBuilder()
    start = builder.add_model(here.learner.initial(0))
    target = builder.add_model(here.learner.initial(1))
    builder.add(here.data.train.x[:3], "given_x")
    builder.add(here.data.train.y[:3], "given_y")
    task = {
        "start": start, "given": builder.add(np.arange(3, dtype=np.int32)), "batches": 1, "seed": 0,
        "pulls": {"target": target, "weight": 0.5, "decay": 0.25}, "prior": True,
    }  # fmt: skip
    found["train"] = builder.message(setup=setup, tasks=[task])
    builder = MessageBuilder()
    model = builder.add_model(here.learner.initial(0))
    exams: list[dict[str, Any]] = [
        {"params": model, "split": split, "prior": True} for split in ("holdout", "test")
    ]
    exams.append({"params": [[model, 0.5], [model, 0.5]], "split": "train", "prior": False})
    found["evaluate"] = builder.message(setup=setup, exams=exams)
    builder = MessageBuilder()
    header = {"model": builder.add_model(here.learner.initial(0))}
    found["embed"] = builder.message(setup=setup, embeds=[header])
    rows = np.arange(len(here.data.train))
    first = Task(site=NodeId(0), start=here.learner.initial(0), samples=rows, batches=1, seed=0)
    plan = plan_with(here.sums.public, len(rows), work_digest(first, SETUP))
    builder = MessageBuilder()
    start = builder.add_model(here.learner.initial(0))
    task = {"start": start, "batches": 1, "seed": 0, "sum": plan}
    found["masked"] = builder.message(setup=setup, tasks=[task])
    builder = MessageBuilder()
    shares = builder.add(np.zeros((4, SEALED_SIZE), np.uint8))
    request = {"sum": plan, "survivors": [0, 1, 2, 3], "shares": shares}
    found["unmask"] = builder.message(setup=setup, unmask=[request])
    builder = MessageBuilder()
    builder.add(np.arange(5, dtype=np.int32), "give")
    found["give"] = builder.message(setup=setup, give=True)
    return found


def plan_with(key: str, num_samples: int, work: str) -> dict[str, Any]:
    """A sum of five, the first of whom is this machine."""
    others = tuple(public_of(sum_key_of(bytes([i]) * 32)) for i in range(4))
    return SumPlan("one", (key, *others), (num_samples, 90, 90, 90, 90), 4, work).to_dict()


KINDS = ["hello", "train", "evaluate", "embed", "give"]


@pytest.mark.parametrize("kind", [*KINDS, "masked", "unmask"])
def test_a_machine_survives_any_question(kind: str) -> None:
    valid = questions()[kind]
    machine().answer(valid)  # and it is valid
    answered = refused = 0

    @fuzzed
    @given(spoilt(valid))
    def ask(question: WireMessage) -> None:
        nonlocal answered, refused
        machine().site.sums.append(b"", 0)  # it takes part in a sum once
        asked_in(question)
        try:
            RunSetup.from_dict(question.header.get("setup"))
            left_in(machine().answer(question))
            answered += 1
        except SofaError:
            refused += 1

    ask()
    assert refused > 100
    assert answered + refused >= CASES


@dataclass
class OneAnswer:
    """A messenger that brings one answer, whatever is asked."""

    answer: Answer = "not set"
    ids: list[str] = field(default_factory=list)

    def machines(self) -> set[int]:
        return {MACHINE}

    def send(
        self, messages: Mapping[int, WireMessage], kind: str, seconds: float
    ) -> dict[int, str]:
        return dict.fromkeys(messages, "id")

    def collect(self, ids: Iterable[str]) -> dict[str, Answer]:
        return dict.fromkeys(ids, self.answer)


def engine_with(messenger: OneAnswer, folder: Path) -> RemoteEngine:
    """An engine that knows one machine."""
    roster = Roster(folder / "nodes.json", 2, MNIST)
    roster.admit({MACHINE: MachineProfile.read(machine().hello())}, since=0)
    factory = SETUP.network_factory((1, 28, 28), None)
    return RemoteEngine(Exchange(messenger, 1.0), roster, SETUP, factory)


def ask_engine(engine: RemoteEngine, kind: str) -> None:
    """What a method asks for."""
    rows = engine.roster.members[NodeId(0)].rows
    model = engine.initial(0)
    if kind == "train":
        own = Task(site=NodeId(0), start=model, samples=rows.train, batches=1, seed=0)
        (outcome,) = engine.train([own])
        assert outcome is None or len(outcome.params) == len(model)
    elif kind == "evaluate":
        splits: list[tuple[Any, Any]] = [
            (rows.holdout, "train"), (rows.test, "test"), (rows.train, "train")
        ]  # fmt: skip
        scores = engine.evaluate([Exam(model, samples, split) for samples, split in splits])
        for score, (samples, _) in zip(scores, splits):
            assert score.num_samples in (0, len(samples))
            assert not score.num_samples or math.isfinite(score.loss + score.accuracy)
    elif kind == "embed":
        with contextlib.suppress(MessageError):  # none is left: only this method needs features
            features = engine.embed([model], rows.train[:9])
            assert np.isfinite(features).all()
    else:
        engine.relay = SampleRelay()
        engine.prefetch(rows.train[:5])
        engine.evaluate([])
        has = engine.relay.has(rows.train[:5])
        if has.any():
            _, y = engine.relay.get(rows.train[:5][has])
            assert 0 <= y.min() <= y.max() < 10


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_server_survives_any_answer(kind: str, tmp_path: Path) -> None:
    valid = machine().answer(questions()[kind])
    messenger = OneAnswer()
    engine = engine_with(messenger, tmp_path)
    fine = aside = 0

    @fuzzed
    @given(spoilt(valid))
    def answer(spoilt_answer: WireMessage) -> None:
        nonlocal fine, aside
        engine.roster.present.add(MACHINE)
        messenger.answer = spoilt_answer
        ask_engine(engine, kind)
        fine += MACHINE in engine.roster.present
        aside += MACHINE not in engine.roster.present

    answer()
    assert aside > 100
    assert fine > 0
    assert aside + fine >= CASES


def test_a_server_survives_any_hello(tmp_path: Path) -> None:
    """And what it accepts can be worked with."""
    valid = machine().hello()
    messenger = OneAnswer()
    fine = aside = 0

    @fuzzed
    @given(spoilt(valid))
    def answer(hello: WireMessage) -> None:
        nonlocal fine, aside
        messenger.answer = hello
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            server_config = ServerConfig(run=Path(folder), expected=MNIST, clients=1)
            server = Server(messenger, CONFIG, server_config, lambda _line: None)
            new = server.greet()
            if new:
                server.roster.admit(new, since=0)
                server.roster.describe().digest()
                server.roster.row_owners("train")
                Roster.load(server.roster.file, 2, MNIST)
                fine += 1
            else:
                assert server.roster.strikes[MACHINE] == 1
                aside += 1
            server.close()

    answer()
    assert aside > 100
    assert fine > 0
    assert aside + fine >= CASES


def test_bytes_of_any_kind_are_a_message_or_none() -> None:
    from flwr.app import ConfigRecord, RecordDict

    from sofa_fl_flower.flower.flower_messages import from_record, to_record

    valid = to_record(machine().answer(questions()["train"])).config_records["sofa"]
    text, data = str(valid["json"]), valid["data"]
    assert isinstance(data, bytes)
    content = json.loads(text)
    nested = ["[" * 100_000, '{"a":' * 100_000, json.dumps(JUNK), "", "null", "1" * 9999]

    @fuzzed
    @given(st.data())
    def read(draws: st.DataObject) -> None:
        values = copy.deepcopy(content)
        shape = draws.draw(st.sampled_from(values["arrays"]))
        shape[draws.draw(st.integers(0, 2))] = draws.draw(st.sampled_from(JUNK))
        kind = draws.draw(st.sampled_from(["shape", "cut", "text", "bytes"]))
        new, tail = json.dumps(values), data
        if kind == "cut":
            new = text[: draws.draw(st.integers(0, len(text)))]
        elif kind == "text":
            new = draws.draw(st.sampled_from(nested) | st.text())
        elif kind == "bytes":
            new, tail = text, draws.draw(st.binary(max_size=50))
        record = RecordDict({"sofa": ConfigRecord({"json": new, "data": tail})})
        with contextlib.suppress(MessageError):
            from_record(record)

    read()
