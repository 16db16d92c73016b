"""The arrays of a sealed block, as its index asks for them: from its summary, else from the block itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import CorruptBlock
from penstock.store.index import tables
from penstock.store.index.summary import SEQS, read_section

if TYPE_CHECKING:
    from penstock.store.file_store import FileStore
    from penstock.store.read.snapshot import Snapshot


def load_section(store: FileStore | Snapshot, path: str, block_id: int, which: int, is_doubted: bool) -> bytes:
    """The array `which`; `path` is the summary's. With `is_doubted` what the summary says does not fit the block."""
    header, rows = store.headers[block_id], store.query.block(block_id)["rows"]
    try:
        told = read_section(store.disk, path, which, header.salt)
    except FileNotFoundError:
        told = None
    if told is not None and len(told) != rows * 4:
        told = None  # of before a roll back
    if told is not None and not is_doubted:
        return told
    block = store.block_path(block_id)
    data = store.disk.read_file(block)
    try:
        found = tables.rows_from_bytes(store.index, block_id, data, store.query.block(block_id)["size"], which)
    except ValueError as error:
        if told is not None and which == SEQS:
            return told  # which of the records are damaged only the summary tells
        raise CorruptBlock(block, 0, f"{error}; `penstock repair` keeps what is readable") from None
    if told != found:
        store.report.add("rebuilt", path, "the summary does not hold: its rows were read from the block")
    return found
