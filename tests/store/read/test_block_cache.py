"""Windows of block files: many readers of one stream do not multiply its disk reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.consumer.ack_table import AckTable
from penstock.consumer.engine import ConsumerEngine
from penstock.db.stream import Stream
from penstock.store.read.block_cache import BlockCache

COUNT = 20_000
SUBJECTS = 50


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    """Messages in sealed blocks: none of them is read from an image."""
    with penstock.open(tmp_path, durability="os") as db:
        db.stream("S", subjects=["s.*"]).publish_many([(f"s.{n % SUBJECTS}", b"x" * 200) for n in range(COUNT)])
    with penstock.open(tmp_path, durability="os") as db:
        stream = db.stream("S")
        stream.store.engine.seal_active()
        stream.store.commit()
        stream.store.after_commit()
        yield stream


def reader(stream: Stream, windows: BlockCache, *filters: str) -> ConsumerEngine:
    consumer = ConsumerEngine(stream.store.engine, AckTable(0, 1), filters, windows)
    consumer.configure(filters, 0, (), -1, -1, False)
    return consumer


def test_one_reader_reads_a_block_once_and_keeps_one_window(stream: Stream) -> None:
    windows = BlockCache()
    assert len(reader(stream, windows).take(1, COUNT)) == COUNT
    assert windows.count == 1
    assert windows.bytes_read < 1.2 * stream.state().disk_bytes


def test_fifty_readers_that_go_side_by_side_share_what_is_read(stream: Stream) -> None:
    windows = BlockCache()
    readers = [reader(stream, windows, f"s.{n}") for n in range(SUBJECTS)]
    got = 0
    while taken := sum(len(one.take(1, 5 + n % 7)) for n, one in enumerate(readers)):
        got += taken
    assert got == COUNT
    assert windows.bytes_read < 4 * stream.state().disk_bytes, f"{windows.reads} reads"


def test_fifty_readers_that_take_much_one_after_the_other_share_what_is_read(stream: Stream) -> None:
    """Each reader once replaced the window with its own, so that it was gone before the next reader came."""
    windows = BlockCache()
    readers = [reader(stream, windows, f"s.{n}") for n in range(SUBJECTS)]
    for _ in range(COUNT // SUBJECTS // 100):
        assert sum(len(one.take(1, 100)) for one in readers) == 100 * SUBJECTS
    assert windows.bytes_read < 1.5 * stream.state().disk_bytes, f"{windows.reads} reads"


def test_a_reader_of_few_messages_does_not_read_them_all(stream: Stream) -> None:
    windows = BlockCache()
    stream.publish("s.0", b"the last")
    assert len(reader(stream, windows, "s.7").take(1, COUNT)) == COUNT // SUBJECTS
    assert windows.bytes_read < stream.state().disk_bytes


def test_the_memory_is_given_back_when_everyone_reads_the_newest(stream: Stream) -> None:
    windows = BlockCache()
    one = reader(stream, windows)
    one.take(1, COUNT)
    assert windows.count
    stream.publish_many([("s.1", b"")] * 5000)
    assert len(one.take(1, 5000)) == 5000
    assert windows.count == 0
