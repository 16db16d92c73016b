"""The small files of a stream: configuration, HEAD, CHECKPOINT, what is being adopted or cut off, DELETES, consumers.

Each is checked by itself. What they say is held against the blocks in stream_state.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock.base.disk import Disk
from penstock.check.problem import PartCheck, attempts
from penstock.consumer.consumer import decode_meta, table_of
from penstock.errors import CorruptBlock, PenstockError
from penstock.format.constants import HEAD_SIZE, HEAD_SLOT_SIZE, HEAD_SLOT_STRIDE
from penstock.format.head import decode_head
from penstock.format.identity import Identity, decode_identity
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.format.truncation import read_cut
from penstock.store.consumer_log.entries import Entry, read_entries
from penstock.store.deletes.deletes_file import read_kept
from penstock.store.index.checkpoint import Checkpoint, decode_checkpoint
from penstock.store.open.adopt_plan import check_moves, read_notes, read_plan
from penstock.store.open.report import DAMAGE, Report
from penstock.store.open.stream_folders import StreamFolder
from penstock.stream.stored_config import stored_config


def read_identity_copy(disk: Disk, path: str, name: str) -> Identity | None:
    """One copy of config.json; None where it is missing, damaged, or cannot be of a stream called `name`."""
    try:
        identity = decode_identity(disk.read_file(path), path)
    except FileNotFoundError:
        return None
    try:
        return identity if identity is None or stored_config(identity.config, name) else None
    except (PenstockError, ValueError):
        return None


def newest_identity(disk: Disk, folder: StreamFolder) -> Identity | None:
    """A stream's identity from the newer of its valid copies."""
    paths = StreamPaths(folder.root)
    copies = [read_identity_copy(disk, path, folder.name) for path in (paths.config, paths.config_copy)]
    return max((one for one in copies if one is not None), key=lambda one: one.revision, default=None)


class SmallFilesChecker:
    """Checks one stream's small files; adds what it finds to `found`."""

    def __init__(self, disk: Disk, folder: StreamFolder, has_writer: bool, found: PartCheck) -> None:
        self.disk, self.folder, self.has_writer, self.found = disk, folder, has_writer, found
        self.paths = StreamPaths(folder.root)
        self.checkpoint: Checkpoint | None = None  # if its checksum is valid

    def run(self) -> Identity | None:
        """Check all files. Returns the stream's identity; None if no copy is valid, so that no more can be checked."""
        identity = self.check_config()
        if identity is None:
            return None
        self.check_head(identity)
        self.check_checkpoint(identity)
        if os.path.exists(self.paths.truncate):
            self.found.notes.append(
                f"{self.paths.truncate}: a truncation was under way: the next open for writing finishes it"
            )
        if os.path.exists(self.paths.adopt):
            self.found.notes.append(
                f"{self.paths.adopt}: staged blocks were being adopted: the next open for writing finishes it"
            )
        self.check_batches(identity)
        self.check_deletes(identity)
        self.check_consumers(identity)
        return identity

    def read(self, path: str) -> bytes | None:
        try:
            data = self.disk.read_file(path)
        except FileNotFoundError:
            return None
        self.found.bytes += len(data)
        return data

    def size_of(self, path: str) -> int:
        try:
            return os.path.getsize(path)
        except FileNotFoundError:
            return 0

    def has_blocks(self) -> bool:
        return os.path.isdir(self.paths.blocks) and any(map(parse_block_name, os.listdir(self.paths.blocks)))

    def check_config(self) -> Identity | None:
        """Check both copies; returns the newer valid one."""
        copies = [
            (path, read_identity_copy(self.disk, path, self.folder.name))
            for path in (self.paths.config, self.paths.config_copy)
        ]
        held = [identity for _, identity in copies if identity is not None]
        newest = max(held, key=lambda identity: identity.revision, default=None)
        cost = "the other copy holds" if held else "neither does the other copy: the stream cannot be opened"
        for path, identity in copies:
            if identity is not None:
                continue
            if os.path.exists(path):
                self.found.add("damaged file", path, f"it does not hold; {cost}", size=self.size_of(path))
            elif path == self.paths.config_copy and newest is not None and newest.revision == 1:
                # The first copy alone makes a stream: its process may have ended before it wrote the second.
                self.found.notes.append(f"{path}: not written yet; the next open for writing writes it")
            else:
                self.found.add("missing file", path, f"it is missing; {cost}")
        if len({identity.revision for identity in held}) > 1:
            self.found.notes.append(
                f"{self.paths.config}: the two copies differ in age: the next open for writing makes them equal"
            )
        elif len(held) == 2 and held[0] != held[1]:
            text = "it does not agree with config.json, and both are of the same age: one of them lies"
            self.found.add("damaged file", self.paths.config_copy, text, size=self.size_of(self.paths.config_copy))
        return newest

    def check_head(self, identity: Identity) -> None:
        damaged: list[int] = []
        for _ in attempts():  # the writer may be writing it
            data = self.read(self.paths.head)
            if data is None:
                if self.has_blocks():
                    text = "it is missing: the next open for writing makes it again"
                    self.found.add("missing file", self.paths.head, text)
                return
            if not data.strip(b"\0") and not self.has_blocks():
                self.found.notes.append(f"{self.paths.head}: just made, nothing was committed yet")
                return
            slots = [(at, data[at : at + HEAD_SLOT_SIZE]) for at in (0, HEAD_SLOT_STRIDE)]
            damaged = [at for at, slot in slots if slot.strip(b"\0") and decode_head(slot, identity.stream_id) is None]
            if not damaged and not any(slot.strip(b"\0") for _, slot in slots):
                damaged = [0]
            if not damaged and len(data) < HEAD_SIZE:
                damaged = [HEAD_SLOT_STRIDE]
            if not damaged:
                return
        cost = "the other slot holds" if len(damaged) == 1 else "neither slot holds; it is worked out from the blocks"
        for at in damaged:
            text = f"slot {at // HEAD_SLOT_STRIDE}: {cost}"
            self.found.add("damaged file", self.paths.head, text, at, HEAD_SLOT_SIZE)

    def check_checkpoint(self, identity: Identity) -> None:
        data = self.read(self.paths.checkpoint)
        if data is None:
            return
        checkpoint = decode_checkpoint(data)
        if checkpoint is None:
            text = "it does not hold; it is worked out from the blocks"
        elif checkpoint.stream_id != identity.stream_id:
            text = "it belongs to another stream"
        else:
            self.checkpoint = checkpoint
            return
        self.found.add("damaged file", self.paths.checkpoint, text, size=len(data))

    def check_batches(self, identity: Identity) -> None:
        """What was adopted, in two copies, what is being adopted, and what is being cut off."""
        readers: dict[str, Callable[[], object]] = {
            self.paths.batches: lambda: read_notes(self.disk, self.paths.batches),
            self.paths.batches_copy: lambda: read_notes(self.disk, self.paths.batches_copy),
            self.paths.adopt: lambda: self.check_plan(identity),
            self.paths.truncate: lambda: read_cut(self.disk, self.paths),
        }
        for path, read in readers.items():
            try:
                read()
            except CorruptBlock as damage:
                self.found.add("damaged file", path, damage.reason, size=self.size_of(path))

    def check_plan(self, identity: Identity) -> None:
        plan = read_plan(self.disk, self.paths)
        if plan is not None and plan["mode"] == "blocks" and not self.has_writer:
            check_moves(self.disk, self.paths, identity.stream_id, plan)

    def check_deletes(self, identity: Identity) -> None:
        try:
            read_kept(self.disk, self.paths, identity.stream_id)
        except CorruptBlock as damage:
            path = self.paths.deletes
            text = f"{damage.reason}; it costs no message, only the record of why some are gone (docs/lake.md)"
            self.found.add("damaged file", path, text, size=self.size_of(path))

    def check_consumers(self, identity: Identity) -> None:
        """The log of the stream's consumers."""
        entries: dict[int, Entry] = {}
        report = Report()
        for _ in attempts():
            report = Report()
            entries = read_entries(self.disk, self.paths.consumers, identity.stream_id, report)
            if report.is_clean or not self.has_writer:
                break
        for finding in report.findings:
            if finding.kind in DAMAGE:
                self.found.add("damaged consumers", finding.path, finding.text, finding.offset, finding.size)
            else:
                self.found.notes.append(f"{finding.path}: {finding.text}")
        for number, entry in entries.items():
            try:
                table_of(decode_meta(entry.meta), entry.state, entry.notes)
            except ValueError as error:
                text = f"consumer number {number} cannot be read: {error}"
                self.found.add("damaged consumers", self.paths.consumers, text)


__all__ = ["SmallFilesChecker", "newest_identity", "read_identity_copy"]
