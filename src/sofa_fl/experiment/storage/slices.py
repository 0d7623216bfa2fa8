"""Many bytes written to a file in slices, by several threads that also check and flush them.

So the disk writes while the next slices are copied to where it finds them, and neither waits for
the checksum: what took as long as all three together takes about as long as the disk.
"""

from __future__ import annotations

import io
import os
import zlib
from concurrent.futures import ThreadPoolExecutor

from sofa_fl.experiment.storage.checksum import joined
from sofa_fl.experiment.storage.disk import write_all

LARGE = 1 << 25  # bytes for which threads are worth starting
SLICE = 1 << 23
THREADS = 4  # each has the lock of the file while it writes, and waits for the disk otherwise
_flush = getattr(os, "fdatasync", os.fsync)


def write_checked(file: io.FileIO, data: memoryview, checksum: int) -> int:
    """Write `data` where the file stands, and continue a checksum over it.

    Whoever wants all of it on disk must still flush the file.
    """
    if data.nbytes < LARGE or not hasattr(os, "pwrite"):
        write_all(file, data)
        return zlib.crc32(data, checksum)
    number, first = file.fileno(), file.tell()

    def write(start: int) -> int:
        part = data[start : start + SLICE]
        found = zlib.crc32(part)  # this releases the interpreter's lock, as the others do
        write_at(number, part, first + start)
        _flush(number)
        return found

    starts = range(0, data.nbytes, SLICE)
    with ThreadPoolExecutor(THREADS, "slice") as threads:
        for start, found in zip(starts, threads.map(write, starts)):  # an error ends the others
            checksum = joined(checksum, found, min(SLICE, data.nbytes - start))
    file.seek(first + data.nbytes)
    return checksum


def write_at(number: int, data: memoryview, place: int) -> None:
    """Write all of it to an open file, at a place; see `write_all`."""
    rest = data
    while len(rest):
        written = os.pwrite(number, rest, place)
        rest, place = rest[written:], place + written
