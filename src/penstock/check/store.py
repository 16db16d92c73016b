"""check_store: every checksum of a store's files, read only. Each problem is named by file, offset and sequence."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from penstock.base.disk import Disk
from penstock.check.blocks import BlockChecker
from penstock.check.parts import Part, StreamPart, whole_run
from penstock.check.problem import PartCheck, Problem, StoreCheck, StreamCheck
from penstock.check.stream_index import StreamIndex
from penstock.check.stream_state import check_stream_part
from penstock.db.lock import holder_of
from penstock.errors import NotAStore
from penstock.format.paths import StreamPaths
from penstock.scan.block_memory import BlockMemory
from penstock.store.open.marker import MARKER, MISSING, marker_damage, require_marker
from penstock.store.open.stream_folders import StreamFolder, list_streams, pick_streams


def no_progress(size: int) -> None:
    """Ignore progress."""


def chosen_folders(root: str, wanted: Iterable[str] | None = None, account: str | None = None) -> list[StreamFolder]:
    """The folders that are, or once were, streams: the wanted ones, or all."""
    return pick_streams(root, list_streams(root, account, with_broken=True), wanted, account)


def check_root(root: str) -> list[Problem]:
    """What is wrong with the store's marker. Raises NotAStore and NewerFormat."""
    if not os.path.isdir(root):
        raise NotAStore(root, "it is a file, not a directory" if os.path.exists(root) else "there is no such directory")
    disk, marker = Disk(), os.path.join(root, MARKER)
    damage = marker_damage(root, disk)
    require_marker(root, disk)
    if not damage:
        return []
    return [Problem("missing file" if damage == MISSING else "damaged file", marker, damage)]


def bytes_of(streams: Iterable[StreamFolder]) -> int:
    """The bytes of the streams' blocks, for a progress bar."""
    total = 0
    for one in streams:
        try:
            with os.scandir(StreamPaths(one.root).blocks) as entries:
                total += sum(entry.stat().st_size for entry in entries if entry.name.endswith(".blk"))
        except OSError:
            continue
    return total


def check_store(
    root: str,
    streams: Iterable[str] | None = None,
    account: str | None = None,
    *,
    disk: Disk | None = None,
    advance: Callable[[int], None] = no_progress,
) -> StoreCheck:
    """Check a store, or some of its streams, or those of one account, in this process. `advance` is called with the
    size of each block that was read."""
    root, disk = os.path.abspath(root), disk or Disk()
    began = time.monotonic()
    found = StoreCheck(root, None, check_root(root))
    folders = chosen_folders(root, streams, account)
    found.holder = holder_of(root)
    memory = BlockMemory()
    for folder in folders:
        found.streams.append(_check_stream(disk, folder, found.holder is not None, memory, advance))
    found.seconds = time.monotonic() - began
    return found


def _check_stream(
    disk: Disk, folder: StreamFolder, has_writer: bool, memory: BlockMemory, advance: Callable[[int], None]
) -> StreamCheck:
    """Check all parts of a stream; they share one index."""
    part, run = StreamPart(folder, has_writer), whole_run(disk, folder, has_writer)
    if run is None:
        return StreamCheck.of_parts(folder, [check_stream_part(disk, part)])
    index = StreamIndex(disk, folder, run.stream_id, has_writer)
    try:
        blocks = BlockChecker(disk, run, index, memory, advance).check()
        return StreamCheck.of_parts(folder, [check_stream_part(disk, part, index), blocks])
    finally:
        index.close()


def check_part(disk: Disk, part: Part, memory: BlockMemory) -> PartCheck:
    """Check one part by itself."""
    if isinstance(part, StreamPart):
        return check_stream_part(disk, part)
    index = StreamIndex(disk, part.folder, part.stream_id, part.has_writer)
    try:
        return BlockChecker(disk, part, index, memory, no_progress).check()
    finally:
        index.close()


__all__ = ["bytes_of", "check_part", "check_root", "check_store", "chosen_folders", "no_progress"]
