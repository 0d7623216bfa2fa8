"""`sofa-fl deploy`: a federation of real machines."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from sofa_fl.cli.screen import Commands
from sofa_fl.errors import ConfigError

deploy = typer.Typer(
    name="deploy",
    cls=Commands,
    help="A federation of real machines, over Flower; docs/deploy.md has the whole way.",
    no_args_is_help=True,
)


@deploy.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder; names the app.")],
) -> None:
    """Write a Flower app that is ready to run, and a page that says how."""
    from sofa_fl.cli.screen import put
    from sofa_fl.deploy.flower.new_app import new_app

    path = new_app(folder)
    put(f"wrote a Flower app to {path}; {path / 'README.md'} says what to run where")


@deploy.command()
def site(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    app: Annotated[Path, typer.Option(help="The site's own copy of the app.")],
    name: Annotated[
        str, typer.Option(help="What the site is called in the server's tree and report.")
    ] = "",
) -> None:
    """Create the folder of a site: a policy to edit, its key, its ledger and its audit log."""
    from sofa_fl.cli.screen import put
    from sofa_fl.deploy.machine.site import POLICY_FILE, create_site

    path = create_site(folder, app, name)
    put(f"wrote {path / POLICY_FILE}; read it, and start the node with --policy {path}/policy.toml")


@deploy.command()
def audit(
    policy: Annotated[Path, typer.Option(metavar="FILE", help="The site's policy.")],
) -> None:
    """Say what has left a site in all runs together, from its ledger, budget and audit log."""
    from sofa_fl.cli.screen import put
    from sofa_fl.deploy.machine.policy import load_policy
    from sofa_fl.deploy.machine.site_report import site_report

    put("\n".join(site_report(load_policy(policy))))


@deploy.command()
def check(
    policy: Annotated[Path, typer.Option(metavar="FILE", help="The site's policy.")],
    node_config: Annotated[str, typer.Option(help="As for `deploy node`.")] = "",
) -> None:
    """Say whether a site is ready: load its samples as the node would, and connect to nobody."""
    from sofa_fl.cli.screen import put

    if find_spec("flwr") is None:
        raise ConfigError("a site needs Flower: pip install 'sofa-fl[node]'")
    from sofa_fl.deploy.flower.check_site import check_site, read_node_config
    from sofa_fl.deploy.machine.policy import load_policy

    put("\n".join(check_site(load_policy(policy), read_node_config(node_config))))


@deploy.command(name="try")
def try_it(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="A new folder for the app; names it.")
    ] = Path("sofa-try"),
    nodes: Annotated[int, typer.Option(metavar="N", min=1, help="Simulated machines.")] = 3,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Rounds.")] = 3,
) -> None:
    """Try a federation on this computer: write an app, run it with N machines, show the tree."""
    from sofa_fl.cli.screen import console, put, shell
    from sofa_fl.deploy.flower.try_out import try_out

    run = try_out(folder, nodes, rounds)
    from sofa_fl.cli.show import show_round
    from sofa_fl.report.history import read_round

    show_round(console(), read_round(run), every=False)
    put(f"\nReport  {shell(run / 'report.html')}  open it in a browser")
    put(f"Next    put your data into {shell(folder)}, and see {shell(folder / 'README.md')}")


@deploy.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
)
def node(context: typer.Context) -> None:
    """Run a SuperNode that answers at once; takes --policy and the options of flower-supernode.

    Flower's own looks for messages every three seconds and starts a Python for each.
    """
    try:
        from sofa_fl.deploy.flower.supernode import main
    except ImportError:
        raise ConfigError("a node needs Flower: pip install 'sofa-fl[node]'") from None
    main(context.args)


@deploy.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
)
def link(context: typer.Context) -> None:
    """Run a SuperLink in the app's folder; takes --max-answer and flower-superlink's options.

    Without options it listens on 127.0.0.1:8001, with the certificate and the database of the app.
    It refuses what no honest SuperNode sends, which Flower's own does not.
    """
    if find_spec("flwr") is None:
        raise ConfigError("a SuperLink needs Flower: pip install 'sofa-fl[flower]'")
    from sofa_fl.deploy.flower.superlink import main

    main(context.args)
