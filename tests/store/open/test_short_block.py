"""A block that a crash left shorter than its header: it is empty, and nothing may be appended to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.xxh64 import xxh64_of
from penstock.format.block_header import BlockHeader
from penstock.format.constants import HEAD_SLOT_SIZE, HEAD_SLOT_STRIDE, HEADER_SIZE, HEADER_STRIDE, RECORDS_START
from penstock.store.file_store import FileStore


@pytest.mark.parametrize("size", [HEADER_SIZE, HEADER_STRIDE, RECORDS_START - 1, RECORDS_START])
def test_what_is_written_after_it_is_kept(tmp_path: Path, size: int) -> None:
    store = FileStore(tmp_path / "s", bytes(16))
    assert store.store("a", b"one") == 1
    store.engine.seal_active()
    store.stop()
    front = BlockHeader(bytes(16), 2, store.epoch, 2, 2, 0, 5).encode_front()
    (tmp_path / "s" / "blocks" / "000002.blk").write_bytes(front[:size])
    (tmp_path / "s" / "HEAD").unlink()
    for _ in range(2):
        # the second open finds a clean stop, and continues in the last block
        FileStore(tmp_path / "s", bytes(16)).stop()
    store = FileStore(tmp_path / "s", bytes(16))
    assert store.store("a", b"two") == 2
    store.stop()
    store = FileStore(tmp_path / "s", bytes(16))
    assert [one.data for one in store.read()] == [b"one", b"two"]
    assert store.report.is_clean
    store.stop()


def test_a_head_that_names_it_still_says_which_sequences_were_given_out(tmp_path: Path) -> None:
    """A full disk cuts the first write of a block short, while HEAD, which is mapped, is already ahead of it.

    The open once took it for a damaged HEAD, and the next open assigned the same sequences again.
    """
    store = FileStore(tmp_path / "s", bytes(16), durability="lazy")
    assert [store.store("a", b"one"), store.store("a", b"two")] == [1, 2]
    store.sync()
    store.engine.seal_active()
    assert [store.store("a", b"three"), store.store("a", b"four")] == [3, 4]
    store.sync()
    store.abandon()
    block, head = tmp_path / "s" / "blocks" / "000002.blk", tmp_path / "s" / "HEAD"
    size = HEADER_STRIDE + HEADER_SIZE
    block.write_bytes(block.read_bytes()[:size])
    head.write_bytes(with_offset(head.read_bytes(), size))
    store = FileStore(tmp_path / "s", bytes(16))
    assert (store.fast_state().last_seq, store.report.lost) == (4, [(3, 5)])
    assert store.store("a", b"five") == 5
    store.stop()


def with_offset(head: bytes, offset: int) -> bytes:
    """HEAD with another offset of its block."""
    slots = bytearray(head)
    for at in (0, HEAD_SLOT_STRIDE):
        slot = bytearray(slots[at : at + HEAD_SLOT_SIZE])
        slot[64:72] = offset.to_bytes(8, "little")
        slot[-8:] = xxh64_of(bytes(slot[:-8])).to_bytes(8, "little")
        slots[at : at + HEAD_SLOT_SIZE] = slot
    return bytes(slots)
