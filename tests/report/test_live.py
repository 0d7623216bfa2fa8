from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from sofa_fl.errors import RunError
from sofa_fl.report.live import LiveServer
from tests.report.cases import EVENTS, write_run


@contextmanager
def serving(folder: Path) -> Iterator[LiveServer]:
    with LiveServer(folder) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def get(url: str, **headers: str) -> Any:
    with urlopen(Request(url, headers=headers), timeout=10) as answer:
        text = answer.read().decode()
        return json.loads(text) if "json" in answer.headers["Content-Type"] else text


def test_rounds_come_as_they_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", EVENTS[:1])
    with serving(folder) as server:
        assert server.url.startswith("http://localhost:")
        assert '"live":true' in get(server.url)
        assert [r["round"] for r in get(f"{server.url}data?since=0")["history"]] == [0]
        assert get(f"{server.url}data?since=1") == {"from": 1, "history": [], "summary": None}
        with (folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(EVENTS[1]) + "\n")
        (folder / "summary.json").write_text('{"rounds": 1}')
        news = get(f"{server.url}data?since=1")
        assert [r["round"] for r in news["history"]] == [1]
        assert news["summary"] == {"rounds": 1}


def test_a_run_that_was_cut_back_is_told_whole(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with serving(folder) as server:
        assert len(get(f"{server.url}data?since=0")["history"]) == 2
        (folder / "events.jsonl").write_text(json.dumps(EVENTS[0]) + "\n")
        news = get(f"{server.url}data?since=2")
        assert (news["from"], len(news["history"])) == (0, 1)


def test_before_the_warm_up_is_done(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [])
    (folder / "events.jsonl").unlink()
    with serving(folder) as server:
        assert '"history":[]' in get(server.url)
        assert get(f"{server.url}data")["history"] == []


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("else", {}, 404),
        ("../config.yaml", {}, 404),
        ("data?since=x", {}, 400),
        ("", {"Host": "evil.example"}, 403),
        ("data", {"Host": "evil.example:80"}, 403),
    ],
)
def test_what_is_refused(tmp_path: Path, path: str, headers: dict[str, str], status: int) -> None:
    with serving(write_run(tmp_path / "run")) as server:
        with pytest.raises(HTTPError) as error:
            get(server.url + path, **headers)
        error.value.close()
        assert error.value.code == status


def test_a_damaged_run_does_not_end_the_server(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with serving(folder) as server:
        (folder / "events.jsonl").write_text("no json\n")
        with pytest.raises(HTTPError) as error:
            get(f"{server.url}data?since=0")
        error.value.close()
        assert error.value.code == 503
        (folder / "events.jsonl").write_text(json.dumps(EVENTS[0]) + "\n")
        assert len(get(f"{server.url}data?since=0")["history"]) == 1


def test_where_it_cannot_be_served(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with LiveServer(folder) as server, pytest.raises(RunError, match="Address already in use"):
        LiveServer(folder, port=server.server_port)
    with pytest.raises(RunError, match="0 to 65535, got 70000"):
        LiveServer(folder, port=70000)
    with pytest.raises(RunError, match=r"cannot serve at no\.such\.host\.invalid:0"):
        LiveServer(folder, host="no.such.host.invalid")


def test_a_folder_of_runs(tmp_path: Path) -> None:
    """A table of all runs, a page for each, and any of them side by side; nothing else."""
    (tmp_path / "runs" / "compare").mkdir(parents=True)
    write_run(tmp_path / "runs" / "one & <b>")
    write_run(tmp_path / "runs" / "compare" / "two", EVENTS[:1])
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.yaml").write_text("method: sofa\n")
    write_run(tmp_path / "outside")
    with serving(tmp_path / "runs") as server:
        table = get(server.url)
        assert "one &amp; &lt;b&gt;" in table
        assert "<b>" not in table
        assert "<td>1 of 5</td><td>94.67%</td><td>90.00%</td><td>not ended</td>" in table
        assert "broken" in table
        news = get(f"{server.url}run/compare/two/data?since=0")
        assert [record["round"] for record in news["history"]] == [0]
        assert '"live":true' in get(f"{server.url}run/one%20%26%20%3Cb%3E/")
        both = get(f"{server.url}compare?run=compare/two&run=one%20%26%20%3Cb%3E&run=none")
        assert "2 runs compared" in both
        for path in ("run/../outside/", "run/outside/", "compare?run=../outside", "data"):
            with pytest.raises(HTTPError, match="404"):
                get(f"{server.url}{path}")
