"""Phrases that sound translated do not come back: in the code, its messages and the pages."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PHRASES = (
    "are not heard",
    "was not heard",
    "is not heard",
    "nobody of none",
    "send rubbish",
    "built anew",
    "so many-th",
    "of so many",
    "and so are all others",
)
PAGES = [*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("phrase", PHRASES)
def test_plain_english(phrase: str) -> None:
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("packages/*/src/**/*.py"), *PAGES]
    found = [path.name for path in files if phrase in path.read_text(encoding="utf-8").lower()]
    assert found == []
