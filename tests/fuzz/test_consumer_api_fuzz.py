"""Consumers on anything at all: every request is answered, any ack or pull breaks nothing, the log has no trace.

N= gives ten times the requests, SEED= the seed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.routing.origin import Origin
from penstock.consumer.config import FIELDS
from penstock.testing.inside_client import subscribe
from support.jetstream import Place, opened

COUNT = int(os.environ.get("N") or 10_000) // 10
NAMES = ("a", "b", "c", "d")
TEXTS = ("", "s.>", "s.1", "s.*", "x", "s..1", ">", "a b", "é\u2028<>&", "50", "100%", "-1%", "out.d", "out.*", "g")
NUMBERS = (0, 1, 2, -1, -2, 5, 100, 100_000_000, 1_000_000_000, 30_000_000_000, 2**31, 2**62, 2**63 - 1, 2**64 - 1, 1e3)
TIMES = ("2026-11-15T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2090-01-01T00:00:00+02:00")
ACKS = (
    *(b"", b"+ACK", b"+OK", b"-NAK", b"+WPI", b"+TERM", b"+TERM because", b"+NXT", b'+NXT {"batch":2}', b"+NXT x"),
    *(b'-NAK {"delay":9223372036854775807}', b"-NAK 10s", b"-NAK -5s", b"-NAK {", b'-NAK {"delay":-1}', b"???"),
)
PULLS = (
    *(b"", b"1", b"-1", b"x", b"9999999999999999999999", b'{"batch":3,"no_wait":true}', b'{"expires":1}', b"{", b"[]"),
    *(b'{"batch":5,"expires":9223372036854775807}', b'{"batch":2,"max_bytes":1}', b'{"group":"g","id":"x"}'),
    *(b'{"batch":1,"expires":1000000000,"idle_heartbeat":1}', b'{"group":"g","priority":3}', b'{"min_pending":-1}'),
)


def make_value(chance: random.Random, field: str) -> Any:
    if chance.random() < 0.1:
        return chance.choice([None, [], {}, "x", 1.5, True, -1, "\ud800", [1], ["", "s.1"], {"a": 1}])
    if FIELDS[field].values:
        return chance.choice([*FIELDS[field].values, "bad"])
    if field in ("opt_start_time", "pause_until"):
        return chance.choice(TIMES)
    if field in ("filter_subjects", "priority_groups"):
        return chance.sample(TEXTS, chance.randrange(3))
    if field == "backoff":
        return [chance.choice(NUMBERS) for _ in range(chance.randrange(4))]
    if field == "metadata":
        return {chance.choice(TEXTS): chance.choice(TEXTS)}
    if FIELDS[field].type is bool:
        return chance.random() < 0.5
    return chance.choice(TEXTS if FIELDS[field].type is str else NUMBERS)


def make_request(chance: random.Random) -> tuple[str, bytes]:
    name = chance.choice(NAMES)
    kind = chance.choice(["CREATE"] * 6 + ["INFO", "NAMES", "LIST", "DELETE", "PAUSE", "PAUSE", "UNPIN", "EPHEMERAL"])
    if kind in ("CREATE", "EPHEMERAL"):
        config = {field: make_value(chance, field) for field in chance.sample(list(FIELDS), chance.randrange(5))}
        if chance.random() < 0.7:
            config["ack_policy"] = chance.choice(["explicit", "all", "none"])
        if kind == "CREATE" and chance.random() < 0.8:
            config |= {"durable_name": name, "name": name}
        body: dict[str, Any] = {"stream_name": "S", "config": config}
        if chance.random() < 0.2:
            body |= {chance.choice(["action", "pedantic", "foo"]): chance.choice(["create", "update", True, 3])}
        subject = f"CONSUMER.CREATE.S.{name}" if kind == "CREATE" else "CONSUMER.CREATE.S"
        return subject, json.dumps(body).encode("utf-8", "surrogatepass")
    bodies = [b"", b"{}", b"x", b"{", b'{"offset":-5}', b'{"offset":9e9}', b'{"group":"g"}', b'{"group":3}', b"null"]
    bodies += [json.dumps({"pause_until": text}).encode() for text in TIMES]
    tail = "S" if kind in ("NAMES", "LIST") else f"S.{name}"
    return f"CONSUMER.{kind}.{tail}", chance.choice(bodies)


@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
def test_any_request_about_consumers_is_answered_and_nothing_breaks(
    retention: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(2**32))
    chance = random.Random(seed)
    acks: list[bytes] = []

    async def step(place: Place) -> None:
        account = place.caller.account
        luck = chance.random()
        if luck < 0.5:
            subject, payload = make_request(chance)
            (found,) = await place.caller.ask(f"$JS.API.{subject}", payload)
            text = found.json.get("error", {}).get("description", "")
            assert "internal error" not in text, f"seed {seed}: {subject} {payload!r}"
        elif luck < 0.6:
            account.publish(Origin.CLIENT, b"s.%d" % chance.randrange(4), b"x")
        elif luck < 0.8:
            pull = b"$JS.API.CONSUMER.MSG.NEXT.S." + chance.choice(NAMES).encode()
            account.publish(Origin.CLIENT, pull, chance.choice(PULLS), None, b"got.it")
        elif luck < 0.95 and acks:
            account.publish(
                Origin.CLIENT, chance.choice(acks), chance.choice(ACKS), None, chance.choice([None, b"got.it"])
            )
        elif luck < 0.97:
            name = chance.choice(NAMES)
            if name in place.jetstream.accounts["$G"].streams["S"].stream.consumers.by_name:
                body = {"seq": chance.choice([0, 1, 3, 2**62, 2**64 - 1])}
                (found,) = await place.caller.ask(f"$JS.API.CONSUMER.RESET.S.{name}", body)
                assert "internal error" not in found.payload.decode(), f"seed {seed}: reset {body}"
        else:
            ack = f"$JS.ACK.S.{chance.choice(NAMES)}.{chance.choice(NUMBERS)}.{chance.choice(NUMBERS)}.1.1.1"
            account.publish(Origin.CLIENT, ack.encode(), chance.choice(ACKS))
        place.turn_end()

    async def main() -> None:
        async with opened(tmp_path / "store", durability="lazy") as place:
            await place.caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "retention": retention})
            subscribe(
                place.caller.account, "got.>", lambda received: acks.append(received.reply) if received.reply else None
            )
            subscribe(
                place.caller.account, "out.d", lambda received: acks.append(received.reply) if received.reply else None
            )
            for _ in range(COUNT):
                await step(place)
                del acks[:-50]

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert not caplog.records, f"seed {seed}: {caplog.text}"
    reopened(tmp_path, seed)


def reopened(tmp_path: Path, seed: int) -> None:
    """What was there is there again, and can be asked about."""

    async def main() -> None:
        async with opened(tmp_path / "store", durability="lazy") as place:
            found = await place.caller.api("CONSUMER.LIST.S")
            assert "error" not in found, f"seed {seed}: {found}"

    asyncio.run(main())
