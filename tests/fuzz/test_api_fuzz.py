"""The API on anything at all: each request is answered, with a reply or an error of the reference's, and the log has no
trace of it. N= gives ten times the requests, SEED= the seed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from pathlib import Path

import pytest

from penstock.broker.routing.origin import Origin
from support.jetstream import Place, opened

COUNT = int(os.environ.get("N") or 20_000) // 10
SUBJECTS = [
    *("INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.S", "STREAM.INFO.T", "STREAM.CREATE.S", "STREAM.CREATE.T"),
    *(
        "STREAM.UPDATE.S",
        "STREAM.UPDATE.T",
        "STREAM.DELETE.T",
        "STREAM.PURGE.S",
        "STREAM.MSG.GET.S",
        "STREAM.MSG.GET.T",
    ),
    *("STREAM.MSG.DELETE.S", "CONSUMER.NAMES.S", "CONSUMER.INFO.S.c", "CONSUMER.CREATE.S.c", "STREAM.PEER.REMOVE.S"),
    *("DIRECT.GET.S", "DIRECT.GET.S.s.1"),
]
KEYS = [
    *("name", "subjects", "seq", "SEQ", "offset", "subject", "subjects_filter", "deleted_details", "no_erase", "batch"),
    *("last_by_subj", "next_by_subj", "multi_last", "start_time", "up_to_time", "up_to_seq", "max_bytes", "no_hdr"),
    *("filter", "keep", "max_msgs", "max_age", "max_msgs_per_subject", "discard", "storage", "retention", "pedantic"),
    *("placement", "consumer_limits", "metadata", "compression", "first_seq", "allow_direct", "sealed", "deny_purge"),
    *("subject_transform", "republish", "mirror", "sources", "num_replicas", "duplicate_window", "no_ack", "foo", ""),
]
VALUES = [
    *('"S"', '"T"', '"s.>"', '"s.1"', '"s..1"', '">"', '"*"', '""', '"\\ud800"', '"\\u0000"', '"é\u2028<>&"', '"a b"'),
    *("0", "1", "2", "-1", "5", "1e3", "1.5", "9223372036854775807", "18446744073709551615", "99999999999999999999"),
    *(
        "true",
        "false",
        "null",
        "[]",
        "{}",
        '["s.1"]',
        '["s.>","s.1",""]',
        "[1]",
        '{"a":"b"}',
        '{"cluster":1}',
        "[[[]]]",
    ),
    *('"2026-11-15T00:00:00Z"', '"2026-13-15T00:00:00Z"', '"0001-01-01T00:00:00Z"', '"new"', '"memory"', '"s2"', "NaN"),
    *(
        '{"src":"s.*","dest":"x.$1"}',
        '{"src":"","dest":""}',
        "100000000",
        "10000000000000",
        '"limits"',
        "'x'",
        "tru",
        "-",
    ),
]


def make_payload(chance: random.Random) -> bytes:
    if chance.random() < 0.05:
        return chance.choice(
            [b"", b" ", b"x", b"[", b"{", b"null", b"\xff\xfe", b"{}" * 50, b"[" * 5000, b'{"a":' * 5000]
        )
    fields = []
    for _ in range(chance.randrange(5)):
        fields.append(f"{json.dumps(chance.choice(KEYS))}:{chance.choice(VALUES)}")
    if chance.random() < 0.5:
        fields.append(f'"name":{chance.choice(VALUES[:2])}')
    raw = bytearray("{" + ",".join(fields) + "}", "utf-8")
    if chance.random() < 0.2:
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    if chance.random() < 0.1:
        del raw[chance.randrange(len(raw)) :]
    return bytes(raw)


@pytest.mark.parametrize("part", range(2))
def test_any_request_is_answered_and_nothing_breaks(
    part: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(2**32)) + part
    chance = random.Random(seed)

    async def ask(place: Place) -> None:
        subject, payload = f"$JS.API.{chance.choice(SUBJECTS)}", make_payload(chance)
        headers = b"NATS/1.0\r\nNats-Required-Api-Level: %s\r\n\r\n" % chance.choice([b"5", b"7", b"x"])
        (found,) = await place.caller.ask(subject, payload, headers if chance.random() < 0.02 else None)
        if found.headers is None and "DIRECT" not in subject:
            error = found.json.get("error", {})
            assert "internal error" not in error.get("description", ""), f"seed {seed}: {subject} {payload!r}"

    async def main() -> None:
        async with opened(tmp_path / "store", durability="lazy") as place:
            settings = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
            for _ in range(COUNT):
                if b"S" not in place.jetstream.accounts["$G"].direct:
                    await place.caller.api("STREAM.DELETE.S")
                    await place.caller.api("STREAM.CREATE.S", settings)
                    for n in range(5):
                        place.caller.account.publish(Origin.CLIENT, b"s.%d" % n, b"x")
                await ask(place)

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert not caplog.records, f"seed {seed}: {caplog.text}"
