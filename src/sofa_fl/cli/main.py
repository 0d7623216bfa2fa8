"""`sofa-fl`: the commands."""

from __future__ import annotations

from typing import Annotated

import typer

from sofa_fl.cli.addons import AddOn, deploy
from sofa_fl.cli.compare import compare
from sofa_fl.cli.demo import demo, init
from sofa_fl.cli.export import assign, export
from sofa_fl.cli.report import report, tree, watch
from sofa_fl.cli.run import resume, run
from sofa_fl.cli.screen import Commands, escape_unprintable
from sofa_fl.cli.sweep import sweep

app = typer.Typer(
    name="sofa-fl",
    cls=Commands,
    help="Self-organizing hierarchical federated learning.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo, init, run, resume, watch, report, tree, export, assign, compare, sweep,
):  # fmt: skip
    app.command()(command)
app.command(cls=AddOn, options_metavar="COMMAND [ARGS]...")(deploy)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"sofa-fl {version('sofa-fl')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """The entry point."""
    escape_unprintable()
    app()
