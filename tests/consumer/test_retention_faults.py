"""Work queues and interest streams on a failing disk: acknowledged messages are removed once the disk works again."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

import penstock
from penstock.errors import StoreError
from penstock.testing import SYNC_KINDS, CrashDisk


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_was_acknowledged_while_the_disk_failed_goes_when_it_works_again(tmp_path: Path, retention: str) -> None:
    path = tmp_path / "data"
    path.mkdir()
    disk = CrashDisk(path)
    with penstock.open(path, disk=disk) as db:
        stream = db.stream("S", subjects=["s.>"], retention=retention)
        consumer = stream.consumer("c")
        for n in range(6):
            stream.publish("s.a", b"%d" % n)
        messages = list(consumer.fetch(6))
        messages[0].ack(sync=True)
        disk.fail_at(1, errno.EIO, kinds=SYNC_KINDS, persistent=True)
        for message in messages[1:3]:
            message.ack()
        deadline = time.monotonic() + 10
        while stream.store.engine.log.failure() is None:
            assert time.monotonic() < deadline, "the fault did not come"
        with pytest.raises(StoreError):
            stream.publish("s.a", b"not kept")
        messages[3].ack()
        disk.clear_faults()
        stream.publish("s.a", b"kept")
        messages[4].ack(sync=True)
        assert [message.data for message in stream.read()] == [b"5", b"kept"]
