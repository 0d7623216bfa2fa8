"""What clients are called in a deployment: by their sites, and never by another client's number."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cases import FakeMachine, events, machines_of, tiny
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.serving.model_files import export
from sofa_fl.report.history import read_round
from sofa_fl.report.page import write_report
from sofa_fl.report.tree_svg import tree_svg
from sofa_fl_flower.commands import site
from sofa_fl_flower.machine.policy import load_policy
from sofa_fl_flower.machine.site import create_site
from sofa_fl_flower.server.roster_file import load_members
from sofa_fl_flower.transport.message_checks import flaw_of_name
from test_server import alike, serve

HOSPITALS = ("cleveland", "São Paulo", "<b>Basel</b>", "Long Beach & Co")
BAD = (
    "a" * 65, "two\nlines", "\x1b[31mred", "\u202egnal", " oslo", "7", "client 1", "Client-01",
    3, None, ["oslo"],
)  # fmt: skip


def named(machines: dict[int, FakeMachine], names: tuple[str, ...]) -> dict[int, FakeMachine]:
    for machine, name in zip(machines.values(), names, strict=True):
        machine.policy = replace(machine.policy, name=name)
    return machines


def test_sites_have_their_names_everywhere(tmp_path: Path) -> None:
    config = tiny()
    serve(config, tmp_path / "numbers", machines_of(config))
    run = tmp_path / "run"
    result = serve(config, run, named(machines_of(config), HOSPITALS))
    assert [event["names"] for event in events(run)] == [list(HOSPITALS)] * 3
    assert result.summary["client"]["names"] == list(HOSPITALS)
    for event in (unnamed := events(run)):
        del event["names"]
    (tmp_path / "unnamed").mkdir()
    lines = "".join(json.dumps(event) + "\n" for event in unnamed)
    (tmp_path / "unnamed" / "events.jsonl").write_text(lines)
    alike(tmp_path / "numbers", tmp_path / "unnamed")  # a name changes nothing else
    picture = tree_svg(read_round(run))
    assert "cleveland" in picture
    assert "<b>Basel" not in picture
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert json.dumps("São Paulo") in page
    assert "<b>Basel" not in page
    exported = export(run, tmp_path / "model.safetensors", node="client:São Paulo")
    assert exported.file.exists()


def test_a_resumed_server_knows_the_names(tmp_path: Path) -> None:
    serve(tiny(rounds=1), tmp_path, named(machines_of(tiny()), HOSPITALS))
    members = load_members(tmp_path / "nodes.json")
    assert [member.profile.name for member in members.values()] == list(HOSPITALS)


@pytest.mark.parametrize(
    ("said", "called"),
    [
        (("", "", "", ""), None),
        (("", "oslo", "", ""), ["client 0", "oslo", "client 2", "client 3"]),
        (("oslo", "oslo", "oslo", "rome"), ["oslo", "oslo (1)", "oslo (2)", "rome"]),
        (
            ("oslo (2)", "oslo", "oslo", "oslo (2)"),
            ["oslo (2)", "oslo", "client 2", "oslo (2) (3)"],
        ),
    ],
)
def test_no_two_clients_are_called_alike(
    said: tuple[str, ...], called: list[str] | None, tmp_path: Path
) -> None:
    serve(tiny(rounds=1), tmp_path, named(machines_of(tiny()), said))
    assert events(tmp_path)[-1].get("names") == called


@pytest.mark.parametrize("name", BAD, ids=repr)
def test_a_name_that_cannot_be(name: object) -> None:
    flaw = flaw_of_name(name)
    assert flaw is not None
    assert len(flaw) < 250
    assert flaw.isprintable()


def test_a_site_is_given_its_name(tmp_path: Path) -> None:
    quoted = 'Haut\\Rhin "Nord"'
    site(tmp_path / "a", tmp_path, quoted)
    assert load_policy(tmp_path / "a" / "policy.toml").name == quoted
    assert load_policy(create_site(tmp_path / "b", tmp_path) / "policy.toml").name == ""
    with pytest.raises(ConfigError, match="must not be a number"):
        create_site(tmp_path / "c", tmp_path, "client 3")
    assert not (tmp_path / "c").exists()
    policy = tmp_path / "b" / "policy.toml"
    policy.write_text(policy.read_text().replace('name = ""', 'name = "7"', 1))
    load_policy.cache_clear()
    with pytest.raises(ConfigError, match="must not be a number"):
        load_policy(policy)
