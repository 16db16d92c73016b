"""Messages of every size that a read can cut: in the router's buffer, in a larger read, in a buffer of their own."""

from __future__ import annotations

import json
import random
from pathlib import Path

import penstock
from support.attack import Client

SIZES = (0, 100, 8_192, 32_700, 32_768, 65_536, 131_072, 131_073, 262_144, 300_000, 1_048_576)
COUNT = 220


def test_large_and_small_messages_in_one_flood(tmp_path: Path) -> None:
    chance = random.Random(5)
    sent = [bytes([n % 251]) * chance.choice(SIZES) for n in range(COUNT)]
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        stream = db.stream("S", subjects=["s.>"])
        client = Client(server.port, "_INBOX.0")
        flood = b"".join(client.pub(f"s.{n}", payload, "_INBOX.0.x") for n, payload in enumerate(sent))
        client.send(flood)
        seqs = [json.loads(client.message().payload)["seq"] for _ in sent]
        assert seqs == list(range(1, COUNT + 1))
        for n, message in enumerate(stream.read()):
            assert (message.subject, message.data) == (f"s.{n}", sent[n])
        client.close()
