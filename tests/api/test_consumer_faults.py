"""A disk that fails under the log of consumers: each request is answered, and all is written once it works again."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Collection
from pathlib import Path

import pytest

from penstock.db.database import Database
from penstock.testing import SPACE_KINDS, SYNC_KINDS, CrashDisk
from support.jetstream import Place, opened

BODY = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}


@pytest.mark.parametrize(
    ("code", "kinds"), [(errno.EIO, SYNC_KINDS), (errno.ENOSPC, SPACE_KINDS)], ids=["sync", "full"]
)
def test_a_request_is_refused_while_the_disk_fails_and_kept_when_it_works_again(
    tmp_path: Path, code: int, kinds: Collection[str]
) -> None:
    (tmp_path / "store").mkdir()
    disk = CrashDisk(tmp_path / "store")

    async def play(place: Place) -> None:
        caller = place.caller
        await caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        await caller.publish("s", b"x")
        disk.fail_at(1, code, kinds=kinds, persistent=True)
        refused = await caller.api("CONSUMER.CREATE.S.C", BODY)
        assert refused["error"]["code"] == 500, refused
        assert (await caller.api("STREAM.NAMES"))["streams"] == ["S"]  # others are served
        disk.clear_faults()
        log = place.jetstream.accounts["$G"].streams["S"].stream.consumers.log
        assert log is not None
        log.retry()  # it would by itself, within a second
        made = await caller.api("CONSUMER.CREATE.S.C", BODY)
        assert made["num_pending"] == 1

    async def main() -> None:
        with Database(tmp_path / "store", disk=disk) as database:
            async with opened(tmp_path / "store", database) as place:
                await play(place)

    asyncio.run(main())
    with Database(tmp_path / "store") as database:
        assert list(database.get_stream("S").consumers.by_name) == ["C"]
