"""Sums in which one machine answers anything: the server survives, and so does the sum."""

from __future__ import annotations

from pathlib import Path

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import MNIST, FakeMachine, FakeMessenger, machines_of, tiny
from sofa_fl.engine.base import Outcome, Task
from sofa_fl_flower.server.exchange import Exchange
from sofa_fl_flower.server.roster import Roster
from sofa_fl_flower.server.summing_engine import SummingEngine
from sofa_fl_flower.transport.machine_profile import MachineProfile
from sofa_fl_flower.transport.run_setup import RunSetup
from sofa_fl_flower.transport.wire_message import VERSION, WireMessage
from test_fuzz import spoilt

CONFIG = tiny(
    data={"num_clients": 5, "num_train": 200, "num_test": 50, "partition": "iid"},
    model={"name": "mlp", "hidden": 2},
    local={"batches": 1, "batch_size": 10},
)
SETUP = RunSetup(seed=0, local=CONFIG.local, model=CONFIG.model, num_outputs=10)


def engine_of(machines: dict[int, FakeMachine], folder: Path) -> SummingEngine:
    roster = Roster(folder / "nodes.json", 5, MNIST)
    hello = WireMessage({"version": VERSION, "ask": "hello", "setup": SETUP.to_dict()})
    said = {number: machine.answer(hello) for number, machine in machines.items()}
    profiles = {n: MachineProfile.read(a) for n, a in said.items() if isinstance(a, WireMessage)}
    roster.admit(profiles, since=0)
    factory = SETUP.network_factory((1, 28, 28), None)
    engine = SummingEngine(Exchange(FakeMessenger(machines), 1.0), roster, SETUP, factory)
    engine.masks = True
    return engine


def train(engine: SummingEngine) -> list[Outcome | None]:
    start = engine.initial(0)
    return engine.train(
        [
            Task(site=client, start=start, samples=member.rows.train, batches=1, seed=0)
            for client, member in engine.roster.members.items()
        ]
    )


def test_a_server_survives_any_answer_in_a_sum(tmp_path: Path) -> None:
    machines = machines_of(CONFIG)
    for machine in machines.values():
        machine.is_resident = True
    engine = engine_of(machines, tmp_path)
    first, *_ = train(engine)
    assert first is not None
    everyone, num = first.params, {"tasks": 0, "unmask": 0}
    bad = machines[min(machines)]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(["tasks", "unmask"]), st.data())
    def answer(stage: str, draws: st.DataObject) -> None:
        def spoil(asked: WireMessage, reply: WireMessage) -> WireMessage:
            return draws.draw(spoilt(reply)) if asked.header.get(stage) else reply

        bad.spoil = spoil
        engine.roster.present |= set(machines)
        engine.roster.strikes.clear()
        heard = [outcome for outcome in train(engine) if outcome is not None]
        assert len(heard) >= 4, "a sum is there without it"
        for outcome in heard:  # one of five clients cannot do much in one step
            assert torch.allclose(outcome.params, everyone, atol=0.02)
        num[stage] += 1

    answer()
    assert min(num.values()) > 15
