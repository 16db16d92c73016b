"""The buffers of a batch, as scan/columns.pyx filled them, as a pyarrow.RecordBatch: nothing is copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.scan.columns import Columns, Memory

if TYPE_CHECKING:
    import pyarrow as pa


def record_batch(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of `schema`, which are those it was read with."""
    import pyarrow as pa

    arrays = [_array(columns, field.name, field.type) for field in schema]
    if not arrays:  # a batch without columns still has rows to count
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), columns.row_count, [None]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(columns: Columns, name: str, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    count, memory = columns.row_count, columns.buffers[name]
    if name != "headers":
        return pa.Array.from_buffers(kind, count, [None, *map(pa.py_buffer, memory)], null_count=0)
    null_count = columns.headers_null_count
    valid = pa.py_buffer(memory[0]) if null_count else None
    if not pa.types.is_map(kind):
        return pa.Array.from_buffers(kind, count, [valid, *map(pa.py_buffer, memory[1:])], null_count=null_count)
    return _map(kind, count, valid, null_count, memory)


def _map(
    kind: pa.MapType, count: int, valid: pa.Buffer | None, null_count: int, memory: tuple[Memory, ...]
) -> pa.MapArray:
    """headers: list offsets per message, the keys, list offsets per key, the values."""
    import pyarrow as pa

    offsets, key_offsets, keys, list_offsets, value_offsets, values = map(pa.py_buffer, memory[1:])
    key_count, value_count = len(memory[2]) // 4 - 1, len(memory[5]) // 4 - 1
    key_array = pa.Array.from_buffers(pa.string(), key_count, [None, key_offsets, keys], null_count=0)
    value_array = pa.Array.from_buffers(pa.string(), value_count, [None, value_offsets, values], null_count=0)
    lists = pa.Array.from_buffers(kind.item_type, key_count, [None, list_offsets], null_count=0, children=[value_array])
    entries = pa.Array.from_buffers(
        pa.struct([kind.key_field, kind.item_field]), key_count, [None], null_count=0, children=[key_array, lists]
    )
    return pa.Array.from_buffers(kind, count, [valid, offsets], null_count=null_count, children=[entries])
