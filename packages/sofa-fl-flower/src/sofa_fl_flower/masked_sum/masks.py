"""What masked sums are made of: masks of models, keys of pairs of sites, and shares of secrets.

Models are whole numbers modulo 2^32, and masks look like noise to whoever lacks the seed. What two
sites derive from their keys only these two can derive (X25519, HKDF), and it is another one for
every plan. Of n shares of a secret any t give it back, and fewer tell nothing of it (Shamir).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

Masked = NDArray[np.uint32]
FRACTION_BITS = 24  # so that a weighted mean of numbers up to LIMIT fits into 32 bits
LIMIT = 64.0  # of a model's numbers
NUM_CHECKS = 2  # numbers after a model's, whose sum the server knows
_NONCE = bytes(12)  # no key is used twice
PRIME = 2**255 - 19
SIZE = 32  # bytes of a key, of a secret, and of a share


def encoded(model: NDArray[np.float32], weight: int, total: int) -> Masked:
    """A member's part of the weighted mean, and its weight as a check; not masked yet.

    Raises:
        ValueError: A number is too large, or none.
    """
    if not (np.abs(model) <= LIMIT).all():
        raise ValueError(f"numbers of a model must be between -{LIMIT:g} and {LIMIT:g}")
    scaled = np.rint(model.astype(np.float64) * (weight / total * 2**FRACTION_BITS))
    checks = np.full(NUM_CHECKS, weight, dtype=np.int64)
    return np.concatenate([scaled.astype(np.int64), checks]).astype(np.uint32)


def decoded(numbers: Masked, weight: int, total: int) -> NDArray[np.float32]:
    """The weighted mean, from the sum of the parts of members with this weight together.

    Raises:
        ValueError: The checks are wrong, so that a mask is left in the sum.
    """
    model, checks = numbers[:-NUM_CHECKS], numbers[-NUM_CHECKS:]
    if (checks != np.uint32(weight % 2**32)).any():
        raise ValueError("a member has sent a wrong mask or a wrong share")
    signed = model.view(np.int32).astype(np.float64)
    mean: NDArray[np.float32] = (signed / 2**FRACTION_BITS * (total / weight)).astype(np.float32)
    return mean


def mask(seed: bytes, size: int) -> Masked:
    """`size` numbers from ChaCha20; a seed is used once."""
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(4 * size))
    return np.frombuffer(stream, dtype="<u4").astype(np.uint32, copy=False)


def sum_key_of(secret: bytes) -> X25519PrivateKey:
    """The key of a site, from its secret."""
    return X25519PrivateKey.from_private_bytes(_derived(secret, b"sofa-fl sum"))


def public_of(key: X25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def pair_seed(key: X25519PrivateKey, other: str, digest: bytes) -> bytes:
    """The seed of the mask that two members of a plan share."""
    return _derived(_shared(key, other), b"sofa-fl pair mask" + digest)


def sealed_share(share: bytes, key: X25519PrivateKey, receiver: str, digest: bytes) -> bytes:
    """Encrypt a share for another member."""
    cipher = _cipher(key, receiver, public_of(key) + receiver, digest)
    return cipher.encrypt(_NONCE, share, None)


def unsealed_share(
    content: bytes, key: X25519PrivateKey, sender: str, digest: bytes
) -> bytes | None:
    """Decrypt a share of another member; None if it is not one."""
    try:
        cipher = _cipher(key, sender, sender + public_of(key), digest)
        return cipher.decrypt(_NONCE, content, None)
    except InvalidTag:
        return None


def _cipher(key: X25519PrivateKey, other: str, from_to: str, digest: bytes) -> ChaCha20Poly1305:
    info = b"sofa-fl share" + from_to.encode() + digest
    return ChaCha20Poly1305(_derived(_shared(key, other), info))


def _shared(key: X25519PrivateKey, other: str) -> bytes:
    """What two keys have in common; a ValueError if the other one is no proper key."""
    return key.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other)))


def _derived(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), SIZE, salt=None, info=info).derive(secret)


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
