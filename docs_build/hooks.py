"""What MkDocs calls while it builds the site: pages made of the code, and links that leave it.

MkDocs lets a hook import what lies beside it.
"""

from __future__ import annotations

import re
from typing import Any

from api_page import api_page
from commands_page import commands_page
from config_page import config_page
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from notebook import notebook_page

MADE = {
    "config.md": config_page,
    "commands.md": commands_page,
    "api.md": api_page,
    "notebook.md": notebook_page,
}
WIDEST = re.compile(r"^\|(?:[^|\n]*\|){9,}$", re.MULTILINE)  # tables that need the whole width
ROW = re.compile(r"^\|.*$", re.MULTILINE)
TOGETHER = re.compile(r"(?<=\d) ([±/]) (?=\d)")  # two numbers that stay on one line
MARK = "<!-- made when the site is built -->"
ELSEWHERE = "https://unpkg.com/iframe-worker/shim"
OUTWARD = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)]+)\)")


# A list right after a line of prose: elsewhere that is a list, here only after an empty line.
LIST = re.compile(r"^((?![-\s|#>`]).+)\n(- )", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in what is made of the code; a link to a file beside the docs is only its name."""
    if WIDEST.search(markdown):
        page.meta.setdefault("hide", []).append("navigation")
    if page.file.src_uri in MADE:
        markdown = markdown.replace(MARK, MADE[page.file.src_uri]())
    markdown = ROW.sub(lambda row: TOGETHER.sub(r"&nbsp;\1&nbsp;", row[0]), markdown)
    return LIST.sub(r"\1\n\n\2", OUTWARD.sub(_named, markdown))


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Where the theme would load a script from elsewhere, take our own."""
    return output.replace(ELSEWHERE, get_relative_url("file-worker.js", page.url))


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    """The same for the page that is shown for a wrong address."""
    return output_content.replace(ELSEWHERE, "/file-worker.js")


def _named(link: re.Match[str]) -> str:
    """A link to a file beside the docs as its words, and where it is unless they say so."""
    words, target = link.groups()
    return words if words.strip("`") in target else f"{words} (`{target}`)"
