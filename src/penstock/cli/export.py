"""penstock export: a stream's messages as JSONL, CSV or Parquet, in sequence order. Works beside a running writer."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal

from penstock.check.open_store import OpenStore
from penstock.cli.arguments import check_filters, parse_moment
from penstock.cli.jsonl import CSV_HEADER, SCAN_COLUMNS, encode_rows
from penstock.cli.output import DAMAGED, OK, Advance, complain, count, progress, size
from penstock.errors import UsageError
from penstock.store.open.report import format_ranges
from penstock.store.read.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.db.stream import Stream
    from penstock.scan import Damage

Format = Literal["jsonl", "csv", "parquet"]
Named = tuple[str, "Stream"]  # a stream with its name in the export
BATCH_ROWS = 16384  # for text: a batch is held in memory as one string
GROUP_ROWS = 131072  # of a Parquet row group
TRIES_MAX = 20


@dataclass(slots=True)
class Rows:
    """The matching batches of a stream; if the writer removes a block meanwhile, the scan continues with a new view."""

    stream: Stream
    subjects: list[str]
    start_seq: int | None
    since: int | None
    until: int | None
    options: dict[str, Any]
    damage: list[Damage] = field(default_factory=list)
    count: int = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        next_seq, tries = self.start_seq, 0
        while True:
            scan = self.stream.scan(
                self.subjects, start_seq=next_seq, since=self.since, until=self.until, **self.options
            )
            try:
                for batch in scan:
                    self.count += batch.num_rows
                    next_seq = batch.column("seq")[-1].as_py() + 1
                    yield batch
            except FileNotFoundError:
                tries += 1
                store = self.stream.store
                if tries == TRIES_MAX or not isinstance(store, Snapshot):
                    raise
                store.load_all()
                continue
            finally:
                self.damage += scan.damage
            return


def export(
    root: str,
    names: Sequence[str],
    form: Format,
    out: str | None,
    subjects: Sequence[str],
    since: str | None,
    until: str | None,
    start_seq: int | None,
    account: str | None = None,
) -> int:
    """Write the messages that match; 1 when damage made some of them unreadable."""
    wanted = {
        "subjects": check_filters(subjects, "--subject"),
        "start_seq": start_seq,
        "since": parse_moment(since, "--since"),
        "until": parse_moment(until, "--until"),
    }
    out = None if out == "-" else out
    if form == "parquet" and out is None:
        raise UsageError(
            "parquet is not text: say where with --out FILE.parquet (or FOLDER/ for a file for each stream)"
        )
    began = time.monotonic()
    with OpenStore(root, account) as store:
        streams = [(one.label, store.stream(one)) for one in store.pick(names)]
        if not streams:
            complain(f"{store.path} has no streams: nothing to export")
        total = sum(stream.state().messages for _, stream in streams)
        with progress("exporting", total, "messages") as advance:
            if form == "parquet":
                assert out is not None
                done = _export_parquet(streams, out, wanted, advance)
            else:
                done = _export_text(streams, out, form == "csv", wanted, advance)
    if out is not None:
        rows = sum(one.count for one in done)
        sys.stderr.write(
            f"{count(rows, 'message')} in {time.monotonic() - began:.1f} s: {out} ({size(_size_of(out))})\n"
        )
    return _tell_damage(done)


def _export_text(
    streams: list[Named], out: str | None, is_csv: bool, wanted: dict[str, Any], advance: Advance
) -> list[Rows]:
    done = []
    with _sink(out) as file:
        if is_csv:
            file.write(CSV_HEADER)
        for label, stream in streams:
            options = {"columns": SCAN_COLUMNS, "headers": "raw", "batch_rows": BATCH_ROWS}
            rows = Rows(stream, options=options, **wanted)
            done.append(rows)
            for text, number in encode_rows(iter(rows), label, is_csv):
                file.write(text)
                advance(number)
        file.flush()
    return done


def _export_parquet(streams: list[Named], out: str, wanted: dict[str, Any], advance: Advance) -> list[Rows]:
    """Write one file for all streams, with the column `stream`; or one file each if `out` is a folder or ends in /."""
    if not os.path.isdir(out) and not out.endswith(os.sep):
        return _write_parquet(streams, out, wanted, advance)
    done = []
    os.makedirs(out, exist_ok=True)
    for label, stream in streams:
        path = os.path.join(out, f"{label}.parquet")
        os.makedirs(os.path.dirname(path), exist_ok=True)  # the account's folder
        done += _write_parquet([(label, stream)], path, wanted, advance)
    return done


def _write_parquet(streams: list[Named], path: str, wanted: dict[str, Any], advance: Advance) -> list[Rows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstock.scan.schema import schema

    done = []
    with _sink(path) as file, pq.ParquetWriter(file, schema(), compression="zstd") as writer:
        for label, stream in streams:
            rows = Rows(stream, options={"batch_rows": GROUP_ROWS}, **wanted)
            done.append(rows)
            for batch in rows:
                if label != stream.name:
                    batch = batch.set_column(0, "stream", pa.repeat(pa.scalar(label), batch.num_rows))
                writer.write_batch(batch, row_group_size=GROUP_ROWS)
                advance(batch.num_rows)
    return done


@contextmanager
def _sink(path: str | None) -> Iterator[IO[bytes]]:
    """Standard output, or a file that gets its name once it is complete."""
    if path is None:
        yield sys.stdout.buffer
        return
    if os.path.isdir(path):
        raise UsageError(f"--out {path} is a directory: name a file in it")
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def _size_of(path: str) -> int:
    if not os.path.isdir(path):
        return os.path.getsize(path)
    files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(os.path.getsize(file) for file in files if file.endswith(".parquet"))


def _tell_damage(done: list[Rows]) -> int:
    is_damaged = False
    for rows in done:
        for place in rows.damage:
            is_damaged = True
            seqs = format_ranges([(place.seq_start, place.seq_stop)]) if place.seq_start < place.seq_stop else "unknown"
            complain(
                f"{place.path} at byte {place.offset}: {place.reason}; left out: {seqs} of {rows.stream.name}; "
                "`penstock repair` records it"
            )
    return DAMAGED if is_damaged else OK
