"""Encryption of messages between the server's process and machines.

TLS ends at the SuperLink, which keeps messages in its database. So that no model and no sample lies
there readably, a message is encrypted for its receiver: X25519, HKDF, ChaCha20-Poly1305. The
server's key lives in its process and dies with it; a machine's is derived from its site's key.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sofa_fl.deploy.transport.message_checks import MessageError

PUBLIC = "public"  # the header's key for the key to encrypt answers with
KEY_SIZE = 32
_NONCE = bytes(12)  # no key is used twice


def new_key() -> X25519PrivateKey:
    return X25519PrivateKey.generate()


def sealing_key_of(secret: bytes) -> X25519PrivateKey:
    """The key of a site, of its secret."""
    derived = HKDF(SHA256(), KEY_SIZE, salt=None, info=b"sofa-fl seal").derive(secret)
    return X25519PrivateKey.from_private_bytes(derived)


def seal(content: bytes, public: str) -> bytes:
    """Encrypt for whoever has the private key of `public`."""
    try:
        receiver = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
        own = new_key()
        shared = own.exchange(receiver)
    except (TypeError, ValueError):
        raise MessageError(
            "a public key must be a curve point of 32 bytes, in hexadecimal"
        ) from None
    first = own.public_key().public_bytes_raw()
    return first + _cipher(shared, first, bytes.fromhex(public)).encrypt(_NONCE, content, None)


def unseal(content: bytes, key: X25519PrivateKey) -> bytes:
    """Decrypt what `seal` returned; raise `MessageError` for anything else."""
    first = content[:KEY_SIZE]
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(first))
        cipher = _cipher(shared, first, key.public_key().public_bytes_raw())
        return cipher.decrypt(_NONCE, content[KEY_SIZE:], None)
    except (InvalidTag, ValueError):
        raise MessageError("a message was encrypted for another key, or was altered") from None


def _cipher(shared: bytes, sender: bytes, receiver: bytes) -> ChaCha20Poly1305:
    info = b"sofa-fl message" + sender + receiver
    return ChaCha20Poly1305(HKDF(SHA256(), KEY_SIZE, salt=None, info=info).derive(shared))
