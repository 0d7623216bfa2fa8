"""What a site never forgets: which samples it disclosed, and in which sums it took part.

A sample is known by a keyed hash of its content, so the ledger outlives any change of the hold-out,
the order or the number of samples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge

from sofa_fl.data.federated_data import Arrays, Samples
from sofa_fl_flower.machine.sealed_log import Log, MemoryLog
from sofa_fl_flower.masked_sum.plan import SMALLEST
from sofa_fl_flower.transport.message_checks import RefusalError

Mark = bytes  # a keyed hash of one sample
MARK_SIZE = 16
Line = dict[str, Any]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureAggregationConfig:
    """How a site's models are hidden in sums.

    Attributes:
        smallest_cluster: The smallest number of sites in a sum.
        peers: The public keys of the sites that may be in a sum with this one (`sum.pub` in their
            folders); if there are none, any keys that the server names.
        max_clear_models: How many models may ever leave outside a sum, in all runs together; None
            means any number.
    """

    smallest_cluster: Annotated[int, Ge(SMALLEST)] = SMALLEST
    peers: tuple[str, ...] = ()
    max_clear_models: Annotated[int, Ge(0)] | None = None


@dataclass(frozen=True, slots=True)
class SumRecord:
    """Which sums a site took part in, and how many models and scores left outside of them.

    A second masked model or a second set of survivors in one sum would unmask the site, so that
    everything is on record before it leaves.
    """

    log: Log

    def begin(self, digest: str) -> None:
        """Record that a masked model leaves for a sum; raise if one has left for it before."""

        def added(lines: list[Line]) -> Line:
            if any(line.get("masked") == digest for line in lines):
                raise RefusalError(
                    "this site has already sent a model for this sum; start another sum"
                )
            return {"masked": digest}

        self._append(added)

    def reveal(self, digest: str, survivors: tuple[int, ...]) -> None:
        """Record who is in a sum; raise if somebody else was said to be before."""

        def added(lines: list[Line]) -> Line | None:
            before = [line["survivors"] for line in lines if line.get("revealed") == digest]
            if not before:
                return {"revealed": digest, "survivors": list(survivors)}
            if before[0] != list(survivors):
                raise RefusalError("this site was told earlier that this sum has other members")
            return None

        self._append(added)

    def count_clear(self, most: int | None) -> None:
        """Record that a model leaves outside of a sum; raise if `most` have left."""
        if most is None:
            return

        def added(lines: list[Line]) -> Line:
            if sum("clear" in line for line in lines) >= most:
                raise RefusalError(
                    f"this site sends its models only in sums, after {most} in the clear; turn on "
                    "secure_aggregation on the server, or ask the site"
                )
            return {"clear": 1}

        self._append(added)

    def num_clear(self) -> int:
        """How many models left outside of sums since their number was limited."""
        return sum("clear" in line for line in self._lines(self.log.read()))

    def count_scores(self, num: int, most: int | None) -> None:
        """Record that scores leave without noise; raise if more than `most` would have left."""
        if most is None or not num:
            return

        def added(lines: list[Line]) -> Line:
            if (left := _scores_in(lines)) + num > most:
                raise RefusalError(
                    f"this site has told {left} of at most {most} losses and scores without "
                    f"noise, in all runs together, and was asked for {num} more; its operator can "
                    "raise max_scores in its policy, or set privacy.epsilon"
                )
            return {"scores": num}

        self._append(added)

    def num_scores(self) -> int:
        """How many scores left without noise."""
        return _scores_in(self._lines(self.log.read()))

    def _append(self, decide: Callable[[list[Line]], Line | None]) -> None:
        with self.log.locked():
            content = self.log.read()
            content = content[: content.rfind(b"\n") + 1]
            line = decide(self._lines(content))
            if line is not None:
                self.log.append(json.dumps(line).encode() + b"\n", len(content))

    @staticmethod
    def _lines(content: bytes) -> list[Line]:
        """All whole lines."""
        return [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]


def _scores_in(lines: list[Line]) -> int:
    return sum(line.get("scores", 0) for line in lines)
