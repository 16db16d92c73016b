"""Migration of the first generation: `messages.jsonl` becomes blocks. Behaviours F11.

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
from dataclasses import dataclass
from typing import Any

from penstock.duration import parse_time
from penstock.headers import encode
from penstock.kernel.batch import Batch
from penstock.store.file_store import FileStore

BATCH_MAX = 1000


@dataclass(frozen=True, slots=True)
class LegacyMessage:
    seq: int
    time_ns: int
    subject: str
    headers: bytes | None
    payload: bytes


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
    time = fields.get("timestamputc")
    if not isinstance(time, str):
        raise ValueError(f"TimestampUtc {time!r} is no time")
    return LegacyMessage(seq, parse_time(time), subject, _headers(fields), _base64(fields.get("payloadbase64") or ""))


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
            except ValueError as error:
                migration.bad_lines += 1
                aside.append(
                    b"line %d: %s\n" % (number, str(error).encode("utf-8", "replace")) + line.rstrip(b"\n") + b"\n"
                )
                continue
            last_seq = message.seq
            yield message


def migrate_legacy(store: FileStore, path: str) -> Migration:
    """Move `path` into the store's blocks. A run that was cut short goes on where it stopped."""
    migration = Migration()
    aside: list[bytes] = []
    batch: list[tuple[int, int, str, bytes | None, bytes]] = []

    def flush() -> None:
        packed = Batch.raw(batch)
        store.core.append(packed, 0, packed.count, store.clock.now_ns())
        for index, _status in packed.refused(0, packed.count):
            seq, _time, subject, _headers, _payload = batch[index]
            migration.bad_lines += 1
            aside.append(f"sequence {seq}: subject {subject!r} was refused\n".encode("utf-8", "replace"))
        migration.messages += packed.count - len(packed.refused(0, packed.count))
        store.commit()
        batch.clear()

    for message in read_lines(path, migration, aside):
        next_seq = store.index.last_seq + 1 + len(batch)
        if message.seq < next_seq:
            continue  # a run before this one has it
        if message.seq > next_seq:
            if batch:
                flush()
            gap = message.seq - store.index.last_seq - 1
            if gap > 0:
                store.skip(gap)
                migration.skipped += gap
        batch.append((0, message.time_ns, message.subject, message.headers, message.payload))
        if len(batch) == BATCH_MAX:
            flush()
    if batch:
        flush()
    store.sync()
    store.write_checkpoint()
    if aside:
        migration.set_aside = f"{path}.damaged"
        store.disk.write_file(migration.set_aside, b"".join(aside))
        store.report.add(
            "set aside",
            path,
            f"{migration.bad_lines} lines do not parse: they are in {os.path.basename(migration.set_aside)}",
        )
    store.disk.unlink(path)
    store.disk.sync_folder(os.path.dirname(path))
    return migration
