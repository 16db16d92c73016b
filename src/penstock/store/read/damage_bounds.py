"""DamageBounds: what stands around a damaged place of a block tells which sequences it may have held."""

from __future__ import annotations

from bisect import bisect_left

from penstock.format.block_header import BlockHeader
from penstock.format.block_scan import BlockScan
from penstock.format.record import decode
from penstock.store.open.control_records import SKIP


class DamageBounds:
    """The records of a block by offset: which sequences a damaged place between them may have held."""

    def __init__(self, header: BlockHeader, data: bytes | memoryview, scan: BlockScan) -> None:
        rows = [(offset, seq, seq + 1) for offset, _size, seq, _time, _flags in scan.messages()]
        for offset, _size in scan.control_spans():
            record = decode(data, offset, base_seq=header.base_seq, base_time=header.base_time, salt=header.salt)
            seq = record["seq"]  # of a skip the first it covers, of the others the next to be given out
            rows.append((offset, seq, seq + (record["value"] if record["kind"] == SKIP else 0)))
        self.rows = sorted(rows)
        self.first_seq = header.first_seq

    def between(self, start: int, stop: int) -> tuple[int, int | None]:
        """The lowest sequence that bytes [start, stop) may have held, and the one past the highest: None at the end."""
        at = bisect_left(self.rows, (start,))
        low = self.rows[at - 1][2] if at else self.first_seq
        at = bisect_left(self.rows, (stop,))
        return low, self.rows[at][1] if at < len(self.rows) else None
