"""The reference of the commands, as Markdown: made of what `sofa-fl --help` is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from sofa_fl.cli.main import app

MARKUP = re.compile(r"\[/?(?:bold|/)?\]")


def commands_page() -> str:
    """A section per command, with its usage and a table of what it takes."""
    group: Any = typer.main.get_command(app)
    return "\n".join(
        line for name, command in group.commands.items() for line in _command(name, command)
    )


def _command(name: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=f"sofa-fl {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"## `sofa-fl {name}`", "", _plain(command.help or ""), "")
    yield from ("```text", f"sofa-fl {name} {usage}", "```", "")
    yield from ("| option | meaning |", "| --- | --- |")
    for parameter in command.params:
        metavar = parameter.metavar or ""
        if parameter.param_type_name == "argument":
            names = f"`{metavar or parameter.name.upper()}`"
        else:
            flags = ", ".join(f"`{flag}`" for flag in parameter.opts)
            names = f"{flags} `{metavar}`" if metavar else flags
        yield f"| {names} | {_plain(getattr(parameter, 'help', None) or '')} |"
    yield ""


def _plain(text: str) -> str:
    return MARKUP.sub("`", " ".join(text.split())).replace("|", "\\|")
