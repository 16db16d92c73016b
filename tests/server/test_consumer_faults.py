"""A disk that fails under consumers: an ack that waits for the disk is answered by itself once the disk works again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import penstock
from penstock.testing import CrashDisk
from support.attack import Client
from support.failing_disk import FAULTS, failing


@pytest.mark.parametrize("fault", FAULTS)
def test_a_double_ack_is_answered_when_the_disk_works_again(tmp_path: Path, fault: str) -> None:
    """No request in the meantime causes another write of it."""
    path = tmp_path / "data"
    path.mkdir()
    disk = CrashDisk(path)
    with penstock.open(path, disk=disk) as db, penstock.Server(database=db) as server:
        stream = db.stream("S", subjects=["s.>"])
        client = Client(server.port)
        config = {"durable_name": "c", "ack_policy": "explicit"}
        assert "error" not in client.ask("$JS.API.CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
        client.ask("s.a", b"hello")
        client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1", "_INBOX.me.next")
        message = client.message()
        assert message.subject == b"s.a" and message.reply is not None
        log = stream.consumers.log
        assert log is not None
        with failing(disk, fault, persistent=True):
            client.publish(message.reply.decode(), b"+ACK", "_INBOX.me.acked")
            deadline = time.monotonic() + 10
            while log.failure() is None:
                assert time.monotonic() < deadline, "the fault did not come"
                time.sleep(0)
        assert client.message().subject == b"_INBOX.me.acked"
        assert client.ask("$JS.API.CONSUMER.INFO.S.c")["num_ack_pending"] == 0
        assert log.failure() is None
    with penstock.open(path) as db:
        assert db.get_stream("S").consumers.by_name["c"].table.ack_floor_stream_seq == 1
