"""Migration from the first file format: `messages.jsonl` becomes blocks (docs/behaviours.md, F11).

One JSON object per line, keys in either case: Sequence, Subject, PayloadBase64, TimestampUtc, and optionally
HeadersBase64 or an
object Headers. A line that does not parse is set aside with its number; sequences may have gaps. The file is
removed only once the
blocks are safe.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.disk import Disk
from penstock.base.duration import parse_time
from penstock.base.subject import explain_subject
from penstock.errors import ReadError, StoreError
from penstock.format.constants import RECORD_SIZE_MAX
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.wire.headers import encode

BATCH_MAX = 1000
BATCH_SIZE_MAX = 8 << 20
HEADERS_SIZE_MAX = 65535


@dataclass(frozen=True, slots=True)
class LegacyMessage:
    seq: int
    time_ns: int
    subject: str
    headers: bytes | None
    payload: bytes
    number: int = 0  # of its line
    line: bytes = b""


@dataclass(slots=True)
class Migration:
    """What became of a file."""

    messages: int = 0
    skipped: int = 0  # sequences that the file did not have
    bad_lines: int = 0
    set_aside: str = ""


def parse_line(line: bytes) -> LegacyMessage:
    """The message in one line. ValueError says what is wrong with it."""
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    fields = {str(key).lower(): value for key, value in found.items()}
    seq, subject = fields.get("sequence"), fields.get("subject")
    if not isinstance(seq, int) or isinstance(seq, bool) or not 0 < seq < 2**63:
        raise ValueError(f"Sequence {seq!r} is no sequence")
    if not isinstance(subject, str):
        raise ValueError(f"Subject {subject!r} is no text")
    fault = explain_subject(subject.encode())
    if fault is not None:
        raise ValueError(fault)
    time = fields.get("timestamputc")
    if not isinstance(time, str):
        raise ValueError(f"TimestampUtc {time!r} is no time")
    headers, payload = _headers(fields), _base64(fields.get("payloadbase64") or "")
    if headers is not None and len(headers) > HEADERS_SIZE_MAX:
        raise ValueError(f"headers of {len(headers)} bytes are over {HEADERS_SIZE_MAX}")
    if len(payload) > RECORD_SIZE_MAX - 4 * HEADERS_SIZE_MAX:
        raise ValueError(f"a payload of {len(payload)} bytes does not fit")
    return LegacyMessage(seq, parse_time(time), subject, headers, payload)


def _base64(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no base64")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"bad base64: {error}") from None


def _headers(fields: dict[str, Any]) -> bytes | None:
    if fields.get("headersbase64"):
        return _base64(fields["headersbase64"])
    headers = fields.get("headers")
    if not headers:
        return None
    if isinstance(headers, str):
        return _base64(headers)
    if not isinstance(headers, dict):
        raise ValueError(f"Headers {headers!r} is no object")
    return encode({str(key): value if isinstance(value, list) else str(value) for key, value in headers.items()})


def read_lines(path: str, migration: Migration, aside: list[bytes]) -> Iterator[LegacyMessage]:
    """The messages of a file in order; lines that do not parse, or do not ascend, go to `aside`."""
    last_seq = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                message = parse_line(line)
                if message.seq <= last_seq:
                    raise ValueError(f"sequence {message.seq} after {last_seq}")
            except (ValueError, RecursionError) as error:
                _set_aside(number, str(error), line, migration, aside)
                continue
            last_seq = message.seq
            yield replace(message, number=number, line=line)


def _set_aside(number: int, why: str, line: bytes, migration: Migration, aside: list[bytes]) -> None:
    migration.bad_lines += 1
    aside.append(b"line %d: %s\n" % (number, why.encode("utf-8", "replace")) + line.rstrip(b"\n") + b"\n")


def lifted(limits: Limits) -> Limits:
    """The limits during a migration: none. What a stream refuses today it may have taken in those days."""
    return Limits(block_size=limits.block_size)


def migrate_legacy(store: FileStore, path: str, limits: Limits | None = None) -> Migration:
    """Move `path` into the store's blocks. A run that was cut short goes on where it stopped, or begins anew where a
    power cut took some of it.

    `limits` (those of the store, unless given) hold again once all of it is in.
    """
    migration = Migration()
    aside: list[bytes] = []
    limits = limits or store.limits
    begun = begun_path(path)
    store.configure(lifted(limits))
    if os.path.exists(begun):
        if not _is_whole(store, path):
            store.truncate(0)  # all there is came from the file, which still has it
    elif store.index.last_seq == 0:
        store.disk.write_file(begun, b"all messages here come from messages.jsonl, which is still being read\n")
    _move(store, path, migration, aside)
    store.sync()
    store.write_checkpoint()
    if aside:
        migration.set_aside = _write_aside(store, path, b"".join(aside))
        store.report.add(
            "set aside",
            path,
            f"{migration.bad_lines} lines could not be taken: they are in {os.path.basename(migration.set_aside)}",
        )
    store.disk.unlink(path)
    store.disk.sync_folder(os.path.dirname(path))
    forget_begun(store.disk, path)
    store.configure(limits)
    if store.index.last_seq == 0 and limits.first_seq > 1:
        store.compact(limits.first_seq)
    store.enforce_limits()
    return migration


def begun_path(path: str) -> str:
    """Where it stands written that a migration has begun in an empty stream."""
    return f"{path}.begun"


def forget_begun(disk: Disk, path: str) -> None:
    """The file is gone: from now on the stream has messages of its own."""
    if os.path.exists(begun_path(path)):
        disk.unlink(begun_path(path))
        disk.sync_folder(os.path.dirname(path))


def _is_whole(store: FileStore, path: str) -> bool:
    """Is every line up to the store's last sequence in the store?"""
    last_seq = store.index.last_seq
    return all(_is_kept(store, message) for message in read_lines(path, Migration(), []) if message.seq <= last_seq)


def _move(store: FileStore, path: str, migration: Migration, aside: list[bytes]) -> None:
    batch: list[tuple[int, int, str, bytes | None, bytes]] = []
    batch_size = 0

    def flush() -> None:
        packed = Batch.raw(batch)
        if store.engine.append(packed, 0, packed.count, store.clock.now_ns()) != packed.count:
            index, status = packed.refused(0, packed.count)[0]
            raise StoreError(f"{path}: sequence {batch[index][0]} was refused with status {status}")
        migration.messages += packed.count
        store.commit()
        batch.clear()

    for message in read_lines(path, migration, aside):
        next_seq = store.index.last_seq + 1 + len(batch)
        if message.seq < next_seq:
            if not _is_kept(store, message):  # by a run before this one
                why = f"the stream has or had another message at sequence {message.seq}"
                _set_aside(message.number, why, message.line, migration, aside)
            continue
        if message.seq > next_seq:
            if batch:
                flush()
                batch_size = 0
            gap = message.seq - next_seq
            store.skip(gap)
            migration.skipped += gap
        batch.append((message.seq, message.time_ns, message.subject, message.headers, message.payload))
        batch_size += len(message.payload)
        if len(batch) == BATCH_MAX or batch_size >= BATCH_SIZE_MAX:
            flush()
            batch_size = 0
    if batch:
        flush()


def _is_kept(store: FileStore, message: LegacyMessage) -> bool:
    try:
        found = store.load(message.seq)
    except ReadError:
        return False
    return (found.time_ns, found.subject, found.raw_headers, found.data) == (
        message.time_ns,
        message.subject,
        message.headers,
        message.payload,
    )


def _write_aside(store: FileStore, path: str, data: bytes) -> str:
    """Write what was set aside under a name that is free, or has it already."""
    number, target = 1, f"{path}.damaged"
    while os.path.exists(target) and store.disk.read_file(target) != data:
        number += 1
        target = f"{path}.{number}.damaged"
    store.disk.write_file(target, data)
    return target
