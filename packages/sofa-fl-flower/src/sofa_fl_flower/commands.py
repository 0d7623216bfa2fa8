"""`sofa-fl deploy`: a federation of real machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sofa_fl.cli.screen import Commands, console, put, shell

deploy = typer.Typer(
    name="deploy",
    cls=Commands,
    help="Run a federation on real machines, over Flower; docs/deploy.md has all the steps.",
    no_args_is_help=True,
    add_completion=False,
)


@deploy.command()
def new(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new folder, whose name becomes the app's.")
    ],
) -> None:
    """Write a Flower app that is ready to run, and a README with the commands."""
    from sofa_fl_flower.flower.new_app import new_app

    path = new_app(folder)
    put(f"wrote a Flower app to {path}; {path / 'README.md'} lists the commands")


@deploy.command()
def site(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    app: Annotated[Path, typer.Option(help="The site's own copy of the app.")],
    name: Annotated[
        str, typer.Option(help="The site's name in the server's tree and report.")
    ] = "",
) -> None:
    """Create the folder of a site: a policy to edit, its key, its ledger and its audit log."""
    from sofa_fl_flower.machine.site import POLICY_FILE, create_site

    path = create_site(folder, app, name)
    file = path / POLICY_FILE
    put(f"wrote {file}; read and edit it, then start the node with --policy {file}")


@deploy.command()
def audit(
    policy: Annotated[Path, typer.Option(metavar="FILE", help="The site's policy.")],
) -> None:
    """Show what has left a site in all runs, from its ledger, budget and audit log."""
    from sofa_fl_flower.machine.policy import load_policy
    from sofa_fl_flower.machine.site_report import site_report

    put("\n".join(site_report(load_policy(policy))))


@deploy.command()
def check(
    policy: Annotated[Path, typer.Option(metavar="FILE", help="The site's policy.")],
    node_config: Annotated[str, typer.Option(help="As for `deploy node`.")] = "",
) -> None:
    """Check whether a site is ready: load its samples as the node would, without connecting."""
    from sofa_fl_flower.flower.check_site import check_site, read_node_config
    from sofa_fl_flower.machine.policy import load_policy

    put("\n".join(check_site(load_policy(policy), read_node_config(node_config))))


@deploy.command(name="try")
def try_it(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="A new folder, whose name becomes the app's.")
    ] = Path("sofa-try"),
    nodes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of simulated machines.")
    ] = 3,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Rounds after the warm-up.")] = 3,
) -> None:
    """Try a federation on this computer: write an app, simulate N machines, and show the tree."""
    from sofa_fl_flower.flower.try_out import try_out

    run = try_out(folder, nodes, rounds)
    from sofa_fl.cli.show import show_round
    from sofa_fl.report.history import read_round

    show_round(console(), read_round(run), every=False)
    put(f"\nReport  {shell(run / 'report.html')}  open it in a browser")
    put(f"Next    add your data to the app, as {shell(folder / 'README.md')} describes")


@deploy.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
)
def node(context: typer.Context) -> None:
    """Run a SuperNode under a policy; takes --policy and the options of flower-supernode.

    It polls every 0.3 s during a run and keeps one process; Flower's own SuperNode polls every
    three seconds and starts Python for each message.
    """
    from sofa_fl_flower.flower.supernode import main

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

    By default it listens on 127.0.0.1:8001, with the certificate and the database of the app.
    Unlike Flower's own SuperLink, it refuses requests that no honest SuperNode makes.
    """
    from sofa_fl_flower.flower.superlink import main

    main(context.args)
