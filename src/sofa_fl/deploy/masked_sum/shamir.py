"""Shamir's secret sharing: of n shares any t give the secret back, and fewer tell nothing of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

PRIME = 2**255 - 19
SIZE = 32  # bytes of a secret, and of a share


def new_secret() -> int:
    return secrets.randbelow(PRIME)


def split_secret(secret: int, threshold: int, num: int) -> list[bytes]:
    """Shares for the members 0 to num − 1, of which any `threshold` suffice."""
    coefficients = [secret, *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return [_value_at(member + 1, coefficients).to_bytes(SIZE) for member in range(num)]


def combine_shares(shares: Mapping[int, bytes], threshold: int) -> int:
    """The secret, from the shares of at least `threshold` members."""
    if len(shares) < threshold:
        raise ValueError(f"{threshold} shares are needed, got {len(shares)}")
    points = {member + 1: int.from_bytes(shares[member]) for member in sorted(shares)[:threshold]}
    secret = 0
    for x, y in points.items():
        numerator = denominator = 1
        for other in points.keys() - {x}:
            numerator = numerator * other % PRIME
            denominator = denominator * (other - x) % PRIME
        secret += y * numerator * pow(denominator, -1, PRIME)
    return secret % PRIME


def _value_at(x: int, coefficients: list[int]) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value
