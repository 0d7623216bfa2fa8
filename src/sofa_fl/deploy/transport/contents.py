"""What a message asks for, and what leaves a site with an answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from sofa_fl.deploy.transport.wire_message import WireMessage

KINDS = ("tasks", "exams", "embeds", "unmask")


def asked_in(question: WireMessage) -> dict[str, int]:
    """How many trainings, evaluations, embeddings and samples a message asks for."""
    header = question.header
    asked = {name: _length(header.get(name)) for name in KINDS}
    asked["samples"] = _length(question.arrays.get("give")) if header.get("give") else 0
    asked["hello"] = int(header.get("ask") == "hello")
    return {name: number for name, number in asked.items() if number}


def left_in(reply: WireMessage) -> dict[str, int]:
    """How many models, scores, features, samples and bytes an answer holds."""
    header = reply.header
    outcomes = header.get("outcomes")
    known = [one for one in outcomes if isinstance(one, dict)] if isinstance(outcomes, list) else []
    masked = sum("masked" in one for one in known)
    left = {
        "models": _length(outcomes) - masked,
        "masked_models": masked,
        "unmasked_sums": _length(header.get("revealed")),
        "scores": _length(header.get("scores")),
        "embeds": _length(header.get("embeds")),
        "samples": _length(reply.arrays.get("gave")),
        "bytes": reply.nbytes,
    }
    return {name: number for name, number in left.items() if number}


def _length(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.size if value.ndim < 2 else len(value))
    return len(value) if isinstance(value, list) else 0
