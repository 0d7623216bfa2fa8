"""idx files: what is written is read, and what is broken is named in one sentence."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.data.datasets import read_idx
from sofa_fl.errors import DataError
from tests.data.idx_files import write_idx

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("name", ["values", "values.gz"])
def test_reads_what_was_written(tmp_path: Path, dtype: str, name: str) -> None:
    values = IMAGES.astype(dtype)
    write_idx(tmp_path / name, values)
    found = read_idx(tmp_path / name)
    assert found.dtype == values.dtype
    assert found.flags.writeable
    np.testing.assert_array_equal(found, values)


def test_bytes_follow_the_format(tmp_path: Path) -> None:
    write_idx(tmp_path / "labels", np.array([258, -1], dtype=np.int16))
    assert (tmp_path / "labels").read_bytes().hex() == "00000b01" + "00000002" + "0102ffff"


def broken_files() -> dict[str, tuple[bytes, str]]:
    plain = bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])
    packed = gzip.compress(plain)
    return {
        "empty": (b"", "is not an idx file"),
        "text": (b"<html>not found</html>", "begins with 0x3c68746d"),
        "unknown type": (bytes([0, 0, 7, 1, 0, 0, 0, 0]), "is not an idx file"),
        "no dimension": (bytes([0, 0, 8, 0]), "0 dimensions"),
        "half a header": (plain[:6], "needs? 8 bytes .*it has 6"),
        "values missing": (plain[:-1], "needs 3 bytes of values, but it has 2"),
        "values too many": (plain + b"\0", "needs 3 bytes of values, but it has 4"),
        "huge claim": (bytes([0, 0, 8, 3]) + b"\xff" * 12, "truncated or corrupt"),
        "gzip cut short": (packed[:-9], "damaged gzip"),
        "gzip header only": (packed[:4], "damaged gzip"),
        "gzip with wrong sum": (packed[:-8] + b"\1" * 8, "damaged gzip"),
        "gzip with broken body": (packed[:10] + b"\xff" * 20, "damaged gzip"),
    }


@pytest.mark.parametrize("case", broken_files())
def test_broken_file_is_named(tmp_path: Path, case: str) -> None:
    content, message = broken_files()[case]
    (tmp_path / "broken.idx").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(tmp_path / "broken.idx")
    assert str(tmp_path / "broken.idx") in str(caught.value)


@given(cut=st.integers(0, 200), flips=st.binary(min_size=1, max_size=4), data=st.data())
def test_damage_gives_a_data_error_or_an_array(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flips: bytes, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gz"
    write_idx(path, IMAGES)
    content = bytearray(path.read_bytes()[: 1 + cut])
    for flip in flips:
        content[data.draw(st.integers(0, len(content) - 1))] ^= flip
    path.write_bytes(content)
    # Any other error fails the test.
    with suppress(DataError):
        assert isinstance(read_idx(path), np.ndarray)


def test_missing_file_and_wrong_sum(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*nothing"):
        read_idx(tmp_path / "nothing")
    write_idx(tmp_path / "values", IMAGES)
    with pytest.raises(DataError, match="SHA-256"):
        read_idx(tmp_path / "values", sha256="0" * 64)
