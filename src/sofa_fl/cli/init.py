"""`sofa-fl init`: a configuration and a script to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sofa_fl.errors import RunError

TEMPLATES = Path(__file__).parent / "templates"
FILES = {"config.yaml": "config.yaml", "train.py": "train.py.txt"}


def init(
    folder: Annotated[
        Path,
        typer.Argument(metavar="[DIR]", help="Folder to write to; by default the current one."),
    ] = Path(),
) -> None:
    """Write a small configuration, and a script with a network and data to replace with yours."""
    from sofa_fl.cli.screen import put, shell
    from sofa_fl.experiment.storage.disk import write_text

    if there := [name for name in FILES if (folder / name).exists()]:
        raise RunError(f"{folder / there[0]} already exists; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot create the folder {folder}: {error.strerror}") from None
    for name, template in FILES.items():
        write_text(folder / name, (TEMPLATES / template).read_text(encoding="utf-8"))
    go = f"cd {shell(folder)} && " if folder.resolve() != Path.cwd() else ""
    wrote = " and ".join(shell(folder / name) for name in FILES)
    put(f"wrote {wrote}; to try it, run: {go}python train.py")
