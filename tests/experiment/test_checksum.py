"""A checksum by several threads is that of one."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.experiment.storage import checksum as module
from sofa_fl.experiment.storage.checksum import checksum_while, joined


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_checksums_are_joined_as_bytes_are(first: bytes, second: bytes) -> None:
    together = joined(zlib.crc32(first), zlib.crc32(second), len(second))
    assert together == zlib.crc32(first + second)


@pytest.mark.parametrize("large", [1, 1 << 40])
@pytest.mark.parametrize("num_bytes", [1, 3, 4, 1001])
def test_many_bytes_are_checked_in_parts(
    num_bytes: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE", large)
    data, done = bytes(range(256)) * 4, list[bool]()
    found = checksum_while(
        memoryview(data)[:num_bytes], zlib.crc32(b"before"), lambda: done.append(True)
    )
    assert found == zlib.crc32(b"before" + data[:num_bytes])
    assert done == [True]


@pytest.mark.parametrize("large", [1, 1 << 40])
def test_an_error_of_the_work_is_raised(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", large)

    def fail() -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        checksum_while(memoryview(bytes(9)), 0, fail)
