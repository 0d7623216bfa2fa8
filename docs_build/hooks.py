"""What MkDocs calls while it builds the site: pages made of the code, and links that leave it.

MkDocs lets a hook import what lies beside it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from api_page import api_page
from commands_page import commands_page
from config_page import config_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

MADE = {"config.md": config_page, "commands.md": commands_page, "api.md": api_page}
MARK = "<!-- made when the site is built -->"
ELSEWHERE = "https://unpkg.com/iframe-worker/shim"
OPTIONAL = ("own.md", "deploy.md", "ray.md")  # each comes with its part of the package
OUTWARD = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)]+)\)")


# A list right after a line of prose: elsewhere that is a list, here only after an empty line.
LIST = re.compile(r"^((?![-\s|#>`]).+)\n(- )", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave out of the navigation what is not there: some pages come with parts of the package."""
    if config.nav is not None:
        config.nav = _present(config.nav, Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in what is made of the code; a link to a file beside the docs is only its name."""
    if page.file.src_uri in MADE:
        markdown = markdown.replace(MARK, MADE[page.file.src_uri]())
    return LIST.sub(r"\1\n\n\2", OUTWARD.sub(r"\1 (`\2`)", markdown))


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Where the theme would load a script from elsewhere, take our own."""
    return output.replace(ELSEWHERE, get_relative_url("file-worker.js", page.url))


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    """The same for the page that is shown for a wrong address."""
    return output_content.replace(ELSEWHERE, "/file-worker.js")


def _present(nav: list[Any], docs: Path) -> list[Any]:
    kept: list[Any] = []
    for item in nav:
        ((title, target),) = item.items()
        if isinstance(target, list):
            kept.append({title: _present(target, docs)})
        elif target not in OPTIONAL or (docs / target).exists():
            kept.append(item)
    return kept
