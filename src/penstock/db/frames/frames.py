"""A stream as a table without a JVM: pyarrow.dataset, DuckDB and Polars, all on one scan.

`StreamDataset` is a pyarrow.dataset.Dataset, so DuckDB and others pass it the columns and the filter that they want. A
filter does two things: blocks that cannot hold a matching row are not opened (Arrow's own simplifier decides that, from
what a block's summary guarantees), and it is applied to every row that is read. So pruning may open too many blocks,
but never loses a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from pyarrow.fs import LocalFileSystem

from penstock.base.subject import Filters, is_valid_filter, is_valid_name
from penstock.db.frames.scanner import StreamScanner
from penstock.scan import Scan
from penstock.scan.rows import Asked
from penstock.scan.schema import choose_columns, schema

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from penstock.store.read.view import BlockView, StreamView

Columns = Iterable[str] | dict[str, pc.Expression] | None

RUN_BLOCKS = 64  # blocks that are first checked together
SUBJECTS_MAX = 1000  # if a filter names more subjects, they are not looked up block by block
TIME = pa.timestamp("us", tz="UTC")
NO_FILE = "a stream of Penstock: read it with scanner() or to_table(), then go on with the table"


class StreamDataset(pds.FileSystemDataset):  # type: ignore[misc]
    """The messages of a stream, or those that `asked` selects, as a pyarrow.dataset.

    Always true: each scan sees the stream as it is when the scan begins; rows are in sequence order.
    """

    def __init__(self, view: Callable[[], StreamView], asked: Asked, chosen: pc.Expression | None = None) -> None:
        self._view = view
        self._asked = asked
        self._chosen = chosen
        self._schema = schema(asked.get("columns"), asked.get("headers", "map"))
        # Code that bypasses our methods and uses the base class's dataset gets its error about this file, not a crash.
        disk, form = LocalFileSystem(), pds.IpcFileFormat()
        super().__init__([form.make_fragment(NO_FILE, disk)], self._schema, form, disk)
        self.last_scan: Scan | None = None
        """The latest scan: what it opened, and the damage that it found."""

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def partition_expression(self) -> pc.Expression:
        return pc.scalar(True)

    def scan(self, columns: Iterable[str] | None = None, filter: pc.Expression | None = None) -> Scan:
        """The batches of the blocks that may hold a row matching `filter`: all matching rows, and others too."""
        filter = _both(self._chosen, filter)
        view, asked = self._view(), self._asked.copy()
        if columns is not None:
            asked["columns"] = [name for name in self._schema.names if name in set(columns)]
        if filter is not None:
            view, asked = _pruned(view, asked, filter)
        self.last_scan = Scan(view, **asked)
        return self.last_scan

    def scanner(self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> StreamScanner:
        """A scanner for one use, with exactly the rows that match `filter`. Options as for pyarrow.dataset.Scanner."""
        filter = _both(self._chosen, filter)
        if columns is not None and not isinstance(columns, dict):
            columns = list(columns)
            choose_columns(columns)  # suggests the nearest name for a wrong one
        return StreamScanner(self.scan(self._needed(columns, filter), filter), columns, filter, **options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.scanner().__arrow_c_stream__(requested_schema)

    def to_batches(self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> Iterator[Any]:
        """Record batches, one after the other."""
        return self.scanner(columns, filter, **options).to_batches()

    def to_table(self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:
        """Everything as one table."""
        return self.scanner(columns, filter, **options).to_table()

    def head(
        self, num_rows: int, columns: Columns = None, filter: pc.Expression | None = None, **options: Any
    ) -> pa.Table:
        """The first rows; later blocks are not read."""
        return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """How many rows there are; known without reading if nothing is selected."""
        if (
            filter is None
            and self._chosen is None
            and not any(self._asked.get(name) for name in ("subjects", "start_seq", "stop_seq", "since", "until"))
        ):
            return self._view().messages
        return int(self.scanner(["seq"], filter, **options).count_rows())

    def filter(self, expression: pc.Expression) -> StreamDataset:
        """The dataset with only the rows that match the expression."""
        return StreamDataset(self._view, self._asked, _both(self._chosen, expression))

    def sort_by(self, sorting: Any, **options: Any) -> pds.InMemoryDataset:
        """Everything, read and sorted; joins also read everything."""
        return pds.InMemoryDataset(self.to_table()).sort_by(sorting, **options)

    def join(self, right_dataset: pds.Dataset, *given: Any, **options: Any) -> pds.InMemoryDataset:
        return pds.InMemoryDataset(self.to_table()).join(_loaded(right_dataset), *given, **options)

    def join_asof(self, right_dataset: pds.Dataset, *given: Any, **options: Any) -> pds.InMemoryDataset:
        return pds.InMemoryDataset(self.to_table()).join_asof(_loaded(right_dataset), *given, **options)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[pds.Fragment]:
        raise NotImplementedError("a stream has blocks, not fragments: use scanner(), or Stream.scan for the blocks")

    def replace_schema(self, schema: pa.Schema) -> pds.Dataset:
        raise NotImplementedError("a stream has one schema: cast what to_table() gives")

    def to_polars(self) -> pl.DataFrame:
        """Everything as a Polars frame."""
        frame: pl.DataFrame = _polars().from_arrow(self.to_table())
        return frame

    def scan_polars(self) -> pl.LazyFrame:
        """A lazy Polars frame that reads only the columns that a query uses, from the blocks that its filters may
        match."""
        polars = _polars()
        from polars.io.plugins import register_io_source

        from penstock.db.frames.polars_filter import to_arrow_filter

        def source(
            columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
        ) -> Iterator[pl.DataFrame]:
            needed = None
            if columns is not None:
                needed = {*columns, *(predicate.meta.root_names() if predicate is not None else ())}
            hint = None if predicate is None else to_arrow_filter(predicate)
            if self._chosen is None:
                batches: Iterable[pa.RecordBatch] = self.scan(needed, hint)
            else:
                batches = self.to_batches(None if needed is None else list(needed), hint)
            for batch in batches:
                frame: pl.DataFrame = polars.from_arrow(batch)
                if predicate is not None:
                    frame = frame.filter(predicate)
                if columns is not None:
                    frame = frame.select(columns)
                if n_rows is not None:
                    frame = frame.head(n_rows)
                    n_rows -= frame.height
                yield frame
                if n_rows == 0:
                    break

        empty: pl.DataFrame = polars.from_arrow(self._schema.empty_table())
        return register_io_source(source, schema=empty.schema)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation that reads batch by batch whenever it is used; DuckDB passes its columns and filters."""
        try:
            import duckdb
        except ImportError:
            raise _missing("duckdb", "to_duckdb") from None
        return (connection or duckdb.default_connection()).from_arrow(self)

    def _needed(self, columns: Columns, filter: pc.Expression | None) -> list[str] | None:
        """The columns to read: those requested, and those that an expression may use."""
        if columns is None:
            return None
        words = {name for name in columns if not isinstance(columns, dict)}
        text = " ".join(str(one) for one in (filter, *(columns.values() if isinstance(columns, dict) else ())))
        words.update(re.findall(r"\w+", text))  # a constant may hold the name of a column: it is read in vain
        if "FieldPath" in words:
            return None  # a column given by its number
        return [name for name in self._schema.names if name in words] or [
            "seq"
        ]  # rows without columns cannot be counted


def _loaded(dataset: pds.Dataset) -> pds.Dataset:
    return pds.InMemoryDataset(dataset.to_table()) if isinstance(dataset, StreamDataset) else dataset


def _both(one: pc.Expression | None, other: pc.Expression | None) -> pc.Expression | None:
    return one & other if one is not None and other is not None else one if one is not None else other


# Which blocks to open


def _pruned(view: StreamView, asked: Asked, filter: pc.Expression) -> tuple[StreamView, Asked]:
    """The view with only the blocks that may hold a matching row, and the selection with the subjects that `filter`
    allows."""
    view = replace(view, blocks=tuple(_possible_blocks(view.blocks, filter)))
    subjects = _possible_subjects(filter)
    if subjects is None:
        return view, asked
    known = asked.get("subjects")
    ours = Filters([known] if isinstance(known, str | bytes) else known or ())
    chosen: list[bytes | str] = [subject for subject in subjects if ours.is_all or ours.match(subject)]
    if not chosen:
        return replace(view, blocks=()), asked
    asked["subjects"] = chosen
    return view, asked


def _possible_blocks(blocks: tuple[BlockView, ...], filter: pc.Expression) -> Iterable[BlockView]:
    """The blocks for which Arrow cannot rule out, from their sequences and times, that a row matches `filter`."""
    runs: list[tuple[BlockView, ...]] = [blocks[at : at + RUN_BLOCKS] for at in range(0, len(blocks), RUN_BLOCKS)]
    if len(runs) > 1:
        runs = [runs[n] for n in _satisfiable(filter, [_promise(run) for run in runs])]
    left = [block for run in runs for block in run]
    return (left[n] for n in _satisfiable(filter, [_promise((block,)) for block in left]))


def _promise(blocks: tuple[BlockView, ...]) -> pc.Expression:
    """What holds for every row of these adjacent blocks."""
    seq, ts, ts_ns = pc.field("seq"), pc.field("ts"), pc.field("ts_ns")
    promise = (seq >= blocks[0].first_seq) & (seq < blocks[-1].stop_seq)
    if all(block.time_min <= block.time_max for block in blocks):
        low, high = min(block.time_min for block in blocks), max(block.time_max for block in blocks)
        promise &= (ts_ns >= low) & (ts_ns <= high)
        promise &= (ts >= pa.scalar(low // 1000, TIME)) & (ts <= pa.scalar(high // 1000, TIME))
    return promise


def _possible_subjects(filter: pc.Expression) -> list[str] | None:
    """The only subjects that a row matching `filter` can have; None if they are not few.

    A subject that the filter does not name lies between two that it names: if the filter matches nothing in those gaps,
    it matches only subjects that it names.
    """
    names = _texts(filter)
    if not names or len(names) > SUBJECTS_MAX:
        return None
    subject = pc.field("subject")
    gaps = [subject < names[0], subject > names[-1]]
    gaps += [(subject > low) & (subject < high) for low, high in pairwise(names)]
    if _satisfiable(filter, gaps):
        return None
    named = [names[n] for n in _satisfiable(filter, [subject == name for name in names])]
    if any(is_valid_name(name) and not is_valid_filter(name) for name in named):
        return None  # no filter selects exactly a stored `a.>.b`
    return [name for name in named if is_valid_filter(name)]  # no message can have another


def _texts(filter: pc.Expression) -> list[str]:
    """The string constants of an expression, sorted by their bytes: all that pickling it would write."""
    _, (written,) = filter.__reduce__()
    with pa.ipc.open_file(written) as file:
        values = [column[0].as_py() for n in range(file.num_record_batches) for column in file.get_batch(n).columns]
    found: set[str] = set()
    for value in values:
        for part in value.values() if isinstance(value, dict) else [value]:
            found.update(one for one in (part if isinstance(part, list) else [part]) if isinstance(one, str))
    return sorted(found, key=lambda text: text.encode("utf-8", "surrogatepass"))


def _satisfiable(filter: pc.Expression, promises: list[pc.Expression]) -> list[int]:
    """The indexes of the promises under which Arrow cannot rule out that a row matches `filter`."""
    # Arrow does this for a dataset's files and their partitions: each promise gets a file name, and no file is opened.
    disk, form = LocalFileSystem(), pds.IpcFileFormat()
    parts = [form.make_fragment(str(n), disk, partition_expression=promise) for n, promise in enumerate(promises)]
    named = pds.FileSystemDataset(parts, schema(), form, disk)
    return [int(part.path) for part in named.get_fragments(filter)]


# What may be missing


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise _missing("polars", "to_polars and scan_polars") from None
    return polars


def _missing(name: str, what: str) -> ImportError:
    return ImportError(f"{what}: {name} is not installed; run: pip install 'penstock[{name}]'", name=name)
