"""What left a site: by its own records, and by what the server received."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cases import MNIST, NUM_CLIENTS, FakeMessenger, lines, machines_of, tiny
from sofa_fl.privacy.accounting import Cost
from sofa_fl.report.page import read_run
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.commands import deploy
from sofa_fl_flower.machine.policy import load_policy
from sofa_fl_flower.machine.privacy import Budget
from sofa_fl_flower.machine.site import create_site, open_site
from sofa_fl_flower.machine.site_records import SumRecord
from sofa_fl_flower.machine.site_report import site_report
from sofa_fl_flower.server.received import Received, spent_in
from sofa_fl_flower.server.server import Server, ServerConfig
from sofa_fl_flower.transport.wire_message import WireMessage


def test_a_site_that_answered_nothing_says_so(tmp_path: Path) -> None:
    folder = create_site(tmp_path / "site", tmp_path / "app")
    said = site_report(load_policy(folder / "policy.toml"))
    assert said == ["0 messages of 0 runs, 0 refused", "0 different samples"]


def test_a_site_adds_up_its_records(tmp_path: Path) -> None:
    folder = create_site(tmp_path / "site", tmp_path / "app")
    file = folder / "policy.toml"
    text = file.read_text().replace("epsilon = 0.0", "epsilon = 8.0")
    file.write_text(text.replace("# max_clear_models = 1", "max_clear_models = 3"))
    policy, site = load_policy(file), open_site(folder / "state")
    site.audit({"run": "1", "asked": {"tasks": 1}, "left": {"models": 1, "bytes": 40}})
    site.audit({"run": "1", "asked": {"tasks": 1}, "refused": "no"})
    site.audit({"run": "2", "left": {"masked_models": 1, "scores": 5, "bytes": 2}})
    site.ledger.add([b"m" * 16, b"n" * 16])
    Budget(policy.privacy, site.spent).spend("train", Cost(0.1, 1.0, 5))
    SumRecord(site.sums).count_clear(3)
    runner = CliRunner()
    done = runner.invoke(deploy, ["audit", "--policy", str(file)])
    assert done.exit_code == 0
    first, *rest = done.stdout.splitlines()
    assert first == "3 messages of 2 runs, 1 refused"
    epsilon = rest.pop(-2)
    assert epsilon.startswith("epsilon spent of 8: train ")
    assert 0 < float(epsilon.split()[-1]) < 8
    assert rest == [
        "1 model in the clear", "1 masked model", "5 scores", "42 bytes", "2 different samples",
        "models outside a sum: 1 of at most 3",
    ]  # fmt: skip


def test_the_report_of_a_deployment_says_what_left_each_site(tmp_path: Path) -> None:
    config = tiny()
    machines = machines_of(config)
    private = machines[100]
    policy = replace(private.policy, max_disclosure=0.0, embeds=False)
    private.policy = replace(policy, privacy=replace(policy.privacy, epsilon=500.0))
    server_config = ServerConfig(
        run=tmp_path / "run", expected=MNIST, clients=NUM_CLIENTS, most=NUM_CLIENTS, timeout=0.4
    )
    Server(FakeMessenger(machines), config, server_config, lambda _line: None).run()
    left = read_run(tmp_path / "run")["left"]
    assert left.keys() == {"0", "1", "2", "3"}
    assert [counts["models"] for counts in left.values()] == [3] * 4
    assert [counts.get("samples", 0) > 0 for counts in left.values()] == [False, True, True, True]
    assert left["0"]["epsilon"].keys() == {"train", "holdout", "test"}
    assert "epsilon" not in left["1"]
    up = [line["bytes_up"] for line in lines(tmp_path / "run") if "exchange" in line]
    assert left["1"]["bytes"] == sum(each.get("99", 0) for each in up)


def test_a_restarted_server_counts_on(tmp_path: Path) -> None:
    answer = WireMessage({"scores": [[0.5, 0.5, 9]] * 2})
    for _ in range(2):
        received = Received(tmp_path / "left.json")
        received.add(NodeId(3), answer)
        received.save()
    assert json.loads((tmp_path / "left.json").read_text()) == {"3": {"scores": 4}}


@pytest.mark.parametrize(
    "told", [None, 5, "train", {"train": "much"}, {"train": float("nan")}, {"other": 1.0}, {}]
)
def test_a_site_that_says_nonsense_of_its_budget_says_nothing(told: object) -> None:
    assert spent_in(WireMessage({"spent": told})) == {}


def test_what_runs_elsewhere_left_no_site(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{method: sofa, seed: 0, rounds: 1, data: {name: mnist}}")
    assert read_run(tmp_path)["left"] == {}
