"""StreamView: a stream's files at one moment, for readers: its blocks, their committed bytes and deleted sequences."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.disk import Disk
from penstock.base.ranges import subtract
from penstock.base.seq_set import SeqSet
from penstock.format.constants import RECORDS_START
from penstock.store.file_store import FileStore
from penstock.store.read.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block file, as far as it is committed."""

    path: str
    block_id: int
    base_seq: int
    base_time: int
    salt: int
    start: int
    """The offset of the first record."""
    stop: int
    """Committed bytes."""
    first_seq: int
    """The lowest sequence that may be taken from here."""
    stop_seq: int
    """One past the highest."""
    time_min: int
    time_max: int
    """The range of the messages' times; not known when time_min > time_max."""
    subject_filter: bytes
    """Made by base/bloom_filter; b"": not known."""


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream as its readers see it.

    Always true: blocks ascend in sequence; messages above `last_seq` in them are ignored.
    """

    name: str
    stream_id: bytes
    epoch: int
    first_seq: int
    last_seq: int
    """The last committed sequence."""
    messages: int
    bytes: int
    blocks: tuple[BlockView, ...]
    dead: SeqSet | None
    """Deleted sequences between first_seq and last_seq; the set does not change while the view is in use."""
    disk: Disk


def view_of(store: FileStore | Snapshot) -> StreamView:
    """The stream as it is now. A store that is open for writing first flushes everything pending."""
    if isinstance(store, FileStore):
        store.flush_all_pending()
    index = store.index
    return StreamView(
        name=store.name,
        stream_id=store.stream_id,
        epoch=store.epoch,
        first_seq=_first_seq(store),
        last_seq=store.engine.committed_seq,
        messages=index.messages,
        bytes=index.bytes,
        blocks=block_views(store),
        dead=_dead(store),
        disk=store.disk,
    )


def _first_seq(store: FileStore | Snapshot) -> int:
    """The sequence of the first message, counting messages whose records were found damaged just now."""
    lost = store.newly_lost.first if isinstance(store, Snapshot) else None
    return store.index.first_seq if lost is None else min(store.index.first_seq, lost)


def _dead(store: FileStore | Snapshot) -> SeqSet:
    """The sequences without a message, except those whose records are damaged while no writer has recorded that yet."""
    dead = store.query.deleted()
    if not isinstance(store, Snapshot) or not store.newly_lost:
        return dead
    found = SeqSet()
    for first, last in dead.ranges():
        for start, stop in subtract((first, last + 1), (store.newly_lost,)):
            found.add_range(start, stop - 1)
    return found


def block_views(store: FileStore | Snapshot) -> tuple[BlockView, ...]:
    """The blocks that hold a live message."""
    first_seq, last_seq = _first_seq(store), store.engine.committed_seq
    listed = [block for block in store.query.blocks() if block["live"]]
    stops = [*(block["first_seq"] for block in listed[1:]), last_seq + 1][: len(listed)]
    if isinstance(store, Snapshot) and listed and store.head is not None and store.head.block_id == listed[-1]["id"]:
        last = store.newly_lost.last
        if last is not None and last > listed[-1]["last_seq"]:  # its end is damaged: take all that was written
            listed[-1] |= {"size": store.head.offset, "last_seq": min(last, last_seq)}
    return tuple(
        BlockView(
            path=store.block_path(block["id"]),
            block_id=block["id"],
            base_seq=block["base_seq"],
            base_time=block["base_time"],
            salt=block["salt"],
            start=RECORDS_START,
            stop=block["size"],
            first_seq=max(block["first_seq"], first_seq),
            stop_seq=min(stop, block["last_seq"] + 1, last_seq + 1),
            time_min=block["time_min"],
            time_max=block["time_max"],
            subject_filter=store.filters.get(block["id"], b""),
        )
        for block, stop in zip(listed, stops, strict=True)
    )
