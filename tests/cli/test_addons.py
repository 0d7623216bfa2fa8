"""Commands of packages that may not be installed, and apps written before there were such."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest
import typer

from tests.cli.cases import Cli, assert_refused

other = typer.Typer(no_args_is_help=True, add_completion=False)


@other.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def node(context: typer.Context) -> None:
    """Say what it was given."""
    typer.echo(context.args)
    raise typer.Exit(3)


@other.callback()
def start() -> None:
    """Another package's command."""


def installed(patch: pytest.MonkeyPatch, *points: metadata.EntryPoint) -> None:
    def entry_points(**wanted: Any) -> metadata.EntryPoints:
        return metadata.EntryPoints(points).select(**wanted)

    patch.setattr(metadata, "entry_points", entry_points)


def test_one_that_is_not_installed_is_a_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    for words in (["deploy"], ["deploy", "new", "clinics"], ["deploy", "--help"]):
        assert_refused(cli(*words), "'deploy' is not installed", "pip install sofa-fl-flower")
    assert "deploy" in cli("--help").output


def test_one_that_is_installed_gets_all_words(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"{__name__}:other"
    installed(monkeypatch, metadata.EntryPoint("deploy", place, "sofa_fl.commands"))
    done = cli("deploy", "node", "--policy", "a", "-h", "--", "--b")
    assert "Say what it was given" in done.output
    done = cli("deploy", "node", "--policy", "a", "--", "--b")
    assert (done.exit_code, done.stdout) == (3, "['--policy', 'a', '--b']\n")
    assert "sofa-fl" not in cli("deploy", "--help").stderr


def test_the_help_of_all_imports_no_other_package(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, metadata.EntryPoint("deploy", "is_not_there:x", "sofa_fl.commands"))
    assert cli("--help").exit_code == 0


def test_an_import_of_before_says_where_it_has_gone() -> None:
    with pytest.raises(ImportError, match=r"sofa_fl\.deploy is now sofa_fl_flower: pip install"):
        __import__("sofa_fl.deploy.flower.client_app")
