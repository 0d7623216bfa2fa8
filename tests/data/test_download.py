"""Downloads against a web server on this machine: whole and checked, or nothing at all."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from sofa_fl.data import datasets
from sofa_fl.data.datasets import load_dataset
from sofa_fl.data.download import (
    PUBLISHED,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    Published,
    cache_folder,
    download,
)
from sofa_fl.errors import DataError
from tests.data.idx_files import write_idx

NAME = "fashion-mnist"


class Handler(SimpleHTTPRequestHandler):
    """Serves files, remembers what was asked for, and keeps quiet."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Mirror:
    def __init__(self, folder: Path, url: str, asked: list[str]) -> None:
        self.folder, self.url, self.asked = folder, url, asked


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A mirror of a tiny dataset that stands in for the published one."""
    monkeypatch.delenv("SOFA_FL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(datasets, "PACKAGE_FOLDER", tmp_path / "package")
    folder = tmp_path / "mirror"
    folder.mkdir()
    for images, labels in ((TRAIN_IMAGES, TRAIN_LABELS), (TEST_IMAGES, TEST_LABELS)):
        write_idx(folder / images, np.zeros((2, 28, 28), np.uint8))
        write_idx(folder / labels, np.arange(2, dtype=np.uint8))
    asked: list[str] = []
    handler = type("Recorder", (Handler,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    publish(monkeypatch, folder, url)
    yield Mirror(folder, url, asked)
    server.shutdown()
    server.server_close()
    thread.join()


def publish(monkeypatch: pytest.MonkeyPatch, folder: Path, *mirrors: str) -> None:
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    monkeypatch.setitem(PUBLISHED, NAME, Published(sums, mean=0.5, std=0.5, mirrors=mirrors))


def refusing_url() -> str:
    """An address that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


def test_what_is_not_found_is_downloaded_once(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        train, test = load_dataset(NAME)
        assert (train.x.shape, test.y.tolist()) == ((2, 1, 28, 28), [0, 1])
    assert len(mirror.asked) == 4
    found = {path.name: path.read_bytes() for path in cache_folder(NAME).iterdir()}
    assert found == {path.name: path.read_bytes() for path in mirror.folder.iterdir()}
    assert capsys.readouterr().out == ""


def test_only_missing_or_damaged_files_are_fetched(mirror: Mirror, tmp_path: Path) -> None:
    folder = download(NAME, tmp_path / "here")
    (folder / TEST_LABELS).unlink()
    (folder / TEST_IMAGES).write_bytes(b"damaged")
    mirror.asked.clear()
    download(NAME, folder)
    assert sorted(mirror.asked) == [f"/{TEST_IMAGES}", f"/{TEST_LABELS}"]
    assert (folder / TEST_IMAGES).read_bytes() == (mirror.folder / TEST_IMAGES).read_bytes()


def test_wrong_sum_leaves_nothing_behind(mirror: Mirror) -> None:
    for path in mirror.folder.iterdir():
        path.write_bytes(b"something else")
    with pytest.raises(DataError, match=r"could not download .* wrong SHA-256"):
        load_dataset(NAME)
    assert list(cache_folder(NAME).iterdir()) == []


def test_an_old_file_outlives_a_failed_download(mirror: Mirror, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / TRAIN_IMAGES).write_bytes(b"old")
    for path in mirror.folder.iterdir():
        path.write_bytes(b"something else")
    with pytest.raises(DataError, match="wrong SHA-256"):
        download(NAME, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {TRAIN_IMAGES: b"old"}


def test_next_mirror_is_tried(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, mirror.folder, refusing_url(), mirror.url + "nowhere/", mirror.url)
    assert len(load_dataset(NAME)[0]) == 2


def test_refused_connection_says_where_to_put_the_files(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, mirror.folder, url := refusing_url(), mirror.url + "nowhere/")
    with pytest.raises(DataError) as caught:
        load_dataset(NAME)
    message = str(caught.value)
    for part in (url, "refused", "404", str(cache_folder(NAME)), "yourself", *PUBLISHED[NAME].sums):
        assert part in message
    assert "\n" not in message
    assert list(cache_folder(NAME).iterdir()) == []


def test_folder_that_cannot_be_made(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="XDG_CACHE_HOME"):
        download(NAME, tmp_path / "file" / "folder")


@pytest.mark.parametrize("name", ["mnist", "plants"])
def test_only_datasets_with_mirrors_can_be_downloaded(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{name!r} cannot be downloaded; these can: fashion-mnist"):
        download(name, tmp_path)


def test_cache_is_in_the_home_folder_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder("x") == tmp_path / ".cache" / "sofa-fl" / "x"
