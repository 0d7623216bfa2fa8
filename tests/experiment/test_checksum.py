"""The checksum of two pieces is that of both."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.experiment.storage.disk import joined


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_checksums_are_joined_as_bytes_are(first: bytes, second: bytes) -> None:
    together = joined(zlib.crc32(first), zlib.crc32(second), len(second))
    assert together == zlib.crc32(first + second)
