"""A store's metadata as Spark tables: its streams, blocks, subjects and consumers, without reading messages.

One task reads one stream: its checkpoint, and the records after the checkpoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.base.disk import Disk
from penstock.base.subject import Filters
from penstock.consumer.overview import read_consumers
from penstock.format.identity import Identity, read_identity
from penstock.format.paths import StreamPaths
from penstock.scan.checkpoint_view import open_snapshot
from penstock.spark.errors import PenstockSparkError, as_one_line
from penstock.spark.source.options import ReadOptions, Table
from penstock.store.open.stream_folders import StreamFolder, choose_streams
from penstock.store.read.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 16384  # of a batch

COLUMNS: dict[str, dict[str, str]] = {
    "streams": {
        "store": "string",
        "account": "string",
        "stream": "string",
        "stream_id": "string",
        "epoch": "bigint",
        "created": "timestamp",
        "messages": "bigint",
        "bytes": "bigint",
        "first_seq": "bigint",
        "last_seq": "bigint",
        "first_ts": "timestamp",
        "last_ts": "timestamp",
        "num_subjects": "bigint",
        "num_deleted": "bigint",
        "num_blocks": "bigint",
        "disk_bytes": "bigint",
        "config": "string",
    },
    "blocks": {
        "store": "string",
        "account": "string",
        "stream": "string",
        "block": "bigint",
        "path": "string",
        "first_seq": "bigint",
        "last_seq": "bigint",
        "messages": "bigint",
        "num_deleted": "bigint",
        "bytes": "bigint",
        "disk_bytes": "bigint",
        "first_ts": "timestamp",
        "last_ts": "timestamp",
        "is_sealed": "boolean",
    },
    "subjects": {
        "store": "string",
        "account": "string",
        "stream": "string",
        "subject": "string",
        "messages": "bigint",
        "first_seq": "bigint",
        "last_seq": "bigint",
    },
    "consumers": {
        "store": "string",
        "account": "string",
        "stream": "string",
        "consumer": "string",
        "is_durable": "boolean",
        "is_push": "boolean",
        "filters": "array<string>",
        "deliver_policy": "string",
        "ack_policy": "string",
        "delivered_seq": "bigint",
        "delivered_consumer_seq": "bigint",
        "ack_floor_seq": "bigint",
        "ack_floor_consumer_seq": "bigint",
        "num_ack_pending": "bigint",
        "num_redelivered": "bigint",
        "num_pending": "bigint",
        "num_given_up": "bigint",
        "created": "timestamp",
        "paused_until": "timestamp",
    },
}


def table_ddl(table: Table) -> str:
    """The columns of a table as Spark's DDL."""
    return ", ".join(f"{name} {kind.upper()}" for name, kind in COLUMNS[table].items())


class TableReader(DataSourceReader):
    """A metadata table: one partition for each stream."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        known = COLUMNS[options.table]
        for field in schema.fields:
            if known.get(field.name) != field.dataType.simpleString():
                raise PenstockSparkError(
                    f"the schema does not fit table={options.table}: column {field.name} does not fit. "
                    f"Choose from: {table_ddl(options.table)}"
                )
        self.options = options
        self.arrow = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        with as_one_line():
            return [
                InputPartition((path, one))
                for path in options.paths
                for one in choose_streams(os.path.abspath(path), options.streams, options.account)
            ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:
            return
        import pyarrow as pa

        with as_one_line():
            store, folder = partition.value
            rows = list(read_table(self.options.table, store, folder, self.options.subjects))
            for at in range(0, len(rows), ROWS_MAX):
                yield pa.RecordBatch.from_pylist(rows[at : at + ROWS_MAX], schema=self.arrow)


def read_table(
    table: Table, store: str, folder: StreamFolder, subjects: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """The rows of one stream."""
    disk = Disk()
    identity = read_identity(disk, StreamPaths(folder.root))
    snapshot = open_snapshot(folder.root, identity.stream_id, folder.label, disk)
    try:
        for row in _READERS[table](snapshot, identity, subjects):
            yield {"store": store, "account": folder.account, "stream": folder.label} | row
    finally:
        snapshot.stop()


def _stream(snapshot: Snapshot, identity: Identity, subjects: Sequence[str]) -> Iterator[dict[str, Any]]:
    state = snapshot.state()
    yield {
        "stream_id": identity.stream_id.hex(),
        "epoch": snapshot.epoch,
        "created": _micros(identity.created_ns),
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq,
        "last_seq": state.last_seq,
        "first_ts": _micros(state.first_time) if state.messages else None,
        "last_ts": _micros(state.last_time) if state.messages else None,
        "num_subjects": state.num_subjects,
        "num_deleted": state.num_deleted,
        "num_blocks": len(snapshot.query.blocks()),
        "disk_bytes": state.disk_bytes,
        "config": json.dumps(identity.config),
    }


def _blocks(snapshot: Snapshot, identity: Identity, subjects: Sequence[str]) -> Iterator[dict[str, Any]]:
    for block in snapshot.query.blocks():
        has_times = block["rows"] and block["time_min"] <= block["time_max"]
        yield {
            "block": block["id"],
            "path": snapshot.block_path(block["id"]),
            "first_seq": block["first_seq"],
            "last_seq": block["last_seq"],
            "messages": block["live"],
            "num_deleted": block["rows"] - block["live"],
            "bytes": block["live_bytes"],
            "disk_bytes": block["size"],
            "first_ts": _micros(block["time_min"]) if has_times else None,
            "last_ts": _micros(block["time_max"]) if has_times else None,
            "is_sealed": bool(block["is_sealed"]) and block["id"] != _active(snapshot),
        }


def _active(snapshot: Snapshot) -> int:
    """The block that a running writer appends to; 0 when none runs."""
    head = snapshot.head
    return 0 if head is None or head.is_stopped else head.block_id


def _subjects(snapshot: Snapshot, identity: Identity, subjects: Sequence[str]) -> Iterator[dict[str, Any]]:
    wanted = Filters(subjects)
    for subject, state in snapshot.subjects_state().items():
        if not subjects or wanted.match(subject):
            yield {
                "subject": subject,
                "messages": state.messages,
                "first_seq": state.first_seq,
                "last_seq": state.last_seq,
            }


def _consumers(snapshot: Snapshot, identity: Identity, subjects: Sequence[str]) -> Iterator[dict[str, Any]]:
    for one in read_consumers(snapshot):
        yield {
            "consumer": one.name,
            "is_durable": one.is_durable,
            "is_push": one.is_push,
            "filters": list(one.filters),
            "deliver_policy": one.deliver_policy,
            "ack_policy": one.ack_policy,
            "delivered_seq": one.delivered_stream_seq,
            "delivered_consumer_seq": one.delivered_consumer_seq,
            "ack_floor_seq": one.ack_floor_stream_seq,
            "ack_floor_consumer_seq": one.ack_floor_consumer_seq,
            "num_ack_pending": one.num_ack_pending,
            "num_redelivered": one.num_redelivered,
            "num_pending": one.num_pending,
            "num_given_up": len(one.given_up),
            "created": _micros(one.created_ns),
            "paused_until": _micros(one.paused_until_ns) if one.paused_until_ns else None,
        }


def _micros(ns: int) -> int:
    return ns // 1000


_READERS: dict[str, Callable[[Snapshot, Identity, Sequence[str]], Iterator[dict[str, Any]]]] = {
    "streams": _stream,
    "blocks": _blocks,
    "subjects": _subjects,
    "consumers": _consumers,
}
