"""Planning a parallel read: the streams of a store as views, and a view as parts, each of which one task reads.

Reads only, beside a running writer or with none. Blocks that cannot hold a wanted row are not planned.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.base.subject import Filters
from penstock.format.identity import read_identity
from penstock.format.paths import StreamPaths
from penstock.scan.checkpoint_view import no_collection, view_from_checkpoint
from penstock.scan.part import Part, StreamChanged, part_columns, part_schema, read_part
from penstock.scan.rows import may_hold
from penstock.store.open.stream_folders import StreamFolder, choose_streams
from penstock.store.read.snapshot import Snapshot
from penstock.store.read.view import BlockView, StreamView, view_of

PART_BYTES = 64 << 20  # a Spark task costs some 60 ms before its first row

Piece = tuple[BlockView, int, int, int]
"""Of a block: the sequences [low, high) and the bytes that they stand for."""


def open_views(
    path: str | os.PathLike[str],
    streams: Iterable[str] | None = None,
    account: str | None = None,
    disk: Disk | None = None,
) -> list[StreamView]:
    """The named streams of a store (None: all, by name) as of now; StreamNotFound names those that there are.

    Without an account those of all accounts; their views are called as store/open/stream_folders.py says.
    """
    return open_folders(choose_streams(os.path.abspath(os.fspath(path)), streams, account, disk), disk)


def open_folders(folders: Iterable[StreamFolder], disk: Disk | None = None) -> list[StreamView]:
    """Streams as of now."""
    disk = disk or Disk()
    return [view_at(one.root, disk, name=one.label) for one in folders]


def view_at(root: str, disk: Disk | None = None, *, from_checkpoint: bool = True, name: str = "") -> StreamView:
    """The stream in one directory as of now.

    from_checkpoint: where CHECKPOINT and HEAD are enough, believe the listed blocks without reading the files.
    """
    disk = disk or Disk()
    identity = read_identity(disk, StreamPaths(root))
    name = name or os.path.basename(root)
    with no_collection():
        found = view_from_checkpoint(root, identity.stream_id, name, disk) if from_checkpoint else None
        if found is not None:
            return found
        snapshot = Snapshot(root, identity.stream_id, name=name, disk=disk)
        try:
            return view_of(snapshot)
        finally:
            snapshot.stop()


def plan(
    view: StreamView,
    *,
    subjects: Sequence[str | bytes] | None = None,
    start_seq: int | None = None,
    stop_seq: int | None = None,
    since: int | None = None,
    until: int | None = None,
    max_bytes: int = PART_BYTES,
    min_parts: int = 1,
) -> list[Part]:
    """The view as parts of about `max_bytes` in sequence order, of which no two hold the same sequence.

    There are at least `min_parts` where there is so much to share out: then blocks are split by sequence.
    """
    if max_bytes < 1 or min_parts < 1:
        raise ValueError(f"max_bytes={max_bytes}, min_parts={min_parts}: each at least 1")
    asked = {"start_seq": start_seq, "stop_seq": stop_seq, "since": since, "until": until}
    with no_collection():
        blocks = wanted_blocks(view, subjects=subjects, **asked)
        total = sum(size for _, _, _, size in blocks)
        if not total:
            return []
        count = max(min_parts, -(-total // max_bytes))
        pieces = [piece for whole in blocks for piece in _split(whole, -(-total // count))]
        root = stream_root(view)
        return [_part(view, root, run) for run in _runs(pieces, total / count)]


def wanted_blocks(
    view: StreamView,
    *,
    subjects: Sequence[str | bytes] | None = None,
    start_seq: int | None = None,
    stop_seq: int | None = None,
    since: int | None = None,
    until: int | None = None,
) -> list[Piece]:
    """The blocks that can hold a wanted row, each with the range of sequences to take from it and its bytes."""
    names = [] if Filters(subjects or ()).is_all else list(subjects or ())
    low = max(view.first_seq, 0 if start_seq is None else start_seq)
    high = min(view.last_seq + 1, view.last_seq + 1 if stop_seq is None else stop_seq)
    found = []
    for block in view.blocks:
        first, stop = max(block.first_seq, low), min(block.stop_seq, high)
        if first < stop and may_hold(block, names, since, until):
            found.append((block, first, stop, max(block.stop - block.start, 1)))
    return found


def _split(whole: Piece, target: int) -> Iterable[Piece]:
    """A block that is larger than the target as ranges of its sequences."""
    block, low, high, size = whole
    if size <= target:
        return (whole,)
    count = min(-(-size // target), high - low)
    bounds = [low + (high - low) * n // count for n in range(count + 1)]
    return [
        (block, start, stop, size * (n + 1) // count - size * n // count)
        for n, (start, stop) in enumerate(pairwise(bounds))
    ]


def _runs(pieces: list[Piece], target: float) -> Iterator[list[Piece]]:
    """DamageBounds, gathered into runs of about equal bytes."""
    run: list[Piece] = []
    done, number = 0, 0
    for piece in pieces:
        at = int((done + piece[3] / 2) // target)
        if run and at != number:
            yield run
            run = []
        number = at
        run.append(piece)
        done += piece[3]
    if run:
        yield run


def _part(view: StreamView, root: str, run: list[Piece]) -> Part:
    low, high = run[0][1], run[-1][2]
    blocks = {block.block_id: _without_filter(block) for block, _, _, _ in run}
    return Part(
        root=root,
        stream=view.name,
        stream_id=view.stream_id,
        epoch=view.epoch,
        low=low,
        high=high,
        blocks=tuple(blocks.values()),
        dead=_dead_between(view.dead, low, high),
        size=sum(size for _, _, _, size in run),
    )


def _without_filter(b: BlockView) -> BlockView:
    """The block without what only planning needs; `replace` would take twice as long."""
    if not b.subject_filter:
        return b
    return BlockView(
        b.path, b.block_id, b.base_seq, b.base_time, b.salt, b.start, b.stop, b.first_seq, b.stop_seq, b.time_min,
        b.time_max, b"",
    )  # fmt: skip


def stream_root(view: StreamView) -> str:
    """The directory of a view that has blocks."""
    return os.path.dirname(os.path.dirname(view.blocks[0].path))


def _dead_between(dead: SeqSet | None, low: int, high: int) -> bytes:
    if not dead:
        return b""
    found, at = SeqSet(), dead.present_from(low)
    while at is not None and at < high:
        stop = dead.absent_from(at)
        stop = high if stop is None else min(stop, high)
        found.add_range(at, stop - 1)
        at = dead.present_from(stop)
    return found.encode() if found else b""


__all__ = [
    "PART_BYTES",
    "Part",
    "StreamChanged",
    "open_folders",
    "open_views",
    "part_columns",
    "part_schema",
    "plan",
    "read_part",
    "stream_root",
    "view_at",
    "wanted_blocks",
]
