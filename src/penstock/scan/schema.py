"""The columns of a stream as a table: names, order and types, the same for Arrow and for Spark.

Spark compares types exactly (PySpark 4.3): string and not large_string, microseconds in UTC, and the
inner field of a list is called `element`. `ts_ns` stands beside `ts` because a timestamp there has no nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("stream", "seq", "ts", "ts_ns", "subject", "headers", "payload")

HeadersAs = Literal["map", "raw"]


def choose_columns(columns: Iterable[str] | None) -> tuple[str, ...]:
    """The named columns in the table's order, all of them for None; ValueError names what is near an unknown one."""
    if columns is None:
        return COLUMNS
    if isinstance(columns, str):
        raise TypeError(f"columns is a list of names, not {columns!r}")
    asked = list(columns)
    for name in asked:
        if name not in COLUMNS:
            near = get_close_matches(str(name), COLUMNS, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(COLUMNS)}"
            raise ValueError(f"no column {name!r}: {hint}")
    return tuple(name for name in COLUMNS if name in asked)


def schema(columns: Iterable[str] | None = None, headers: HeadersAs = "map") -> pa.Schema:
    """The Arrow schema of the named columns, in the table's order; `headers` as a map or as the raw header block."""
    import pyarrow as pa

    if headers not in ("map", "raw"):
        raise ValueError(f"headers={headers!r}: map or raw")
    types = {
        "stream": pa.string(),
        "seq": pa.int64(),
        "ts": pa.timestamp("us", tz="UTC"),
        "ts_ns": pa.int64(),
        "subject": pa.string(),
        "headers": pa.map_(pa.string(), headers_list()) if headers == "map" else pa.binary(),
        "payload": pa.binary(),
    }
    return pa.schema([pa.field(name, types[name]) for name in choose_columns(columns)])


def headers_list() -> pa.ListType:
    """The values of one header key."""
    import pyarrow as pa

    return pa.list_(pa.field("element", pa.string()))
