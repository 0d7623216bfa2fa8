"""A site's ledger of the samples that it has disclosed, and the cap that it enforces.

A sample is known by a keyed hash of its content, so the ledger outlives any change of the
hold-out, the order or the number of samples. It belongs to the site, not to a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sofa_fl.data.federated_data import Arrays, Samples
from sofa_fl.deploy.machine.sealed_log import Log, MemoryLog

Mark = bytes  # a keyed hash of one sample
MARK_SIZE = 16


@dataclass(frozen=True, slots=True)
class DisclosureLedger:
    """The marks of all samples that have ever been disclosed."""

    log: Log = field(default_factory=MemoryLog)

    def read(self) -> set[Mark]:
        content = self.log.read()
        whole = len(content) // MARK_SIZE
        return {content[at * MARK_SIZE : (at + 1) * MARK_SIZE] for at in range(whole)}

    def add(self, marks: Sequence[Mark]) -> None:
        """Return once the marks are recorded."""
        whole = len(self.log.read()) // MARK_SIZE
        self.log.append(b"".join(marks), whole * MARK_SIZE)


def mark_of(samples: Arrays, position: int, key: bytes) -> Mark:
    """The mark of one sample: the same for the same content, and of no use without the key."""
    digest = hashlib.blake2b(key=key, digest_size=MARK_SIZE, person=b"sample")
    for array in (samples.x, samples.y):
        row = np.ascontiguousarray(array[position])
        digest.update(f"{row.dtype} {row.shape}".encode())
        digest.update(row.tobytes())
    return digest.digest()


def disclose(
    samples: Arrays, asked: Samples, cap: float, ledger: DisclosureLedger, key: bytes
) -> Samples:
    """Record as disclosed, and return, the positions asked for that the cap allows.

    `cap` is the fraction of `samples` that may ever be disclosed. Everything that the ledger has
    counts, also samples that the site no longer owns. Samples disclosed before are allowed again,
    others in the order asked until the cap.
    """
    if cap <= 0:
        return np.empty(0, dtype=np.int64)
    with ledger.log.locked():
        known = ledger.read()
        room = int(cap * len(samples)) - len(known)
        allowed: list[int] = []
        new: list[Mark] = []
        for position in dict.fromkeys(asked.tolist()):
            if not 0 <= position < len(samples):
                continue
            mark = mark_of(samples, position, key)
            if mark not in known:
                if room <= 0:
                    continue
                known.add(mark)
                new.append(mark)
                room -= 1
            allowed.append(position)
        if new:
            ledger.add(new)
    return np.array(allowed, dtype=np.int64)
