"""Create the folder of a new Flower app, ready to run, with places for the user's own code."""

from __future__ import annotations

import re
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.storage.disk import write_text

# Where each file of the template goes.
TEMPLATE_FILES = {
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
    """Write an app into a new or empty folder, whose name is the app's."""
    folder = folder.expanduser().resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} must be a new or empty folder; choose another")
    package = re.sub(r"\W+", "_", folder.name.lower()).strip("_")
    if not package.isidentifier() or iskeyword(package):
        raise ConfigError(
            "an app's name must begin with a letter and must not be a Python keyword, got "
            f"{folder.name!r}; choose another folder"
        )
    values = {"name": package.replace("_", "-"), "package": package, "folder": str(folder)}
    template = files("sofa_fl_flower.flower") / "template"
    for source, target in TEMPLATE_FILES.items():
        text = template.joinpath(source).read_text(encoding="utf-8")
        path = folder / target.format(package=package)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, fill(text, values))
    return folder


def fill(text: str, values: dict[str, str]) -> str:
    """Fill in `$name`, `$package` and `$folder`; leave other dollars."""
    return re.sub(r"\$(name|package|folder)\b", lambda match: values[match[1]], text)
