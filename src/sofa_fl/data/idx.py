"""Read idx files, the format of MNIST and its relatives, gzipped or not."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.errors import DataError

# The third byte of the magic number says what the values are; all are big-endian.
DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: Path, sha256: str | None = None) -> NDArray[Any]:
    """Read one idx file; `sha256`, where given, is that of the file as it lies on the disk."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if sha256 is not None and (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise DataError(
            f"{path} is not the published file: its SHA-256 is {found}, not {sha256}; replace it"
        )
    if content.startswith(GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(
                f"{path} is a damaged gzip file ({error}); replace it by a whole one"
            ) from error
    return _parse(content, path)


def _parse(content: bytes, path: Path) -> NDArray[Any]:
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in DTYPES:
        raise DataError(
            f"{path} is not an idx file: it must begin with two zero bytes, a known type and the "
            f"number of dimensions, and begins with 0x{content[:4].hex()}"
        )
    dtype, num_dims = np.dtype(DTYPES[content[2]]), content[3]
    start = 4 + 4 * num_dims
    if num_dims == 0 or len(content) < start:
        raise DataError(
            f"the header of {path} is incomplete: {num_dims} dimensions need {start} bytes "
            f"(and at least one dimension), it has {len(content)}; replace the file"
        )
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", num_dims, offset=4))
    # Python integers: a corrupt header must not overflow, nor allocate what it claims.
    needed, found = math.prod(shape) * dtype.itemsize, len(content) - start
    if needed != found:
        raise DataError(
            f"{path} is truncated or corrupt: shape {shape} needs {needed} bytes of values, "
            f"it holds {found}; replace the file"
        )
    values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))
