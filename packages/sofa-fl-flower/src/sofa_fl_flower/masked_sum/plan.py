"""What all members of a sum must agree on, and what a member checks of it.

Masks are derived from all of it: if the server tells members different plans, their masks do not
cancel, and it learns nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sofa_fl_flower.transport.message_checks import MessageError, checked_value, shown

SMALLEST = 3  # with two members, each could subtract its own model
MAX_MEMBERS = 512
LARGEST_WEIGHT = 1 << 24  # samples of a member
KEY_LENGTH = 64  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class SumPlan:
    """One sum.

    Attributes:
        session: Which no other sum has.
        keys: The members' public keys, in hexadecimal.
        sizes: How many samples each member trains on.
        threshold: How many members must agree on who is in the sum before it can be unmasked.
        work: A hash of what they train, from which model and how; each checks its own.
    """

    session: str
    keys: tuple[str, ...]
    sizes: tuple[int, ...]
    threshold: int
    work: str = ""

    @property
    def weights(self) -> tuple[int, ...]:
        """The members' weights: their samples, but no more than those of all others together."""
        total = sum(self.sizes)
        return tuple(min(size, total - size) for size in self.sizes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "session": self.session,
            "keys": list(self.keys),
            "sizes": list(self.sizes),
            "threshold": self.threshold,
            "work": self.work,
        }

    @property
    def digest(self) -> bytes:
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=32).digest()

    @classmethod
    def from_dict(cls, values: Any) -> SumPlan:
        """Read what `to_dict` wrote."""
        keys, sizes = checked_value(values, "keys", list), checked_value(values, "sizes", list)
        session = checked_value(values, "session", str)
        if not 2 <= len(keys) <= MAX_MEMBERS or len(sizes) != len(keys) or len(session) > 100:
            raise MessageError(
                f"a sum must have 2 to {MAX_MEMBERS} members, each with a key and a size, got "
                f"{len(keys)} keys and {len(sizes)} sizes"
            )
        if len(set(map(str, keys))) < len(keys) or not all(map(is_key, keys)):
            raise MessageError("the members of a sum must have distinct keys of 32 bytes each")
        if not all(type(size) is int and 1 <= size <= LARGEST_WEIGHT for size in sizes):
            raise MessageError(
                f"a member must have 1 to {LARGEST_WEIGHT} samples, got {shown(sizes)}"
            )
        threshold, work = (
            checked_value(values, "threshold", int),
            checked_value(values, "work", str),
        )
        return cls(session, tuple(keys), tuple(sizes), threshold, work)


def is_key(key: object) -> bool:
    """Whether this can be a public key."""
    return isinstance(key, str) and len(key) == KEY_LENGTH and set(key) <= set("0123456789abcdef")


def threshold_for(num_members: int, smallest: int) -> int:
    """How many members must agree, so that no lie of the server unmasks fewer than `smallest`.

    Let t members have to say that u is in the sum before u's own mask can be removed, and let every
    member name at least t, once. To take a sum of some members A apart from the others, the server
    needs for every pair of u in A and w outside that one says the other is gone. Of the t who say
    that u is there, those outside A must thus be gone for u, who names t members: they are at most
    n − t. So at least 2t − n are in A.
    """
    return (num_members + smallest + 1) // 2


def flaw_of_plan(plan: SumPlan, smallest: int) -> str | None:
    """Why a sum hides too little, if it does, by the smallest number of members."""
    num, needed = len(plan.keys), threshold_for(len(plan.keys), smallest)
    if num < smallest:
        return f"a sum must have at least {smallest} members, got {num}"
    if not needed <= plan.threshold <= num:
        return f"{needed} to {num} of {num} members must agree on a sum, got {plan.threshold}"
    return None


def flaw_of_survivors(plan: SumPlan, survivors: Collection[int], member: int) -> str | None:
    """Why a member must not help to unmask the sum of these members, if it must not."""
    if not all(0 <= one < len(plan.keys) for one in survivors) or member not in survivors:
        return "the survivors must be members of the sum, and include this site"
    if len(survivors) < plan.threshold:
        return f"{plan.threshold} members must have sent their models, got {len(survivors)}"
    weights = plan.weights
    if 2 * weights[member] > sum(weights[one] for one in survivors):
        return "no member may have more than half of the weight of a sum, but one would"
    return None


def flaw_of_keys(plan: SumPlan, own: str, peers: Collection[str]) -> str | None:
    """Why the members are not those whom a site knows, if they are not; no peers: all are known."""
    if own not in plan.keys:
        return "the members of a sum must include this site's key, but do not"
    strangers = [key for key in plan.keys if key != own and key not in peers] if peers else []
    if strangers:
        return f"{len(strangers)} members of the sum are not among the site's peers"
    return None


def survivors_of(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Read who is in a sum."""
    found = checked_value(values, "survivors", list)
    if not all(type(one) is int for one in found) or len(set(found)) < len(found):
        raise MessageError(f"survivors must be distinct whole numbers, got {shown(found)}")
    return tuple(sorted(found))
