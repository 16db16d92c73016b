"""BlockFiles: the block files of one store and their summaries: named, sealed, and read again.

A block is written by the commit log (commit_log.pyx). Its summary is written when it is sealed, and is only a
convenience: without it the block itself is read.
"""

from __future__ import annotations

import errno
import os
import weakref
from typing import TYPE_CHECKING

from penstock.errors import WriteFailed
from penstock.format.block_header import BlockHeader
from penstock.format.block_scan import scan_block
from penstock.format.constants import RECORDS_START
from penstock.store.index import tables
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.index.pending_summaries import PendingSummaries
from penstock.store.index.sections import load_section
from penstock.store.index.summary import CONTROLS, Summary, decode_summary, encode_summary, ids_and_expiries_of
from penstock.store.write import engine_blocks

if TYPE_CHECKING:
    from penstock.store.file_store import FileStore
    from penstock.store.open.recovery import Recovered


class BlockFiles:
    """Names blocks, writes their summaries, and reads arrays, ids and expiries of sealed blocks back.

    Always true: each block of the index has its header here.
    """

    def __init__(self, store: FileStore) -> None:
        self.store: FileStore = weakref.proxy(store)  # it owns us, and is freed without the garbage collector
        self.summaries = PendingSummaries(store.disk, store.paths.blocks, store.committer, self._summary_failed)
        self.headers: dict[int, BlockHeader] = {}
        self.filters: dict[int, bytes] = {}  # the Bloom filters over the subjects of sealed blocks
        self.next_block_id = 1
        self.numbering = 0  # says which numbers the subjects have: those of one summary count in all with the same
        self.recovered_ids = IdsAndExpiries()  # of the blocks that the open read as wholes …
        self.recovered_blocks: set[int] = set()  # … which are these
        self.summary_size = 0  # bytes of the summaries since the last checkpoint

    def recovered(self, found: Recovered) -> None:
        """Take over what recovery found out about the blocks."""
        self.filters = {block.header.block_id: block.subject_filter for block in found.blocks if block.subject_filter}
        self.next_block_id = found.next_block_id
        self.numbering = found.numbering or int.from_bytes(os.urandom(8), "little") | 1

    def keep_recovered_ids(self, found: Recovered) -> None:
        """The ids and expiries that recovery read: `recent_ids_and_expiries` gives them out, once."""
        self.recovered_ids = IdsAndExpiries()
        self.recovered_blocks = set()
        for block in found.blocks:
            if len(block.ids_and_expiries):
                self.recovered_ids.extend(block.ids_and_expiries)
                self.recovered_blocks.add(block.header.block_id)

    def path(self, block_id: int) -> str:
        header = self.headers.get(block_id)
        return self.store.paths.block(block_id, header.generation if header else 1)

    def summary_path(self, block_id: int) -> str:
        header = self.headers.get(block_id)
        return self.store.paths.summary(block_id, header.generation if header else 1)

    def name_new(self, first_seq: int, time: int) -> tuple[int, bytes, bytes, int]:
        """Name a new block: its id, path, the bytes before its records, and its salt."""
        store = self.store
        block_id = self.next_block_id
        self.next_block_id += 1
        salt = int.from_bytes(os.urandom(8), "little") | 1
        header = BlockHeader(store.stream_id, block_id, store.epoch, first_seq, first_seq, time, salt)
        self.headers[block_id] = header
        return block_id, os.fsencode(store.paths.block(block_id)), header.encode_front(), salt

    def seal(self, block_id: int, spans: list[tuple[int, int]]) -> None:
        """The active block is full: write its summary. `spans`: where its control records are."""
        store = self.store
        controls = engine_blocks.parts_of(store.engine, block_id, spans)
        self.write_summary(block_id, controls, store.active_ids, [])
        store.active_ids.clear()  # in place: the append that seals the block notes the next ones here

    def forget(self, block_id: int) -> str:
        """A block is removed: the path of its summary."""
        path = self.summary_path(block_id)
        self.headers.pop(block_id, None)
        self.filters.pop(block_id, None)
        return path

    # Summaries.

    def write_summary(
        self, block_id: int, controls: bytes, ids_and_expiries: IdsAndExpiries, damage: list[tuple[int, int]]
    ) -> None:
        index = self.store.index
        names, subject_filter = tables.names_of(index, block_id)
        ids, expiries = ids_and_expiries.sections(index, block_id)
        data = encode_summary(
            self.headers[block_id],
            self.store.query.block(block_id),
            self.numbering,
            [tables.rows_of(index, block_id, which) for which in range(4)],
            names,
            controls,
            ids,
            expiries,
            damage,
            subject_filter,
        )
        self.filters[block_id] = subject_filter
        self.summary_size += len(data)
        self.summaries.write(self.summary_path(block_id), data)
        tables.release_arrays(index, block_id)

    def _summary_failed(self, path: str, error: OSError) -> None:
        """The next open writes it again. The records themselves are committed elsewhere."""
        store = self.store
        store.report.add("rebuilt", path, f"the summary was not written: {error}")
        if os.path.exists(path):
            store.clean_up(lambda: store.disk.unlink(path))  # an older one does not say what this one would have

    def read_summary(self, block_id: int) -> Summary | None:
        """The summary of a sealed block as it is on the disk; None when there is none."""
        path = self.summary_path(block_id)
        self.summaries.wait(path)
        return decode_summary(self.store.disk.read_file(path), path) if os.path.exists(path) else None

    def add_to_summary(self, block_id: int, entry: tuple[int, int, bytes | None, int]) -> None:
        """The block was sealed in the batch of this message: add its id or expiry to the summary."""
        summary = self.read_summary(block_id)
        if summary is not None:  # without one the next open reads the block itself
            entries = ids_and_expiries_of(self.store.index, summary)
            entries.append(*entry)
            self.write_summary(block_id, bytes(summary.section(CONTROLS)), entries, summary.damage)
            self.summaries.wait(self.summary_path(block_id))  # the older one would be believed, and the entry forgotten

    def load_section(self, block_id: int, which: int, is_doubted: bool) -> bytes:
        """An array of a sealed block: from its summary, else (or where it is doubted) from the block itself."""
        path = self.summary_path(block_id)
        self.summaries.wait(path)
        try:
            return load_section(self.store, path, block_id, which, is_doubted)
        except OSError as error:
            raise WriteFailed("read", error.filename or path, error.errno or errno.EIO) from error

    # Ids and expiries.

    def recent_ids_and_expiries(self, since_ns: int) -> IdsAndExpiries:
        """Those of the blocks that hold messages stored since a time, by rising sequence: for the dedupe window of a
        stream that was just opened."""
        recent = []
        for block in reversed(self.store.query.blocks()):
            if not block["rows"] or not block["is_sealed"]:
                continue
            if block["time_max"] < since_ns:
                break
            if block["id"] not in self.recovered_blocks:
                recent.append(block["id"])
        found = IdsAndExpiries()
        for block_id in reversed(recent):
            found.extend(self._ids_and_expiries_in(block_id))
        found.extend(self.recovered_ids)
        found.put_in_order()
        self.recovered_ids, self.recovered_blocks = IdsAndExpiries(), set()
        return found

    def _ids_and_expiries_in(self, block_id: int) -> IdsAndExpiries:
        """Those of a sealed block: from its summary, else from its records."""
        summary = self.read_summary(block_id)
        if summary is not None:
            return ids_and_expiries_of(self.store.index, summary)
        header = self.headers[block_id]
        data = self.store.disk.read_file(self.path(block_id))
        scan = scan_block(
            data,
            min(RECORDS_START, len(data)),
            len(data),
            base_seq=header.base_seq,
            base_time=header.base_time,
            salt=header.salt,
            seq_min=header.first_seq,
        )
        return IdsAndExpiries.of_scan(scan, data)

    def close(self) -> None:
        self.headers, self.filters = {}, {}
