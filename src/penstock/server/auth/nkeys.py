"""Nkeys: ed25519 keys in text, base32 of a prefix byte, 32 bytes and a CRC-16. The first letter tells the kind."""

from __future__ import annotations

import base64
import binascii
import os
import re
from enum import IntEnum

UNPADDED_URL = re.compile(r"[A-Za-z0-9_-]*")
KEY_SIZE = 32
TEXT_SIZE = 56  # base32 of 1 + 32 + 2 bytes comes out even


class Kind(IntEnum):
    """The prefix byte of a public key; its upper five bits are the letter."""

    ACCOUNT = 0  # A
    SERVER = 13 << 3  # N
    USER = 20 << 3  # U
    CURVE = 23 << 3  # X


def encode(kind: Kind, key: bytes) -> str:
    """The text of a public key."""
    assert len(key) == KEY_SIZE, "a key has 32 bytes"
    raw = bytes([kind]) + key
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode()


def decode(kind: Kind, text: str) -> bytes | None:
    """The bytes of a public key, or None if the text is not a key of this kind."""
    if len(text) != TEXT_SIZE:
        return None
    try:
        raw = base64.b32decode(text)
    except ValueError:
        return None
    if raw[0] != kind or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return None
    return raw[1:-2]


def server_id() -> str:
    """A new server's id. Nothing is ever signed with it, so any 32 bytes make the key."""
    return encode(Kind.SERVER, os.urandom(KEY_SIZE))


def new_nonce() -> bytes:
    """A nonce for a client to sign: 15 characters, as nats-server makes them."""
    return base64.urlsafe_b64encode(os.urandom(11)).rstrip(b"=")


def decode_signature(text: str) -> bytes | None:
    """A signature's bytes: base64url without padding, or standard base64 with it; None for anything else."""
    if UNPADDED_URL.fullmatch(text) is not None:
        text, symbols = text + "=" * (-len(text) % 4), b"-_"
    else:
        symbols = b"+/"
    try:
        return base64.b64decode(text, altchars=symbols, validate=True)
    except ValueError:
        return None


def verify(public: str, message: bytes, signature: bytes) -> bool:
    """Whether a user's key has signed the message."""
    # Slow to import, and only needed for nkeys: a server without them starts sooner.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = decode(Kind.USER, public)
    if key is None:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
