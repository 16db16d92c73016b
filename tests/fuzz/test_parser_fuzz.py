"""A campaign of mutated sessions through the parser: the compiled half against the plain one, whole and in pieces.

`N=` sets the sessions in all (default 250,000), `SEED=` another campaign. A failure prints its seed and its bytes.
"""

from __future__ import annotations

import os
import random
from itertools import pairwise
from typing import Any

import pytest

from penstock.wire import parser as compiled
from twins import parser as reference

pytestmark = pytest.mark.campaign

SESSIONS = int(os.environ.get("N") or 250_000)
SEED = int(os.environ.get("SEED") or 20_261_115)
CHUNKS = 8

GOOD = [
    b'CONNECT {"verbose":false,"headers":true}\r\n',
    b"PUB orders.eu 5\r\nhello\r\n",
    b"PUB orders.eu _INBOX.x 0\r\n\r\n",
    b"HPUB a 22 27\r\nNATS/1.0\r\nA: bcdef\r\n\r\nhello\r\n",
    b"HPUB a r 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"SUB orders.* 1\r\n",
    b"SUB orders.> workers 22\n",
    b"UNSUB 1\r\n",
    b"UNSUB 22 5\r\n",
    b"PING\r\n",
    b"PONG\r\n",
    b"+OK\r\n",
    b"INFO {}\r\n",
    b"-ERR 'Stale Connection'\r\n",
    b"HMSG x\r\n\r\n",
]
BYTES = b" \t\r\n\x00\xff+-0129aPuBsHcX"


def mutate(rng: random.Random, data: bytes) -> bytes:
    """The bytes with a few of them changed, doubled, cut or taken from elsewhere."""
    text = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(len(text) + 1)
        size = rng.choice((1, 1, 2, 8))
        match rng.randrange(5):
            case 0:
                text[at : at + 1] = bytes([rng.choice(BYTES)])
            case 1:
                text[at:at] = bytes([rng.choice(BYTES)]) * size
            case 2:
                del text[at : at + size]
            case 3:
                text[at:at] = rng.choice(GOOD)[: rng.randrange(12)]
            case _:
                text[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(text)


def read(kernel: Any, chunks: list[bytes], limits: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    buffer = b""
    for chunk in chunks:
        buffer += chunk
        while True:
            taken, fields = kernel.parse(buffer, **limits)
            assert 0 <= taken <= len(buffer)
            assert (taken == 0) == (fields["op"] in ("NONE", "FAULT"))
            if fields["op"] == "NONE":
                break
            found.append(fields)
            if fields["op"] == "FAULT":
                return found
            buffer = buffer[taken:]
    return found


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_mutated_sessions_read_the_same_in_both_halves_and_in_pieces(chunk: int) -> None:
    for number in range(SESSIONS // CHUNKS):
        seed = f"{SEED} {chunk} {number}"
        rng = random.Random(seed)
        data = mutate(rng, b"".join(rng.choices(GOOD, k=rng.randint(1, 5))))
        limits = {
            "max_control_line": rng.choice((4096, 4096, 40, 12)),
            "max_payload": rng.choice((1_048_576, 1_048_576, 4, -1)),
            "headers_ok": rng.random() < 0.9,
        }
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(4)))
        edges = [0, *cuts, len(data)]
        pieces = [data[start:stop] for start, stop in pairwise(edges)]
        expected = read(reference, [data], limits)
        told = f"SEED={SEED}, session {seed!r}: {data!r} in {pieces!r} with {limits}"
        assert read(compiled, [data], limits) == expected, told
        assert read(compiled, pieces, limits) == expected, told
