"""A stream of very many blocks, of which only the last exists: to measure the cost of planning without the data."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.base.bloom_filter import build_filter
from penstock.base.xxh64 import xxh64_of
from penstock.format.block_header import BlockHeader, decode_front
from penstock.format.constants import HEAD_MAGIC, HEAD_SLOT_STRIDE, HEAD_STOPPED, RECORDS_START
from penstock.format.head import decode_head
from penstock.format.paths import StreamPaths
from penstock.format.record import encode_message
from penstock.store.index.checkpoint import BlockRow, decode_checkpoint

SECOND = 1_000_000_000
BLOCK_SIZE = 8 << 20
ROWS = 1000


def multiply_blocks(root: str | os.PathLike[str], count: int, *, files: bool = False, subjects: int = 8) -> None:
    """Put `count` listed blocks of ROWS messages before the one block of a closed stream, which is renumbered.

    Their times are a second apart, their subjects are "many.N.*" with N the block's number. With `files` each has a
    sparse file of its nominal size that holds only a valid header.
    """
    paths = StreamPaths(os.fspath(root))
    checkpoint = decode_checkpoint(Path(paths.checkpoint).read_bytes())
    assert checkpoint is not None and len(checkpoint.blocks) == 1, "a closed stream with one block"
    last = checkpoint.blocks[0]
    assert last.rows == ROWS, f"a stream of {ROWS} messages"
    front = decode_front(Path(paths.block(last.block_id)).read_bytes()[:RECORDS_START], "the block")
    assert front is not None
    start = last.time_min - count * ROWS * SECOND
    rows = []
    for n in range(count):
        first_seq, time = n * ROWS + 1, start + n * ROWS * SECOND
        names = [f"many.{n}.{k}" for k in range(subjects)]
        rows.append(
            BlockRow(
                block_id=n + 1,
                generation=1,
                first_seq=first_seq,
                last_seq=first_seq + ROWS - 1,
                seq_base=first_seq,
                base_seq=first_seq,
                salt=n + 1,
                size=BLOCK_SIZE,
                message_bytes=BLOCK_SIZE // 2,
                live_bytes=BLOCK_SIZE // 2,
                target_low=2**63 - 1,
                target_high=0,
                last_checksum=0,
                base_time=time,
                time_min=time,
                time_max=time + (ROWS - 1) * SECOND,
                rows=ROWS,
                live=ROWS,
                is_dense=True,
                subject_filter=build_filter(names),
            )
        )
        if files:
            header = replace(front, block_id=n + 1, base_seq=first_seq, first_seq=first_seq, base_time=time, salt=n + 1)
            with open(paths.block(n + 1) + ".new", "wb") as file:
                file.write(header.encode())
                file.truncate(BLOCK_SIZE)
    os.unlink(paths.block(1))
    front = replace(front, block_id=count + 1, first_seq=count * ROWS + 1, base_seq=count * ROWS + 1)
    size = _write_last(paths, front)
    _write_head(paths, front.stream_id, count + 1, size, (count + 1) * ROWS)
    for n in range(count if files else 0):
        os.rename(paths.block(n + 1) + ".new", paths.block(n + 1))
    end = replace(
        last, block_id=count + 1, first_seq=front.first_seq, seq_base=front.first_seq, base_seq=front.first_seq
    )
    checkpoint.blocks = [
        *rows,
        replace(end, last_seq=(count + 1) * ROWS, size=size, target_low=2**63 - 1, target_high=0),
    ]
    checkpoint.block_id, checkpoint.offset, checkpoint.last_seq = count + 1, size, (count + 1) * ROWS
    checkpoint.first_seq = checkpoint.floor = 1
    checkpoint.messages += count * ROWS
    packed = bytearray(checkpoint.subjects)  # the first subject gets all the counts, so that totals match
    struct.pack_into("<Q", packed, 6, struct.unpack_from("<Q", packed, 6)[0] + count * ROWS)
    checkpoint.subjects = bytes(packed)
    checkpoint.message_bytes += count * BLOCK_SIZE // 2
    Path(paths.checkpoint).write_bytes(checkpoint.encode())


def _write_last(paths: StreamPaths, header: BlockHeader) -> int:
    """Write the last block with its messages; return its length."""
    base: dict[str, Any] = {"base_seq": header.base_seq, "base_time": header.base_time, "salt": header.salt}
    data = bytearray(header.encode_front())
    for seq in range(header.first_seq, header.first_seq + ROWS):
        data += encode_message(seq, header.base_time + seq, b"many.last", None, b"x" * 100, **base)
    Path(paths.block(header.block_id)).write_bytes(data)
    return len(data)


def _write_head(paths: StreamPaths, stream_id: bytes, block_id: int, offset: int, seq: int) -> None:
    data = bytearray(Path(paths.head).read_bytes())
    head = decode_head(bytes(data), stream_id)
    assert head is not None and head.is_stopped, "a closed stream"
    slot = struct.pack(
        "<8sQ16s16sQQQQQQQ16s", HEAD_MAGIC, head.counter + 1, stream_id, head.boot_id, head.epoch, block_id, offset,
        seq, seq, seq, HEAD_STOPPED, b"",
    )  # fmt: skip
    for at in (0, HEAD_SLOT_STRIDE):
        data[at : at + len(slot) + 8] = slot + struct.pack("<Q", xxh64_of(slot))
    Path(paths.head).write_bytes(data)
