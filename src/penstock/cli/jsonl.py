"""One message per line, as JSON or CSV: written from a scan, and parsed for an import.

Exactly the keys of KEYS, in this order when written; headers_b64 is null (in CSV empty) for a message without headers.
"""

from __future__ import annotations

import csv
import io
import json
from binascii import b2a_base64
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = ("stream", "seq", "time_ns", "subject", "headers_b64", "payload_b64")
SCAN_COLUMNS = ("seq", "ts_ns", "subject", "headers", "payload")
CSV_HEADER = (",".join(KEYS) + "\r\n").encode()


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """A parsed line, with base64 decoded."""

    stream: str
    seq: int
    time_ns: int
    subject: str
    headers_b64: bytes | None
    payload_b64: bytes


_decoder = msgspec.json.Decoder(Line)


def parse_line(line: bytes) -> Line:
    """Parse one line; ValueError says what is wrong with it."""
    found = _decoder.decode(line)
    if not 0 < found.seq < 2**63:
        raise ValueError(f"seq {found.seq} is no sequence: 1 to 2^63 - 1")
    if not 0 < found.time_ns < 2**63:
        raise ValueError(f"time_ns {found.time_ns} is no time: Unix nanoseconds above 0")
    return found


class _Cells(dict[str, bytes]):
    """Subjects as JSON or CSV text, each formatted once."""

    def __init__(self, is_csv: bool) -> None:
        super().__init__()
        self.is_csv = is_csv

    def __missing__(self, subject: str) -> bytes:
        if len(self) > 1 << 16:
            self.clear()
        text = _csv_cell(subject) if self.is_csv else json.dumps(subject)
        self[subject] = found = text.encode()
        return found


def _csv_cell(text: str) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([text])
    return out.getvalue()


def encode_rows(batches: Iterator[pa.RecordBatch], stream: str, is_csv: bool = False) -> Iterator[tuple[bytes, int]]:
    """The lines of a scan (SCAN_COLUMNS, headers raw), a batch at a time, and their count."""
    cells = _Cells(is_csv)
    name = cells[stream]
    if is_csv:
        form = name.replace(b"%", b"%%") + b",%d,%d,%b,%b,%b\r\n"
        no_headers = b""
    else:
        keys = [json.dumps(key).encode() for key in KEYS]
        form = b"{%b: %b, %b: %%d, %b: %%d, %b: %%b, %b: %%b, %b: \"%%b\"}\n" % (
            keys[0], name.replace(b"%", b"%%"), *keys[1:],
        )  # fmt: skip
        no_headers = b"null"
    for batch in batches:
        headers = _slices(batch.column("headers"))
        payloads = _slices(batch.column("payload"))
        if not is_csv:
            quoted = (b'"%b"' % cell if cell is not None else no_headers for cell in headers)
        else:
            quoted = (cell if cell is not None else no_headers for cell in headers)
        numbered = batch.column("subject").dictionary_encode()
        names = [cells[subject] for subject in numbered.dictionary.to_pylist()]
        seqs, times = _ints(batch.column("seq"), "q"), _ints(batch.column("ts_ns"), "q")
        subjects = (names[number] for number in _ints(numbered.indices, "i"))
        rows = zip(seqs, times, subjects, quoted, payloads, strict=True)
        yield b"".join([form % row for row in rows]), batch.num_rows


def _ints(array: pa.Array, form: Literal["i", "q"]) -> list[int]:
    numbers = memoryview(array.buffers()[1]).cast(form)
    return numbers[array.offset : array.offset + len(array)].tolist()


def _slices(array: pa.Array) -> Iterator[bytes | None]:
    """The cells of a binary column in base64, without creating a Python object for each cell."""
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = memoryview(offsets_buffer).cast("i")[array.offset : array.offset + len(array) + 1].tolist()
    data = memoryview(data_buffer) if data_buffer is not None else memoryview(b"")
    cells = (b2a_base64(data[start:stop], newline=False) for start, stop in pairwise(offsets))
    if not array.null_count:
        return cells
    valid = array.is_valid().to_pylist()
    return (cell if is_valid else None for cell, is_valid in zip(cells, valid, strict=True))
