"""A new Flower app folder: all that is needed to run, and where to put one's own."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.storage.disk import write_text

# What each file of the template becomes.
FILES = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "env.sh.txt": "env.sh",
    "keys.py.txt": "keys.py",
    "gitignore.txt": ".gitignore",
    "config.toml.txt": ".flwr/config.toml",
    "init.py.txt": "{package}/__init__.py",
    "server_app.py.txt": "{package}/server_app.py",
    "client_app.py.txt": "{package}/client_app.py",
    "data.py.txt": "{package}/data.py",
    "model.py.txt": "{package}/model.py",
    "sofa.yaml.txt": "{package}/sofa.yaml",
}


def new_app(folder: Path) -> Path:
    """Write an app into a new or empty folder; its name is the app's."""
    folder = folder.expanduser().resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not an empty folder; choose another")
    package = re.sub(r"\W+", "_", folder.name.lower()).strip("_")
    if not package.isidentifier():
        raise ConfigError(f"{folder.name!r} cannot be the name of an app; begin it with a letter")
    values = {"name": package.replace("_", "-"), "package": package, "folder": str(folder)}
    for source, target in FILES.items():
        text = (
            files("sofa_fl.deploy.flower").joinpath("template", source).read_text(encoding="utf-8")
        )
        path = folder / target.format(package=package)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, filled(text, values))
    return folder


def filled(text: str, values: dict[str, str]) -> str:
    """The text with `$name`, `$package` and `$folder` filled in; other dollars stay."""
    return re.sub(r"\$(name|package|folder)\b", lambda match: values[match[1]], text)
