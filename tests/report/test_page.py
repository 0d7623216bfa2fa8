from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic_run import write_synthetic

from sofa_fl.errors import RunError
from sofa_fl.report.page import SCRIPTS, asset, page, read_run, scripts, write_report
from tests.report.cases import write_run

ASSETS = Path(__file__).parents[2] / "src" / "sofa_fl" / "report" / "assets"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> {{data}} & \u2028"


class Tags(HTMLParser):
    """The tags of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.texts.append(data)


def test_the_page_is_one_file_and_needs_no_other(tmp_path: Path) -> None:
    file = write_report([write_run(tmp_path / "run")])
    assert file == tmp_path / "run" / "report.html"
    found = Tags(file.read_text())
    for tag, attributes in found.tags:
        assert "src" not in attributes
        assert tag != "link" or str(attributes["href"]).startswith("data:")
    assert "http://" not in file.read_text().replace("http://www.w3.org/", "")
    assert "https://" not in file.read_text()
    data = json.loads(found.texts[0])
    assert data["live"] is False
    assert [run["name"] for run in data["runs"]] == ["run"]


def test_the_browser_is_told_to_run_these_scripts_only(tmp_path: Path) -> None:
    text = page([read_run(write_run(tmp_path / "run"))])
    found = Tags(text)
    digest = base64.b64encode(hashlib.sha256(found.texts[1].encode()).digest()).decode()
    policy = next(a["content"] for _, a in found.tags if "http-equiv" in a)
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_hostile_names_stay_data(tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "|")  # no folder can have the plain one
    folder = write_synthetic(
        tmp_path / name,
        6,
        2,
        config={"data": {"name": HOSTILE}, HOSTILE: [HOSTILE, float("nan")], "note": HOSTILE},
        extra={"set_aside": {"1": HOSTILE}},
    )
    text = write_report([folder]).read_text()
    plain = page([read_run(write_synthetic(tmp_path / "plain", 6, 2))])
    assert [tag for tag, _ in Tags(text).tags] == [tag for tag, _ in Tags(plain).tags]
    assert "<img" not in text
    assert text.count("</script>") == plain.count("</script>")
    run = json.loads(Tags(text).texts[0])["runs"][0]
    assert run["data"] == HOSTILE
    assert run["config"][HOSTILE] == [HOSTILE, None]
    assert run["name"] == name


def test_scripts_write_text_and_never_markup() -> None:
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert word not in scripts()


def test_every_script_is_shipped_and_none_has_outgrown_itself() -> None:
    assert {path.stem for path in ASSETS.glob("*.js")} == set(SCRIPTS)
    sizes = {path.name: len(path.read_text().splitlines()) for path in ASSETS.iterdir()}
    assert not {name: size for name, size in sizes.items() if size > 300}
    assert "</script" not in scripts()
    assert not re.search(r"\{\{|\}\}\}\}", asset("page.css"))


@pytest.mark.parametrize("num_clients", [20, 200, 1000])
def test_the_page_stays_small(tmp_path: Path, num_clients: int) -> None:
    file = write_report([write_synthetic(tmp_path / "run", num_clients)])
    assert file.stat().st_size < 15e6 / 5


def test_several_runs_on_one_page(tmp_path: Path) -> None:
    runs = [write_synthetic(tmp_path / name, 6, 2) for name in ("one", "two")]
    file = write_report(runs, tmp_path / "both.html")
    data = json.loads(Tags(file.read_text()).texts[0])
    assert [run["name"] for run in data["runs"]] == ["one", "two"]
    assert "<title>2 runs compared</title>" in file.read_text()


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with pytest.raises(RunError, match=r"cannot write .*: No such file or directory"):
        write_report([folder], tmp_path / "not" / "there.html")
