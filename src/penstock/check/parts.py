"""Parts of a check: each is picklable and can be checked by itself, in this process or in a Spark task of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.base.disk import Disk
from penstock.check.small_files import newest_identity
from penstock.format.block_header import BlockHeader, boot_id, decode_front
from penstock.format.bounds import SEQ_MAX
from penstock.format.constants import RECORDS_START
from penstock.format.head import Head, decode_head
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.store.open.stream_folders import StreamFolder

EXACT_MAX = 10_000  # a stream with more blocks is sized from a sample: on a network mount each size is a request
SAMPLE = 256


@dataclass(frozen=True, slots=True)
class StreamPart:
    """A stream's small files, and the blocks and sequences that should exist according to its index."""

    folder: StreamFolder
    has_writer: bool


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Some of a stream's blocks in order, as far as they were committed at planning."""

    folder: StreamFolder
    has_writer: bool
    stream_id: bytes
    head: Head | None  # None also where HEAD does not fit the blocks
    names: tuple[str, ...] = ()
    next_name: str = ""  # the file of the block after the last; "" for none
    size: int = 0  # about what it reads


Part = StreamPart | BlockRun


def plan_parts(
    disk: Disk, folders: Sequence[StreamFolder], has_writer: bool, size_max: int, count_min: int = 1
) -> list[Part]:
    """The parts of a check. Blocks come in runs of about `size_max` bytes, or less where that makes `count_min` runs.

    Only names, sizes, HEAD, the configuration and two block headers of each stream are read.
    """
    found: list[Part] = [StreamPart(folder, has_writer) for folder in folders]
    whole = [run for folder in folders if (run := whole_run(disk, folder, has_writer)) is not None]
    sizes = [sizes_of(StreamPaths(run.folder.root), run.names) for run in whole]
    target = max(1, min(size_max, -(-sum(map(sum, sizes)) // count_min)))
    for run, of_run in zip(whole, sizes, strict=True):
        found += cut(run, of_run, target)
    return found


def whole_run(disk: Disk, folder: StreamFolder, has_writer: bool) -> BlockRun | None:
    """All blocks of a stream as one run; None if neither copy of its configuration has a valid stream id."""
    paths = StreamPaths(folder.root)
    identity = newest_identity(disk, folder)
    if identity is None:
        return None
    try:
        head = decode_head(disk.read_file(paths.head), identity.stream_id)
    except FileNotFoundError:
        head = None
    names = list_blocks(paths)
    if head is not None and not _fits(disk, paths, identity.stream_id, head, names):
        head = None
    if head is not None and head.block_id and (head.boot_id == boot_id() or head.is_stopped):
        # After a power cut the blocks may hold more than the HEAD that reached the disk; else they end here.
        names = [name for name in names if _id_of(name) <= head.block_id]
    return BlockRun(folder, has_writer, identity.stream_id, head, tuple(names))


def list_blocks(paths: StreamPaths) -> list[str]:
    """The names of a stream's block files in order, each in its newest generation: one listing, no file is opened."""
    newest: dict[int, tuple[int, str]] = {}
    for name in os.listdir(paths.blocks) if os.path.isdir(paths.blocks) else ():
        parsed = parse_block_name(name)
        if parsed is not None and parsed[1] > newest.get(parsed[0], (0, ""))[0]:
            newest[parsed[0]] = parsed[1], name
    return [newest[block_id][1] for block_id in sorted(newest)]


def _id_of(name: str) -> int:
    parsed = parse_block_name(name)
    assert parsed is not None
    return parsed[0]


def _fits(disk: Disk, paths: StreamPaths, stream_id: bytes, head: Head, names: list[str]) -> bool:
    """Whether HEAD can belong to these blocks; otherwise an open ignores HEAD, too."""
    own: BlockHeader | None = None
    for name in names:
        if _id_of(name) < head.block_id:
            continue
        path = os.path.join(paths.blocks, name)
        header, size = read_header(disk, path)
        if header is None or (header.stream_id, header.block_id) != (stream_id, _id_of(name)):
            continue
        if own is not None:
            return head.committed_seq < header.first_seq
        if header.block_id > head.block_id:
            break  # its own block is gone: the index tells what that costs
        own = header
        if head.offset < min(RECORDS_START, size) or not own.first_seq - 1 <= head.committed_seq < SEQ_MAX:
            return False
    return True


def read_header(disk: Disk, path: str) -> tuple[BlockHeader | None, int]:
    """A block's header from the copy with a valid checksum (None if neither has one), and the size of the file."""
    try:
        fd = disk.open(path)
    except FileNotFoundError:
        return None, 0
    try:
        return decode_front(disk.read(fd, RECORDS_START), path), disk.size(fd)
    finally:
        disk.close(fd)


def sizes_of(paths: StreamPaths, names: Sequence[str]) -> list[int]:
    """The sizes of blocks; if there are very many, each gets the mean size of a sample."""
    if len(names) <= EXACT_MAX:
        return [size_of(os.path.join(paths.blocks, name)) for name in names]
    sample = names[:: len(names) // SAMPLE]
    mean = sum(size_of(os.path.join(paths.blocks, name)) for name in sample) // len(sample)
    return [max(mean, 1)] * len(names)


def size_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:  # the writer removed it
        return 0


def cut(run: BlockRun, sizes: Sequence[int], target: int) -> Iterator[BlockRun]:
    """Split a run into shorter ones, each of which ends with the block that brings it to `target` bytes."""
    start = size = 0
    for at in range(len(run.names)):
        size += sizes[at]
        if size >= target or at + 1 == len(run.names):
            next_name = run.names[at + 1] if at + 1 < len(run.names) else ""
            yield replace(run, names=run.names[start : at + 1], next_name=next_name, size=size)
            start, size = at + 1, 0


__all__ = ["BlockRun", "Part", "StreamPart", "cut", "list_blocks", "plan_parts", "read_header", "sizes_of", "whole_run"]
