"""What the work of an engine costs, as a federation counts it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Meter:
    """What a run has cost so far."""

    samples_trained: int = 0
    bytes_down: int = 0  # to the clients
    bytes_up: int = 0  # from the clients
