"""BlockOnDisk: a block file as recovery meets it: its header, and what was read of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.format.block_header import BlockHeader
from penstock.format.block_scan import BlockScan
from penstock.format.record import decode
from penstock.store.index.checkpoint import BlockRow
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.index.summary import Summary


@dataclass(slots=True)
class BlockOnDisk:
    """A block file that counts."""

    path: str
    header: BlockHeader
    size: int
    scan: BlockScan | None = None
    data: bytes | memoryview = b""
    summary: Summary | None = None
    controls: bytes = b""  # the control records that are still to be applied
    all_controls: bytes = b""
    subject_filter: bytes = b""
    erased: list[int] = field(default_factory=list)
    is_suspect: bool = False  # both headers are gone: nothing is believed of it that was not read
    is_synced: bool = False  # for certain: all of it was on disk when its writer went on
    ids_and_expiries: IdsAndExpiries = field(default_factory=IdsAndExpiries)

    def goes_on(self) -> bool:
        """Whether a whole record stands where the scan ended: one above what was asked for, no torn tail."""
        assert self.scan is not None
        h = self.header
        try:
            decode(self.data, self.scan.stop, base_seq=h.base_seq, base_time=h.base_time, salt=h.salt)
        except ValueError:
            return False
        return True

    def is_as_listed(self, row: BlockRow) -> bool:
        """Whether a checkpoint lists it as it is; it may have grown since."""
        h = self.header
        return (
            (h.salt, h.generation, h.first_seq, h.base_seq, h.base_time)
            == (row.salt, row.generation, row.first_seq, row.base_seq, row.base_time)
            and self.size >= row.size
            and not self.is_suspect
        )

    def controls_from(self, offset: int) -> bytes:
        """The control records at or after an offset, of a block that was scanned."""
        assert self.scan is not None
        return b"".join(self.data[at : at + size] for at, size in self.scan.control_spans() if at >= offset)


def decode_controls(block: BlockOnDisk) -> list[dict[str, Any]]:
    """A block's control records, decoded."""
    header, at, found = block.header, 0, []
    while at < len(block.controls):
        record = decode(block.controls, at, base_seq=header.base_seq, base_time=header.base_time, salt=header.salt)
        found.append(record)
        at = record["stop"]
    return found
