"""Reads the files of a consumer log: the last recorded state of each consumer.

Layout and rules: docs/format.md, "Consumer log". Reading writes nothing. The owner of a stream reads the log when it
opens; others (snapshots, `penstock inspect`, Spark) read it beside a running writer.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass, field

from penstock.base.disk import Disk
from penstock.base.xxh64 import xxh64_of
from penstock.errors import NewerFormat
from penstock.format.bounds import ID_MAX
from penstock.format.constants import HEADER_SIZE, HEADER_STRIDE, RECORDS_START
from penstock.format.consumer_log_record import (
    END,
    LOG_MAGIC,
    NOTE,
    PUT,
    VERSION,
    ConsumerLogScan,
    scan_records,
    split_put,
)
from penstock.store.open.report import Report

TRIES_MAX = 20  # a writer may begin a new file and remove the old one while we list them
_HEADER = struct.Struct("<8sHHI16sQQ200s")
_NAME = re.compile(r"(\d{6,})\.log")


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The header of a log file: docs/format.md, "Consumer log"."""

    stream_id: bytes
    file_id: int
    salt: int

    def encode(self) -> bytes:
        """The 256 bytes of one copy."""
        body = _HEADER.pack(LOG_MAGIC, VERSION, 0, 0, self.stream_id, self.file_id, self.salt, b"")
        return body + struct.pack("<Q", xxh64_of(body))

    def encode_front(self) -> bytes:
        """Both copies, in the layout that precedes the records."""
        copy = self.encode().ljust(HEADER_STRIDE, b"\0")
        return (copy + copy).ljust(RECORDS_START, b"\0")


def decode_header(data: bytes, path: str) -> LogHeader | None:
    """The header in one copy's 256 bytes; None when it is damaged. A newer format is an error."""
    if len(data) < HEADER_SIZE or data[:8] != LOG_MAGIC:
        return None
    if xxh64_of(data[: HEADER_SIZE - 8]) != int.from_bytes(data[HEADER_SIZE - 8 :], "little"):
        return None
    _, version, _, _, stream_id, file_id, salt, _ = _HEADER.unpack_from(data)
    if version > VERSION:
        raise NewerFormat(path, version)
    if not salt or not 0 < file_id <= ID_MAX:
        return None
    return LogHeader(stream_id, file_id, salt)


def log_name(file_id: int) -> str:
    return f"{file_id:06d}.log"


def list_files(folder: str) -> list[tuple[int, str]]:
    """(file id, path) of the files of a log, oldest first; empty when there is no folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = [(int(match[1]), os.path.join(folder, name)) for name in names if (match := _NAME.fullmatch(name))]
    return sorted(
        (file_id, path) for file_id, path in found if 0 < file_id <= ID_MAX and path.endswith(log_name(file_id))
    )


@dataclass(slots=True)
class Entry:
    """One consumer: its last known state is `state` with each of `notes` applied in turn."""

    meta: bytes
    state: bytes
    notes: list[bytes] = field(default_factory=list)
    is_stale: bool = False  # a note is missing: later ones are ignored, as they hold differences only
    count: int = 0  # the number of records it has had, as far as they were read


@dataclass(slots=True)
class LogFile:
    """One file as it was read."""

    path: str
    file_id: int
    header: LogHeader | None
    bad_copies: list[int]
    size: int
    scan: ConsumerLogScan | None = None
    end: int = -1  # index of the record that ends the fold; -1: there is none
    is_whole: bool = False  # the fold holds every consumer that its end record counts

    @property
    def is_cut_short(self) -> bool:
        """Whether it ends before its fold does."""
        if self.scan is None:
            return self.size < RECORDS_START
        return self.end < 0 and not self.scan.damage

    @property
    def is_damaged(self) -> bool:
        """Whether it has damage, so that it should be kept for inspection."""
        return self.header is None or bool(self.bad_copies) or bool(self.scan and self.scan.damage)


def read_log_file(disk: Disk, path: str, file_id: int, stream_id: bytes) -> LogFile:
    """Read a file with all of its whole records. A file of a newer format version is an error."""
    data = disk.read_file(path)
    copies = [decode_header(data[at : at + HEADER_SIZE], path) for at in (0, HEADER_STRIDE)]
    held = [copy for copy in copies if copy is not None and (copy.stream_id, copy.file_id) == (stream_id, file_id)]
    found = LogFile(path, file_id, held[0] if held else None, [n for n in (0, 1) if copies[n] is None], len(data))
    if found.header is None:
        return found
    scan = scan_records(data, min(RECORDS_START, len(data)), len(data), found.header.salt)
    if scan.is_newer:
        raise NewerFormat(path, VERSION + 1)
    ends = [n for n, (_, kind, _, _, _) in enumerate(scan.records) if kind == END]
    found.scan = scan
    if ends:
        found.end = ends[0]
        numbers = {number for _, kind, number, _, _ in scan.records[: ends[0]] if kind == PUT}
        found.is_whole = len(numbers) == scan.records[ends[0]][3]
    return found


class EntryReader:
    """All files of a log, combined.

    The newest file with a whole fold is the base; the records of newer files are applied to it one by one, as each
    record in a fold that a crash cut short is still right. Results: `entries`, `highest` (the highest number ever
    given), `files`, `damaged` (files to inspect), and the faults in `report`.
    """

    def __init__(self, disk: Disk, folder: str, stream_id: bytes, report: Report) -> None:
        self.report = report
        self.entries: dict[int, Entry] = {}
        self.highest = 0
        self._missing: dict[int, str] = {}  # path of the file by consumer that has notes but no state
        self._stale: dict[int, str] = {}
        self._broken: set[str] = set()  # files with a fault
        self.files = [read_log_file(disk, path, file_id, stream_id) for file_id, path in list_files(folder)]
        whole = [n for n, file in enumerate(self.files) if file.is_whole]
        self.start = whole[-1] if whole else 0
        for n, file in enumerate(self.files):
            # A newer file beside a whole one was not finished, as the old one is removed once the new one is synced.
            # The very first file was not finished either if it ends within its fold.
            is_unfinished = (bool(whole) and n > self.start) or (file.file_id == 1 and file.is_cut_short)
            if n >= self.start:
                self._report_faults(file, is_unfinished)
                self._apply(file)
                if not is_unfinished and (file.is_damaged or not file.is_whole) and file.size >= RECORDS_START:
                    self._broken.add(file.path)
        for number, path in self._missing.items():
            self._damage(path, f"consumer number {number}: what it was is damaged, only changes of it are left")
        for number, path in self._stale.items():
            text = "a change of it is damaged: it goes on from the last good point and delivers again what came after"
            self._damage(path, f"consumer number {number}: {text}")
        self._broken.update(self._missing.values(), self._stale.values())
        self.damaged = [file.path for file in self.files if file.path in self._broken]

    def _damage(self, path: str, text: str, offset: int = 0, size: int = 0) -> None:
        self.report.add("damaged records", path, text, offset=offset, size=size)

    def _report_faults(self, file: LogFile, is_unfinished: bool) -> None:
        """Report the faults of a file."""
        scan = file.scan
        if scan is None:
            if is_unfinished or file.size < RECORDS_START:
                self.report.add("empty file", file.path, "a file of consumers that was begun and not written")
            else:
                self.report.add("set aside", file.path, "no header of it holds", size=file.size)
            return
        for n in file.bad_copies if not is_unfinished else ():
            text = f"header copy {n + 1} of 2: the checksum differs; the other copy holds"
            self._damage(file.path, text, n * HEADER_STRIDE, HEADER_SIZE)
        for offset, size in scan.damage:
            self._damage(file.path, f"{size} bytes among the consumers' records do not hold", offset, size)
        if not file.is_whole and not is_unfinished:
            self._damage(file.path, "the consumers at its begin are not all there", RECORDS_START)
        if scan.torn:
            text = f"the last {scan.torn} bytes are no whole record"
            self.report.add("torn tail", file.path, text, offset=scan.stop, size=scan.torn)

    def _apply(self, file: LogFile) -> None:
        """Apply the file's records to `entries`."""
        for _, kind, number, count, body in file.scan.records if file.scan is not None else ():
            self.highest = max(self.highest, number)
            if kind == PUT:
                self._put(file.path, number, count, body)
            elif kind == NOTE:
                self._note(file.path, number, count, body)
            elif kind != END:
                self.entries.pop(number, None)
                self._forget(number)

    def _put(self, path: str, number: int, count: int, body: bytes) -> None:
        known = self.entries.get(number)
        if known is None or count > known.count:  # else it is the second copy
            try:
                meta, state = split_put(body)
            except ValueError as error:
                self._damage(path, f"consumer number {number}: {error}")
                self._broken.add(path)
                return
            self.entries[number] = Entry(meta, state, count=count)
            self._forget(number)

    def _note(self, path: str, number: int, count: int, changes: bytes) -> None:
        entry = self.entries.get(number)
        if entry is None:
            self._missing[number] = path
        elif count > entry.count:
            if count > entry.count + 1:
                entry.is_stale = True
                self._stale[number] = path
            if not entry.is_stale:
                entry.notes.append(changes)
            entry.count = count

    def _forget(self, number: int) -> None:
        self._missing.pop(number, None)
        self._stale.pop(number, None)


def read_entries(disk: Disk, folder: str, stream_id: bytes, report: Report) -> dict[int, Entry]:
    """The consumers of a stream, with or without a running writer; faults go into `report`."""
    for tries in range(TRIES_MAX):
        found = Report()
        try:
            entries = EntryReader(disk, folder, stream_id, found).entries
        except FileNotFoundError:
            if tries == TRIES_MAX - 1:
                raise
            continue  # the writer removed a file meanwhile: there is a newer one
        report.findings += found.findings
        return entries
    raise AssertionError("the last try returns or raises")


__all__ = ["Entry", "EntryReader", "LogHeader", "decode_header", "list_files", "log_name", "read_entries"]
