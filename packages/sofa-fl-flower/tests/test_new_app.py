"""The folder of a new app."""

from __future__ import annotations

import ssl
import stat
import tomllib
from pathlib import Path

import pytest
import yaml

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import load_config
from sofa_fl_flower.flower.keys import main as make_keys
from sofa_fl_flower.flower.new_app import new_app


def test_everything_is_there_and_readable(tmp_path: Path) -> None:
    app = new_app(tmp_path / "My Clinics")
    project = tomllib.loads((app / "pyproject.toml").read_text())
    parts = project["tool"]["flwr"]["app"]["components"]
    for reference in parts.values():
        module = reference.partition(":")[0].replace(".", "/")
        assert (app / f"{module}.py").is_file()
        compile((app / f"{module}.py").read_text(), module, "exec")
    assert load_config(app / "my_clinics" / "sofa.yaml").method == "sofa"
    assert project["tool"]["flwr"]["app"]["config"]["run"] == "runs/first"
    for path in app.rglob("*"):
        assert not path.is_file() or "$" not in path.read_text().replace("$PWD", ""), path


def test_a_new_app_asks_for_no_samples(tmp_path: Path) -> None:
    config = yaml.safe_load((new_app(tmp_path / "clinics") / "clinics" / "sofa.yaml").read_text())
    assert not config.get("sharing", {}).get("ratio")


def test_telemetry_updates_and_installing_are_off(tmp_path: Path) -> None:
    text = (new_app(tmp_path / "clinics") / "env.sh").read_text()
    for line in (
        "FLWR_TELEMETRY_ENABLED=0",
        "FLWR_DISABLE_UPDATE_CHECK=1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1",
        "RAY_USAGE_STATS_ENABLED=0",
    ):
        assert f"export {line}\n" in text


@pytest.mark.parametrize("name", ["1clinic", "---"])
def test_a_name_that_python_cannot_import_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must begin with a letter"):
        new_app(tmp_path / name)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="must be a new or empty folder"):
        new_app(tmp_path)


def test_private_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    make_keys(["--server", "127.0.0.1:8000", "--nodes", "2", "--app", str(tmp_path)])
    for name in ("server.key", "node-0", "node-1"):
        assert stat.S_IMODE((tmp_path / "keys" / name).stat().st_mode) == 0o600
    assert not list((tmp_path / "keys").glob("ca.key")), "nobody can make another server"
    text = (tmp_path / ".flwr" / "config.toml").read_text()
    assert tomllib.loads(text)["superlink"]["deployed"]["address"] == "127.0.0.1:8001"


def test_an_address_without_a_port_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        make_keys(["--server", "nowhere", "--app", str(tmp_path)])


@pytest.mark.parametrize(
    ("arguments", "first"),
    [(["--server", "h:1"], "ca.crt"), (["--nodes", "1"], "node-0"), (["--node", "a", "b"], "a")],
)
def test_keys_are_not_overwritten_by_default(
    arguments: list[str], first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / "keys").iterdir()}

    arguments = [*arguments, "--app", str(tmp_path)]
    make_keys(arguments)
    before = contents()
    with pytest.raises(SystemExit):
        make_keys(arguments)
    assert f"{first} already exists" in capsys.readouterr().err
    assert contents() == before
    (tmp_path / "keys" / first).chmod(0o666)
    make_keys([*arguments, "--overwrite"])
    assert contents().keys() == before.keys()
    assert all(contents()[name] != before[name] for name in before)
    assert stat.S_IMODE((tmp_path / "keys" / first).stat().st_mode) & 0o022 == 0


@pytest.mark.parametrize("host", ["server.example.org", "10.0.0.5", "localhost", "[::1]"])
def test_a_certificate_is_accepted_at_all_names_of_the_server(host: str, tmp_path: Path) -> None:
    """By OpenSSL, in a handshake, as strictly as Python checks."""
    make_keys(["--server", f"{host}:8000", "--also", "other.example.org", "--app", str(tmp_path)])
    keys = tmp_path / "keys"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(keys / "server.pem", keys / "server.key")
    client = ssl.create_default_context(cafile=keys / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in (host.strip("[]"), "other.example.org", "localhost", "127.0.0.1"):
        handshake(client, server, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(client, server, "elsewhere.example.org")


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Connect the two in memory; raise if the client does not accept the server at `name`."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    ]
    while ends:
        try:
            ends[0].do_handshake()
            del ends[0]
        except ssl.SSLWantReadError:
            ends.reverse()
