"""The key by which a site takes part in sums, and what two sites derive from theirs.

Only these two can derive it (X25519, HKDF), and it is another one for every plan.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SIZE = 32
_NONCE = bytes(12)  # no key is used twice


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
