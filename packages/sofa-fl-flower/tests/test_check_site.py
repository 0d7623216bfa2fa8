"""`sofa-fl deploy check`: what would go wrong at a site, before it connects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sofa_fl.errors import ConfigError, SofaError
from sofa_fl_flower.commands import deploy
from sofa_fl_flower.flower.check_site import check_site
from sofa_fl_flower.flower.new_app import new_app
from sofa_fl_flower.machine.policy import Policy, load_policy
from sofa_fl_flower.machine.site import create_site
from sofa_fl_flower.transport.message_checks import RefusalError

SMALL = """
data: {num_clients: 2, num_train: 1200, num_test: 200, partition: iid}
model: {name: mlp, hidden: 8}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    app = new_app(tmp_path / "clinics")
    (app / "clinics" / "sofa.yaml").write_text(SMALL)
    folder = create_site(tmp_path / "site", app)
    change(folder / "policy.toml", 'name = "cnn"', 'name = "mlp"\nhidden = 8')
    monkeypatch.setattr(sys, "path", [str(app), *sys.path])
    forget_app()
    yield folder
    forget_app()


def forget_app() -> None:
    """Each test has its own app of the same name."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "clinics"]:
        del sys.modules[name]


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def policy_of(site: Path) -> Policy:
    load_policy.cache_clear()
    return load_policy(site / "policy.toml")


def test_a_site_that_is_ready_says_what_it_has(site: Path) -> None:
    before = sorted(path.name for path in (site / "state").iterdir())
    command = ["check", "--policy", str(site / "policy.toml"), "--node-config", "client=1"]
    load_policy.cache_clear()
    found = CliRunner().invoke(deploy, command, catch_exceptions=False)
    assert found.exit_code == 0
    assert "570 training samples, 30 held out, 100 for testing" in found.output
    assert "uint8 of shape 1x28x28, 10 classes" in found.output
    assert "fit together" in found.output
    assert sorted(path.name for path in (site / "state").iterdir()) == before
    assert (site / "state" / "audit.jsonl").read_text() == "", "nothing has left"


@pytest.mark.parametrize(
    ("spoil", "error", "what"),
    [
        (
            lambda site: change(site / "policy.toml", "min_rows = 20", "min_rows = 200"),
            RefusalError, "at least 200 samples",
        ),
        (
            lambda site: change(site / "policy.toml", "hidden = 8", "hidden = 9"),
            RefusalError, "this site trains",
        ),
        (
            lambda site: change(
                site.parent / "clinics" / "clinics" / "sofa.yaml", "model:",
                "local: {batch_size: 10}\nmodel:",
            ),
            RefusalError, "every batch must have at least 20 distinct samples",
        ),
        (
            lambda site: change(
                site.parent / "clinics" / "pyproject.toml", "classes = 10 ", "classes = 9 "
            ),
            ConfigError, "would turn this machine away: it may have 9 classes, but has 10",
        ),
        (
            lambda site: change(
                site.parent / "clinics" / "clinics" / "client_app.py",
                "app = client_app(load_data, network)",
                "from flwr.clientapp import ClientApp\napp = ClientApp()",
            ),
            ConfigError, "must be created by",
        ),
    ],
)  # fmt: skip
def test_what_would_be_refused_is_said_before(
    spoil: Callable[[Path], None], error: type[SofaError], what: str, site: Path
) -> None:
    spoil(site)
    with pytest.raises(error, match=what):
        check_site(policy_of(site), {"client": 0})


def test_only_a_site_with_its_own_copy_can_be_checked(site: Path) -> None:
    file = site / "policy.toml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("app = ")]
    file.write_text("\n".join(['app_hash = "' + "0" * 64 + '"', *lines]))
    with pytest.raises(ConfigError, match="its own copy of the app"):
        check_site(policy_of(site), {})
