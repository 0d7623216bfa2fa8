"""The reference of the public names, as Markdown for mkdocstrings."""

from __future__ import annotations

import sofa_fl

# By the start of the module that a name is at home in.
GROUPS = {
    "Runs": ("api.", "experiment.", "report.", "errors"),
    "Data": ("data.",),
    "Writing a method": (
        "methods.method",
        "methods.registry",
        "methods.sofa",
        "federation",
        "models.",
        "engine.",
        "sharing",
        "guard",
    ),
    "The tree": ("topology.",),
}


def api_page() -> str:
    """Every public name in its group; sections of the configuration have a page of their own."""
    lines: list[str] = []
    for title, homes in GROUPS.items():
        lines += [f"## {title}", ""]
        for name in sofa_fl.__all__:
            home = sofa_fl._HOME[name]
            if home.startswith(homes) and not is_section(name):
                lines += [f"::: sofa_fl.{home}.{name}", ""]
    sections = ", ".join(f"`{name}`" for name in sofa_fl.__all__ if is_section(name))
    return "\n".join(
        [
            *lines,
            "## Sections of the configuration",
            "",
            f"{sections}: their keys are in [the reference of the configuration](config.md).",
        ]
    )


def is_section(name: str) -> bool:
    """Whether a name is a part of `Config`, of which the reference of the configuration tells."""
    return name.endswith("Config") and name != "Config"
