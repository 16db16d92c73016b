"""batch_of: a record batch of messages as a kernel Batch, on its way in. The way out is batch.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.store.write.batch import Batch
from penstock.wire.header_maps import encode_maps

if TYPE_CHECKING:
    import pyarrow as pa

_EMPTY = memoryview(b"")


def batch_of(
    subjects: pa.Array, payloads: pa.Array, headers: pa.Array | None = None, times_ns: pa.Array | None = None
) -> Batch:
    """Messages from columns: subjects and payloads as text or bytes, headers as maps or raw blocks, times as int64.

    Nothing is copied where the types are string, binary and int64; the batch keeps the columns alive. ValueError names
    the row of a null subject or time; a null payload is an empty one.
    """
    import pyarrow as pa

    count = len(subjects)
    _refuse_null(subjects, "subject")
    given = None
    if headers is not None and headers.null_count < count:
        given = _headers(headers)
    times = None
    if times_ns is not None:
        _refuse_null(times_ns, "time")
        times = _fixed(times_ns, count)
    if payloads.null_count:
        payloads = payloads.fill_null(b"" if payloads.type in (pa.binary(), pa.large_binary()) else "")
    return Batch.of_columns(count, _spans(subjects), _spans(payloads), given, times)


def _refuse_null(column: pa.Array, what: str) -> None:
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise ValueError(f"row {row} has no {what}: it is null")


def _spans(column: pa.Array) -> tuple[Any, Any]:
    """(offsets from the first row on, data) of a column of texts or bytes."""
    import pyarrow as pa

    if column.type not in (pa.string(), pa.binary()):
        if not (pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)):
            raise TypeError(f"a column of text or bytes is wanted, not {column.type}")
        column = column.cast(pa.binary())
    _, offsets, data = column.buffers()
    if offsets is None or not len(column):
        return memoryview(bytes(4)).cast("i"), _EMPTY
    return memoryview(offsets).cast("b")[column.offset * 4 :].cast("i"), _bytes(data)


def _bytes(data: pa.Buffer | None) -> memoryview:
    return memoryview(data).cast("B") if data is not None and data.size else _EMPTY


def _fixed(column: pa.Array, count: int) -> memoryview:
    import pyarrow as pa

    if column.type != pa.int64():
        raise TypeError(f"times are int64 nanoseconds, not {column.type}")
    _, data = column.buffers()
    if not count:
        return memoryview(bytes(8)).cast("q")
    return memoryview(data).cast("b")[column.offset * 8 : (column.offset + count) * 8].cast("q")


def _headers(column: pa.Array) -> tuple[Any, int, Any, Any]:
    import pyarrow as pa

    valid = column.buffers()[0] if column.null_count else None
    bits = memoryview(valid).cast("B") if valid is not None else None
    if not pa.types.is_map(column.type):
        offsets, data = _spans(column)
        return bits, column.offset, offsets, data
    rows = memoryview(column.buffers()[1]).cast("b")[column.offset * 4 :].cast("i")
    keys, items = column.keys, column.items
    if keys.type != pa.string():
        raise TypeError(f"header keys are text, not {keys.type}")
    if items.type == pa.string():  # one value per key
        list_at: Any = memoryview(bytes(pa.array(range(len(items) + 1), pa.int32()).buffers()[1])).cast("i")
        values = items
        if items.offset:
            values = pa.concat_arrays([items])
    else:
        list_at, values = _lists(items)
    key_at, key_data = _spans(keys)
    value_at, value_data = _spans(values)
    if values.null_count:
        raise ValueError("a header value is null: leave the key out")
    offsets, data = encode_maps(len(column), bits, column.offset, rows, key_at, key_data, list_at, value_at, value_data)
    return None, 0, memoryview(offsets).cast("i"), memoryview(data)


def _lists(items: pa.Array) -> tuple[Any, pa.Array]:
    import pyarrow as pa

    if not pa.types.is_list(items.type) or items.type.value_type != pa.string():
        raise TypeError(f"header values are text or lists of text, not {items.type}")
    if not len(items):
        return memoryview(bytes(4)).cast("i"), pa.array([], pa.string())
    return memoryview(items.buffers()[1]).cast("b")[items.offset * 4 :].cast("i"), items.values
