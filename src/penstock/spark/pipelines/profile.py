"""profile: statistics of a part of a stream, computed in the task that reads it, so that few rows reach the JVM.

Sizes and times between messages go into histogram buckets that are exact below 128 and less than 0.8 % wide above:
unlike sorted values, buckets can be added up over parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.base.disk import Disk
from penstock.base.ranges import subtract
from penstock.base.seq_set import SeqSet
from penstock.format.identity import read_identity
from penstock.format.paths import StreamPaths
from penstock.scan.plan import Part, open_folders, plan, read_part
from penstock.store.open.stream_folders import StreamFolder
from penstock.store.read.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

MINUTE_NS = 60 * 10**9
BUCKET_BITS = 7
COLUMNS = ("kind", "stream", "name", "key", "count", "size", "low", "high")
SCHEMA = "kind string, stream string, name string, key long, count long, size long, low long, high long"
DUPLICATE_SCHEMA = "stream string, value string, seq long, ts_ns long"
GAP_KINDS = ("deleted", "skipped", "lost")
SHOWN = "shown"  # the name that marks the longest gaps
By = Literal["id", "payload"]
Mode = Literal["fail", "skip"]


def plan_parts(folders: Sequence[StreamFolder], max_bytes: int, cores: int) -> list[Part]:
    """All parts of the streams, enough to give every core work."""
    views = open_folders(folders)
    total = sum(block.stop - block.start for view in views for block in view.blocks)
    target = max(1 << 20, min(max_bytes, -(-total // cores)))
    return [part for view in views for part in plan(view, max_bytes=target)]


def bucket(value: int) -> int:
    """The lowest value in the bucket."""
    shift = max(value.bit_length() - 1 - BUCKET_BITS, 0)
    return value >> shift << shift


def _buckets(values: pa.Array) -> pa.Array:
    """`bucket` of each value; the logarithm only estimates the exponent, the shifts are exact."""
    import pyarrow as pa
    import pyarrow.compute as pc

    small = pc.max_element_wise(values, 1)
    power = pc.cast(pc.floor(pc.log2(pc.cast(small, pa.float64(), safe=False))), pa.int64())
    power = pc.min_element_wise(power, 62)
    # Just below a power of two a float is rounded up to it.
    power = pc.subtract(power, pc.cast(pc.greater(pc.shift_left(pa.scalar(1, pa.int64()), power), small), pa.int64()))
    shift = pc.max_element_wise(pc.subtract(power, BUCKET_BITS), 0)
    return pc.shift_left(pc.shift_right(values, shift), shift)


class Profile:
    """The running counts of one part."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.tables: dict[str, list[pa.Table]] = {"minute": [], "size": [], "gap": [], "subject": []}
        self.count = self.size = 0
        self.first_ts = self.last_ts = 0

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        ts = batch.column("ts_ns")
        size = pc.cast(
            pc.add(
                pc.binary_length(batch.column("payload")), pc.fill_null(pc.binary_length(batch.column("headers")), 0)
            ),
            pa.int64(),
        )
        table = pa.table({"ts": ts, "size": size, "subject": batch.column("subject")})
        self._group("minute", pa.table({"key": pc.divide(ts, MINUTE_NS), "size": size}), ["key"])
        self._group("size", pa.table({"key": _buckets(size), "size": size}), ["key"])
        grouped = table.group_by("subject").aggregate(
            [("size", "count"), ("size", "sum"), ("ts", "min"), ("ts", "max")]
        )
        self.tables["subject"].append(
            grouped.select(["subject", "size_count", "size_sum", "ts_min", "ts_max"]).rename_columns(
                ["name", "count", "size", "low", "high"]
            )
        )
        before = [self.last_ts] if self.count else []
        times = pa.concat_arrays([pa.array(before, pa.int64()), ts])
        waits = pc.max_element_wise(pc.subtract(times[1:], times[:-1]), 0)
        self._group("gap", pa.table({"key": _buckets(waits), "size": waits}), ["key"])
        if not self.count:
            self.first_ts = ts[0].as_py()
        self.last_ts = ts[-1].as_py()
        self.count += batch.num_rows
        self.size += pc.sum(size).as_py()

    def _group(self, kind: str, table: pa.Table, by: list[str]) -> None:
        found = table.group_by(by).aggregate([("size", "count"), ("size", "sum"), ("size", "min"), ("size", "max")])
        self.tables[kind].append(
            found.select([*by, "size_count", "size_sum", "size_min", "size_max"]).rename_columns(
                [*by, "count", "size", "low", "high"]
            )
        )

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The counts as rows of SCHEMA."""
        import pyarrow as pa

        if not self.count:
            return
        for kind, tables in self.tables.items():
            by = "name" if kind == "subject" else "key"
            whole = pa.concat_tables(tables).group_by(by)
            found = whole.aggregate([("count", "sum"), ("size", "sum"), ("low", "min"), ("high", "max")])
            columns = {name: found.column(f"{name}_{how}") for name, how in _HOW.items()}
            yield from _rows(kind, self.stream, found.num_rows, columns | {by: found.column(by)})
        whole_part = {"key": [part.low], "count": [self.count], "size": [self.size]}
        yield from _rows("part", self.stream, 1, {**whole_part, "low": [self.first_ts], "high": [self.last_ts]})


_HOW = {"count": "sum", "size": "sum", "low": "min", "high": "max"}


def _rows(kind: str, stream: str, number: int, columns: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    types = {"kind": pa.string(), "stream": pa.string(), "name": pa.string()}
    made = {"kind": pa.array([kind] * number), "stream": pa.array([stream] * number), **columns}
    arrays = []
    for name in COLUMNS:
        wanted = types.get(name, pa.int64())
        column = made.get(name)
        if column is None:
            column = pa.nulls(number, wanted)
        arrays.append(column.cast(wanted) if isinstance(column, pa.ChunkedArray) else pa.array(column, wanted))
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in COLUMNS])
    yield from pa.Table.from_arrays(arrays, schema=schema).combine_chunks().to_batches()


def profile_part(part: Part | tuple[str, str], top: int, mode: Mode) -> Iterator[pa.RecordBatch]:
    """The rows of SCHEMA for one part, or for the gaps of one stream; the `top` longest of these are named."""
    if isinstance(part, tuple):
        yield from gap_rows(*part, top)
        return
    found = Profile(part.stream)
    for batch in read_part(part, columns=("ts_ns", "subject", "headers", "payload"), headers="raw", mode=mode):
        if batch.num_rows:
            found.add(batch)
    yield from found.batches(part)


def named_rows(part: Part, by: By, mode: Mode) -> Iterator[pa.RecordBatch]:
    """Stream, name, sequence and time of each message that has a name: its id, or a hash of its payload."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = {"stream": pa.string(), "value": pa.string(), "seq": pa.int64(), "ts_ns": pa.int64()}
    columns = ("seq", "ts_ns", "headers") if by == "id" else ("seq", "ts_ns", "payload")
    for batch in read_part(part, columns=columns, headers="map" if by == "id" else "none", mode=mode):
        if by == "id":
            ids = pc.map_lookup(batch.column("headers"), pa.scalar("Nats-Msg-Id"), "first")
            has_id = pc.greater(pc.fill_null(pc.list_value_length(ids), 0), 0)
            batch = batch.filter(has_id)
            value = pc.list_element(ids.filter(has_id), 0)
        else:
            hashes = [
                hashlib.blake2b(memoryview(one.as_buffer()), digest_size=16).hexdigest()
                for one in batch.column("payload")
            ]
            value = pa.array(hashes, pa.string())
        if batch.num_rows:
            stream = pa.array([part.stream] * batch.num_rows)
            yield pa.RecordBatch.from_arrays(
                [stream, value, batch.column("seq"), batch.column("ts_ns")], schema=pa.schema(list(kinds.items()))
            )


def plan_profile(folders: Sequence[StreamFolder], max_bytes: int, cores: int) -> list[Part | tuple[str, str]]:
    """The parts, and for each stream one task that reads the gaps from its index."""
    return [*((one.root, one.label) for one in folders), *plan_parts(folders, max_bytes, cores)]


def gap_rows(root: str, stream: str, top: int) -> Iterator[pa.RecordBatch]:
    """The ranges of sequences between a stream's first and last that hold no message, by kind, and their totals."""
    found = find_gaps(root, stream)
    longest = set(sorted(found, key=lambda gap: (gap[1] - gap[2], gap[1]))[:top])
    for kind in GAP_KINDS:
        gaps = [gap for gap in found if gap[0] == kind]
        if gaps:
            counts = [stop - start for _, start, stop in gaps]
            names = [SHOWN if gap in longest else None for gap in gaps]
            columns = {"key": [start for _, start, _ in gaps], "name": names, "count": counts}
            yield from _rows(kind, stream, len(gaps), columns)
            yield from _rows("gaps", stream, 1, {"name": [kind], "count": [sum(counts)]})


def find_gaps(root: str, stream: str) -> list[tuple[str, int, int]]:
    """(kind, start, stop) by sequence: lost, else skipped, else deleted."""
    disk = Disk()
    identity = read_identity(disk, StreamPaths(root))
    snapshot = Snapshot(root, identity.stream_id, name=stream, disk=disk)
    try:
        dead, lost, skips = snapshot.query.deleted(), snapshot.lost, snapshot.skips
    finally:
        snapshot.stop()
    found = []
    for first, last in dead.ranges():
        rest = subtract((first, last + 1), (lost,))
        for kind, spans in (
            ("lost", _within(first, last + 1, rest)),
            ("skipped", [one for span in rest for one in _within(*span, subtract(span, (skips,)))]),
            ("deleted", [one for span in rest for one in subtract(span, (skips,))]),
        ):
            found += [(kind, start, stop) for start, stop in spans]
    return sorted(found, key=lambda gap: gap[1])


def _within(start: int, stop: int, rest: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """[start, stop) without the ranges of `rest`, which lie in it."""
    others = SeqSet()
    for a, b in rest:
        others.add_range(a, b - 1)
    return subtract((start, stop), (others,))
