"""`sofa-fl reproduce`: runs the study in the repository, which the installed package lacks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from sofa_fl.errors import ConfigError

REPOSITORY = Path(__file__).parents[3]
# All arguments are for the study to read, --help among them.
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def reproduce(context: typer.Context) -> None:
    """Reproduce the paper's tables and figures, and compare all methods (needs the repository)."""
    study_command().main(context.args, prog_name=context.command_path, standalone_mode=False)


def study_command() -> Any:
    """The command in `study/cli.py` of the repository that this package lies in."""
    if not (REPOSITORY / "study" / "cli.py").is_file():
        raise ConfigError(
            "'reproduce' belongs to the repository of SOFA-FL, not to the installed package; "
            "run it from a checkout"
        )
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    from study.cli import app

    return typer.main.get_command(app)
