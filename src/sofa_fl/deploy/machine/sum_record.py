"""What a site allows of secure aggregation, and its record of the sums that it took part in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge

from sofa_fl.deploy.machine.sealed_log import Log
from sofa_fl.deploy.masked_sum.plan import SMALLEST
from sofa_fl.deploy.transport.message_checks import RefusalError

Line = dict[str, Any]


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
    """Which sums a site took part in, and how many models left outside of them.

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
