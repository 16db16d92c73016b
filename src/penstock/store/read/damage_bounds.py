"""DamageBounds: which sequences a damaged part of a block may have held, judged by the records around it."""

from __future__ import annotations

from bisect import bisect_left

from penstock.format.block_header import BlockHeader
from penstock.format.block_scan import BlockScan
from penstock.format.record import decode
from penstock.store.open.control_records import SKIP


class DamageBounds:
    """A block's records by offset, to bound the sequences that a damaged part between them may have held."""

    def __init__(self, header: BlockHeader, data: bytes | memoryview, scan: BlockScan) -> None:
        rows = [(offset, seq, seq + 1) for offset, _size, seq, _time, _flags in scan.messages()]
        for offset, _size in scan.control_spans():
            record = decode(data, offset, base_seq=header.base_seq, base_time=header.base_time, salt=header.salt)
            seq = record["seq"]  # a skip has the first sequence that it covers, other records have the next free one
            rows.append((offset, seq, seq + (record["value"] if record["kind"] == SKIP else 0)))
        self.rows = sorted(rows)
        self.first_seq = header.first_seq

    def between(self, start: int, stop: int) -> tuple[int, int | None]:
        """(lowest, one past the highest) sequence that bytes [start, stop) may have held; None: no record follows."""
        at = bisect_left(self.rows, (start,))
        low = self.rows[at - 1][2] if at else self.first_seq
        at = bisect_left(self.rows, (stop,))
        return low, self.rows[at][1] if at < len(self.rows) else None
