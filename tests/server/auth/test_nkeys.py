"""Nkeys in text, and what is signed with them; the `nkeys` package of nats-py is the other side."""

from __future__ import annotations

import base64
import os

import nkeys as theirs
import pytest

from penstock.server.auth import nkeys
from penstock.server.auth.nkeys import Kind


def new_pair() -> tuple[theirs.KeyPair, str]:
    pair = theirs.from_seed(theirs.encode_seed(os.urandom(32), theirs.PREFIX_BYTE_USER))
    return pair, pair.public_key.decode()


def test_a_key_comes_back_from_its_text() -> None:
    key = bytes(range(32))
    for kind, letter in ((Kind.ACCOUNT, "A"), (Kind.SERVER, "N"), (Kind.USER, "U"), (Kind.CURVE, "X")):
        text = nkeys.encode(kind, key)
        assert len(text) == 56 and text[0] == letter
        assert nkeys.decode(kind, text) == key


def test_text_that_is_no_key_of_the_kind_is_none() -> None:
    text = nkeys.encode(Kind.USER, bytes(32))
    wrong = "B" if text[20] == "A" else "A"
    for bad in ("", text[:-1], text + "A", text[:20] + wrong + text[21:], text.lower(), "1" * 56, "é" * 56):
        assert nkeys.decode(Kind.USER, bad) is None
    assert nkeys.decode(Kind.ACCOUNT, text) is None


def test_a_public_key_of_the_client_library_is_read() -> None:
    pair, public = new_pair()
    assert nkeys.decode(Kind.USER, public) is not None
    nonce = nkeys.new_nonce()
    assert len(nonce) == 15
    assert nkeys.verify(public, nonce, pair.sign(nonce))
    assert not nkeys.verify(public, nonce + b"x", pair.sign(nonce))
    assert not nkeys.verify(public, nonce, b"short")
    assert not nkeys.verify("U" + "A" * 55, nonce, pair.sign(nonce))


def test_a_server_id_looks_like_the_references() -> None:
    first, second = nkeys.server_id(), nkeys.server_id()
    assert len(first) == 56 and first[0] == "N" and first != second
    assert nkeys.decode(Kind.SERVER, first) is not None


@pytest.mark.parametrize("raw", [bytes([0xFB, 0xEF, 0xBE]) * 21 + b"\xff", bytes(64)], ids=["symbols", "zeros"])
def test_a_signature_is_base64url_without_padding_or_standard_with_it(raw: bytes) -> None:
    url, standard = base64.urlsafe_b64encode(raw).decode(), base64.b64encode(raw).decode()
    assert nkeys.decode_signature(url.rstrip("=")) == raw
    assert nkeys.decode_signature(standard) == raw
    if url != standard:
        assert nkeys.decode_signature(url) is None
        assert nkeys.decode_signature(standard.rstrip("=")) is None
    for bad in ("!!", "é", "A", "=", "AA=A"):
        assert nkeys.decode_signature(bad) is None
