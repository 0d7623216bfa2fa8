"""Commands of packages that may not be installed; each is imported when it is called."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from sofa_fl.errors import ConfigError

GROUP = "sofa_fl.commands"  # of entry points, each a `typer.Typer`
PACKAGES = {"deploy": "sofa-fl-flower"}


class AddOn(TyperCommand):
    """Stands for a command of another package: its name and help are known without importing it."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        return addon_command(str(self.name)).make_context(info_name, args, parent, **extra)


def addon_command(name: str) -> Any:
    """The command that an installed package gives this name."""
    from importlib.metadata import entry_points  # here, since only these commands need it

    for found in entry_points(group=GROUP, name=name):
        return typer.main.get_command(found.load())
    raise ConfigError(f"{name!r} is not installed; install it with: pip install {PACKAGES[name]}")


def deploy() -> None:
    """Run a federation on real machines, over Flower (needs sofa-fl-flower)."""
