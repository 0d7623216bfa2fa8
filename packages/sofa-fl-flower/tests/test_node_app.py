"""The ClientApp on a site: its policy, its audit log, and which code runs at all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.fab import Fab
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from cases import tiny
from sofa_fl.errors import DataError, RunError
from sofa_fl_flower.flower import client_app as app_module
from sofa_fl_flower.flower.app_process import ClientAppProcess
from sofa_fl_flower.flower.flower_messages import from_record, new_key, sealing_key_of, to_record
from sofa_fl_flower.flower.new_app import new_app
from sofa_fl_flower.flower.node_site import POLICY, site_of
from sofa_fl_flower.machine.machine_data import (
    LoadData,
    MachineConfig,
    MachineData,
    example_data,
)
from sofa_fl_flower.machine.policy import load_policy
from sofa_fl_flower.machine.site import create_site
from sofa_fl_flower.masked_sum.masks import public_of
from sofa_fl_flower.transport.message_checks import MessageError, RefusalError
from sofa_fl_flower.transport.run_setup import RunSetup
from sofa_fl_flower.transport.wire_message import MessageBuilder, WireMessage

CONFIG = tiny(
    data={"num_clients": 2, "num_train": 900, "num_test": 100, "partition": "iid"},
    local={"batches": 2, "batch_size": 40},
)
SETUP = RunSetup(seed=0, local=CONFIG.local, model=CONFIG.model, num_outputs=10)


def load_data(_machine: MachineConfig) -> MachineData:
    return example_data(CONFIG.data, 0, 0)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a site whose policy holds in this process."""
    folder = create_site(tmp_path / "site", new_app(tmp_path / "clinics"))
    file = folder / "policy.toml"
    text = file.read_text().replace('name = "cnn"', 'name = "mlp"\nhidden = 16')
    file.write_text(text.replace("max_disclosure = 0.0", "max_disclosure = 0.1"))
    monkeypatch.setenv(POLICY, str(file))
    monkeypatch.setattr(app_module, "_data", {})
    monkeypatch.setattr(app_module, "_machines", {})
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 3)
    load_policy.cache_clear()
    return folder


def ask(
    question: WireMessage,
    key: X25519PrivateKey | None = None,
    sealed_for: str | None = None,
    load: LoadData = load_data,
) -> WireMessage:
    """What a ClientApp answers to a message that Flower brings; work comes encrypted."""
    if sealed_for is None and "ask" not in question.header:
        _, here = site_of({})
        assert here is not None
        sealed_for = public_of(sealing_key_of(here.key))
    message = Message(to_record(question, sealed_for or None), dst_node_id=7, message_type="query")
    context = Context(
        run_id=3, node_id=7, node_config={"client": 0}, state=RecordDict(), run_config={}
    )
    app = app_module.client_app(load)
    answer = app(message=message, context=context).content
    return from_record(answer, key, sealed_for if key is not None else None)


def audited(site: Path) -> list[dict[str, Any]]:
    lines = (site / "state" / "audit.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_all_that_is_asked_and_leaves_is_on_record(site: Path) -> None:
    hello = ask(MessageBuilder().message(ask="hello", setup=SETUP.to_dict()))
    assert hello.header["cap"] == 0.1
    builder = MessageBuilder()
    builder.add(np.arange(100, dtype=np.int32), "give")
    gave = ask(builder.message(give=True, setup=SETUP.to_dict()))
    number = len(gave.arrays["gave"])
    assert number == int(0.1 * hello.header["num_train"])
    first, second = audited(site)
    assert (first["run"], first["asked"]) == ("3", {"hello": 1})
    assert second["asked"] == {"samples": 100}
    assert second["left"]["samples"] == number
    assert second["left"]["bytes"] > number * 784


def test_an_answer_is_sealed_for_the_server(site: Path) -> None:
    server = new_key()
    setup = SETUP.to_dict()
    hello = MessageBuilder().message(ask="hello", setup=setup, public=public_of(server))
    with pytest.raises(MessageError, match="the message is encrypted"):
        ask(hello)
    answer = ask(hello, key=server)
    assert answer.header["cap"] == 0.1
    builder = MessageBuilder()
    builder.add(np.arange(3, dtype=np.int32), "give")
    give = builder.message(give=True, setup=setup, public=public_of(server))
    gave = ask(give, key=server, sealed_for=answer.header["public"])
    assert len(gave.arrays["gave"]) == 3


def test_work_is_for_the_server_to_give(site: Path) -> None:
    """Formerly a site worked for whoever got a message into Flower."""
    builder = MessageBuilder()
    builder.add(np.arange(3, dtype=np.int32), "give")
    answer = ask(builder.message(give=True, setup=SETUP.to_dict()), sealed_for="")
    with pytest.raises(RefusalError, match="must be encrypted with the key of this site"):
        answer.check_version()
    assert not answer.arrays
    assert "must be encrypted" in audited(site)[0]["refused"]


def test_what_is_refused_is_on_record_and_told(site: Path) -> None:
    question = MessageBuilder().message(embeds=[{"model": "a0"}], setup=SETUP.to_dict())
    answer = ask(question)
    with pytest.raises(RefusalError, match="returns no features"):
        answer.check_version()
    (entry,) = audited(site)
    assert "returns no features" in entry["refused"]
    assert "left" not in entry


@pytest.mark.parametrize("error", [DataError, ValueError])
def test_an_error_in_the_samples_is_not_told(error: type[Exception], site: Path) -> None:
    """It may quote them; the site's own records have it, so that nothing leaves unrecorded."""

    def load(_machine: MachineConfig) -> MachineData:
        raise error("line 17: 'Jane Doe' is no number")

    answer = ask(MessageBuilder().message(ask="hello", setup=SETUP.to_dict()), load=load)
    with pytest.raises(RefusalError, match="this site could not answer"):
        answer.check_version()
    assert "Jane" not in str(answer.header)
    (entry,) = audited(site)
    assert "Jane Doe" in entry["refused"]


def test_a_server_cannot_fill_the_audit_log_with_its_words(site: Path) -> None:
    task = {"start": "x" * 1_000_000, "batches": 1, "seed": 0}
    answer = ask(MessageBuilder().message(tasks=[task], setup=SETUP.to_dict()))
    assert len(str(answer.header)) < 1000
    assert "must contain the array" in audited(site)[0]["refused"]
    assert (site / "state" / "audit.jsonl").stat().st_size < 1000


def test_without_its_state_a_site_answers_nothing(site: Path) -> None:
    (site / "state" / "ledger").unlink()
    answer = ask(MessageBuilder().message(ask="hello", setup=SETUP.to_dict()))
    with pytest.raises(RefusalError, match="ledger or its seal is missing"):
        answer.check_version()
    assert set(answer.header) == {"version", "refused"}


def test_what_cannot_be_recorded_does_not_leave(site: Path) -> None:
    (site / "state" / "audit.jsonl").unlink()
    (site / "state" / "audit.jsonl").symlink_to(site / "policy.toml")
    with pytest.raises(RunError, match="cannot write"):
        ask(MessageBuilder().message(ask="hello", setup=SETUP.to_dict()))


def process_of(site: Path, **policy: str) -> ClientAppProcess:
    file = site / "policy.toml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("app = ")]
    file.write_text("\n".join([*(f'{k} = "{v}"' for k, v in policy.items()), *lines]))
    load_policy.cache_clear()
    return ClientAppProcess("127.0.0.1:1", 0, b"secret")


EVIL = Fab("0", b"whatever the server sends", {})


def test_only_the_sites_own_copy_runs(site: Path, tmp_path: Path) -> None:
    """Whatever app the server sends is not even unpacked."""
    process = process_of(site, app=str(tmp_path / "clinics"))
    app = process.app(Run.create_empty(5), EVIL)
    assert isinstance(app, ClientApp)


def test_an_app_with_another_hash_does_not_run(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[bytes] = []
    monkeypatch.setattr(
        "sofa_fl_flower.flower.app_process.install_from_fab",
        lambda content, skip_prompt: installed.append(content),
    )
    wanted = hashlib.sha256(b"reviewed").hexdigest()
    process = process_of(site, app_hash=wanted)
    with pytest.raises(RefusalError, match=f"this site runs the app {wanted}, but was sent"):
        process.app(Run.create_empty(5), EVIL)
    assert not installed
    assert audited(site)[0]["run"] == "5"
    # The right one is installed, and only then looked for where Flower keeps apps.
    with pytest.raises(Exception, match="Failed to load ClientApp"):
        process.app(Run.create_empty(5), Fab("0", b"reviewed", {}))
    assert installed == [b"reviewed"]
