"""StreamScanner: one pass over a stream's batches with columns and a filter, with the interface of
pyarrow.dataset.Scanner.

Arrow's own scanner reads Python's batches ahead in threads of its own that cannot be stopped: when a query ends early
(a LIMIT, an error), they are still in Python while the interpreter shuts down, and the process aborts or hangs. So here
each batch is read, filtered and projected in the calling thread, and nothing is read ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

if TYPE_CHECKING:
    from penstock.scan import Scan

BATCH_SIZE = 131_072  # Arrow's default: ours are smaller
IGNORED = frozenset(
    ("use_threads", "memory_pool", "batch_readahead", "fragment_readahead", "fragment_scan_options", "cache_metadata")
)
"""Options of Arrow's scanner that only say how it reads."""


class StreamScanner:
    """The rows that match a filter, with the requested columns; for one use.

    `columns`: names, or expressions by name; None: all.
    """

    def __init__(
        self,
        scan: Scan,
        columns: list[str] | dict[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        *,
        batch_size: int = BATCH_SIZE,
        **options: Any,
    ) -> None:
        unknown = options.keys() - IGNORED
        if unknown:
            raise TypeError(f"scanner() got an unexpected keyword argument {min(unknown)!r}")
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: at least 1")
        self._scan = scan
        self._columns, self._filter = columns, filter
        self._batch_size = batch_size
        self._is_used = False
        empty = pa.RecordBatch.from_pylist([], schema=scan.schema)
        self._schema: pa.Schema = self._shaped(empty).schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the rows as they are read."""
        return self._scan.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the rows as they are returned."""
        return self._schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches, one after the other. The caller may stop before the last one."""
        if self._is_used:
            raise ValueError("a scanner of a stream is for one use: ask the dataset for another")
        self._is_used = True
        return self._run()

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches as Arrow's stream."""
        return pa.RecordBatchReader.from_batches(self._schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """Everything as one table."""
        return pa.Table.from_batches(list(self.to_batches()), self._schema)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; nothing after them is read."""
        taken: list[pa.RecordBatch] = []
        if num_rows > 0:
            batches = self.to_batches()
            for batch in batches:
                taken.append(batch.slice(0, num_rows))
                num_rows -= taken[-1].num_rows
                if not num_rows:
                    break
            self._scan.close()
        return pa.Table.from_batches(taken, self._schema)

    def take(self, indices: Any) -> pa.Table:
        """The rows at these indices."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """How many rows there are."""
        return sum(batch.num_rows for batch in self.to_batches())

    def _run(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._scan:
                for shaped in self._shaped(batch).to_batches(self._batch_size):
                    if shaped.num_rows:
                        yield shaped
        finally:
            self._scan.close()

    def _shaped(self, batch: pa.RecordBatch) -> pa.Table:
        """The requested columns of a batch, in their order; Arrow computes them on this thread alone."""
        table = pa.Table.from_batches([batch])
        if self._filter is None and not isinstance(self._columns, dict):
            return table if self._columns is None else table.select(self._columns)
        steps = [acero.Declaration("table_source", acero.TableSourceNodeOptions(table))]
        if self._filter is not None:
            steps.append(acero.Declaration("filter", acero.FilterNodeOptions(self._filter)))
        if self._columns is not None:
            named = (
                self._columns if isinstance(self._columns, dict) else {name: pc.field(name) for name in self._columns}
            )
            steps.append(acero.Declaration("project", acero.ProjectNodeOptions(list(named.values()), list(named))))
        return acero.Declaration.from_sequence(steps).to_table(use_threads=False)
