"""The end of a round: what must be noted at once, since the next round changes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sofa_fl.experiment.storage.events import are_many
from sofa_fl.federation import Federation
from sofa_fl.topology.tree import NodeId


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """What an event tells that is not the same any more when the next round has begun.

    Attributes:
        attendance: The clients whose update was not used, by reason.
        costs: What the run has cost so far: samples, bytes and seconds.
    """

    attendance: dict[str, Any]
    costs: dict[str, Any]

    @classmethod
    def of(cls, fed: Federation, seconds: float) -> RoundEnd:
        """The end of the federation's round, `seconds` after the run began."""
        costs = {
            "samples_trained": fed.meter.samples_trained,
            "bytes_down": fed.meter.bytes_down,
            "bytes_up": fed.meter.bytes_up,
            "seconds": round(seconds, 3),
        }
        return cls(attendance(fed), costs)


def attendance(fed: Federation) -> dict[str, Any]:
    """The clients whose update was not used in a round, by reason; empty if all were used.

    Clients in quarantine count as absent too. A client whose last permitted flaw was in this round
    is set aside now, and in quarantine from the next round on. Of many clients only
    those who were `asked` can be absent.
    """

    def is_quarantined(client: NodeId) -> bool:
        is_heard = client in fed.roll.heard or client in fed.roll.set_aside
        return not is_heard and client in fed.owned and fed.register.is_out(client, fed.round)

    asked = fed.cohort if are_many(fed.clients) else ()
    expected = set(asked or fed.clients)
    absent = sorted(expected - fed.roll.heard - fed.roll.set_aside.keys())
    lists = {
        "asked": list(asked),
        "absent": absent,
        "set_aside": {str(client): flaw for client, flaw in fed.roll.set_aside.items()},
        "quarantined": sorted(c for c in fed.register.back_at if is_quarantined(c)),
    }
    return {key: value for key, value in lists.items() if value}
