"""penstock import: JSONL lines, as `penstock export` writes them, into streams with their sequences and times.

Lines are imported in batches: a batch is checked as a whole before any of it is stored.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from penstock.base.subject import Filters, explain_subject, is_valid_name
from penstock.base.xxh64 import hash_id
from penstock.check.open_store import OpenStore
from penstock.cli.jsonl import Line, parse_line
from penstock.cli.output import OK, Advance, console, count, print_json, progress
from penstock.db.database import check_name
from penstock.errors import PenstockError, UsageError
from penstock.store.base import NEVER
from penstock.store.file_store import FileStore
from penstock.store.open.stream_folders import GLOBAL, place_of
from penstock.store.write.batch import Batch
from penstock.stream.derived_subjects import derived_filter
from penstock.wire.headers import find
from penstock.wire.ttl import TTL_NEVER, parse_ttl

if TYPE_CHECKING:
    from penstock.db.stream import Stream

BATCH_LINES = 4096
BATCH_BYTES = 32 << 20
LINE_BYTES_MAX = 128 << 20  # a record of 64 MiB in base64, with a margin
LIMITS = {3: "it is larger than max_msg_size", 4: "its headers are over 64 KiB", 5: "the stream has max_msgs messages"}
LIMITS |= {
    6: "the stream has max_bytes bytes",
    7: "the subject has max_msgs_per_subject messages",
    9: "it is too large",
}


class BadLine(PenstockError):
    """A line that cannot be imported."""

    def __init__(self, source: str, number: int, why: str) -> None:
        super().__init__(f"{source} line {number}: {why}")


@dataclass(slots=True)
class Imported:
    """The result of an import, by stream: messages, and sequences missing from the lines."""

    messages: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)  # stored already
    gaps: dict[str, int] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)


def import_lines(
    root: str,
    file: str | None,
    name: str | None,
    account: str | None,
    subjects: Sequence[str],
    skip_existing: bool,
    as_json: bool,
) -> int:
    """Import a file, or standard input."""
    source = "standard input" if file in (None, "-") else os.fspath(file or "")
    stream = sys.stdin.buffer if file in (None, "-") else open(source, "rb")  # noqa: SIM115
    with stream:
        total = os.path.getsize(source) if file not in (None, "-") else 0
        with (
            OpenStore(root, account, read_only=False, durability="os", create=True) as store,
            progress("importing", total) as advance,
        ):
            store.database(account or GLOBAL)  # created if it does not exist, even if there are no lines
            run = Importer(Targets(store, name), source, subjects, skip_existing)
            try:
                run.take(stream, advance)
            except PenstockError as error:
                raise UsageError(f"{error}{run.so_far()}") from None
    if as_json:
        facts = {"messages": run.done.messages, "already_there": run.done.skipped, "gaps": run.done.gaps}
        print_json({"store": store.path, "created": run.done.created, **facts})
    else:
        _print(run.done)
    return OK


def _print(done: Imported) -> None:
    out = console()
    for name in done.messages.keys() | done.skipped.keys():
        text = f"{name}: {count(done.messages.get(name, 0), 'message')} imported"
        text += " into a new stream" if name in done.created else ""
        if done.gaps.get(name):
            text += f", {count(done.gaps[name], 'sequence')} skipped that the lines do not have"
        if done.skipped.get(name):
            text += f", {done.skipped[name]:,} were there already"
        out.print(text, soft_wrap=True, markup=False)
    if not done.messages and not done.skipped:
        out.print("no lines: nothing imported")


class Targets:
    """The stream that each line goes into.

    A line names its stream as an export does (store/open/stream_folders.py), unless --account names the account. A
    stream given as an option is searched for in all accounts and takes all lines.
    """

    def __init__(self, store: OpenStore, wanted: str | None) -> None:
        self.store, self.wanted = store, wanted
        self._labels: dict[str, str] = {}  # by the name in a line
        self._places: dict[str, tuple[str, str]] = {}  # account and stream, by label

    def label(self, name: str) -> str:
        """The label of a line's stream: lines that name one stream in several ways go into the same stream."""
        found = self._labels.get(name)
        if found is None:
            account, stream = place = self._find(name)
            check_name(account, "account")
            check_name(stream, "stream")
            is_bare = account == GLOBAL or self.store.account is not None
            found = self._labels[name] = stream if is_bare else f"{account}/{stream}"
            self._places[found] = place
        return found

    def _find(self, name: str) -> tuple[str, str]:
        account = self.store.account
        if self.wanted is not None:
            return place_of(self.store.path, self.wanted, account)
        if account is not None:
            return account, name.rpartition("/")[2]
        there = [one for one in self.store.folders if one.name == name]
        if there and all(one.account != GLOBAL for one in there):
            # Creating a second stream silently, or guessing, would mix messages of different accounts.
            candidates = " or ".join(one.full_name for one in there)
            raise UsageError(
                f"stream {name} is of account {GLOBAL} here, and the store has {candidates}: choose with --account"
            )
        first, slash, rest = name.partition("/")
        return (first, rest) if slash else (GLOBAL, name)

    def __contains__(self, label: str) -> bool:
        account, stream = self._places[label]
        return stream in self.store.database(account)

    def get_stream(self, label: str) -> Stream:
        account, stream = self._places[label]
        return self.store.database(account).get_stream(stream)

    def make(self, label: str, subjects: list[str]) -> Stream:
        account, stream = self._places[label]
        return self.store.database(account).stream(stream, subjects=subjects)


class Importer:
    """One run. Always true: only whole batches of valid lines were committed."""

    def __init__(self, db: Targets, source: str, subjects: Sequence[str], skip_existing: bool) -> None:
        self.db, self.source, self.skip_existing = db, source, skip_existing
        self.subjects = list(subjects)
        self.done = Imported()
        self.line = 0  # the last line of the last stored batch

    def take(self, file: Iterable[bytes], advance: Advance) -> None:
        for batch, size in self.batches(file):
            parts = self.by_stream(batch)
            for name, lines in parts:
                self.check(name, lines)
            for name, lines in parts:
                self.store(name, lines)
            self.line = batch[-1][0]
            advance(size)
        for name in self.done.messages:
            self.db.get_stream(name).sync()

    def batches(self, file: Iterable[bytes]) -> Iterator[tuple[list[tuple[int, Line]], int]]:
        """Parsed lines with their numbers, a batch at a time, and their size in bytes."""
        numbered = enumerate(file, 1)
        while True:
            batch: list[tuple[int, Line]] = []
            size = 0
            for number, text in islice(numbered, BATCH_LINES):
                size += len(text)
                if not text.strip():
                    continue
                try:
                    batch.append((number, parse_line(text)))
                except ValueError as error:
                    raise BadLine(self.source, number, str(error)) from None
                if size > BATCH_BYTES:
                    break
            if batch:
                yield batch, size
            elif not size:
                return

    def by_stream(self, batch: list[tuple[int, Line]]) -> list[tuple[str, list[tuple[int, Line]]]]:
        found: dict[str, list[tuple[int, Line]]] = {}
        for number, line in batch:
            try:
                found.setdefault(self.db.label(line.stream), []).append((number, line))
            except PenstockError as error:
                raise BadLine(self.source, number, str(error)) from None
        return list(found.items())

    def so_far(self) -> str:
        stored = ", ".join(
            f"{name} stands at {self.db.get_stream(name).state().last_seq}" for name in self.done.messages
        )
        if not stored:
            return "; nothing was imported"
        return f"; imported up to line {self.line} ({stored}): mend the line and run again with --skip-existing"

    # One stream's lines of a batch.

    def check(self, name: str, lines: list[tuple[int, Line]]) -> None:
        """Reject the batch if a line is bad; create the stream, or add subjects to one that this import created."""
        for number, line in lines:
            if not is_valid_name(line.subject):
                raise BadLine(self.source, number, f"subject {line.subject!r}: {explain_subject(line.subject)}")
        stream = self.stream(name, lines)
        store = stream.store
        last_seq, last_time = store.index.last_seq, store.engine.last_time
        if self.skip_existing:
            self.done.skipped[name] = self.done.skipped.get(name, 0) + len(lines)
            lines[:] = [(number, line) for number, line in lines if line.seq > last_seq]
            self.done.skipped[name] -= len(lines)
        filters = Filters(list(stream.config.subjects))
        for number, line in lines:
            if line.seq <= last_seq:
                there = "not above the last of the stream" if line is lines[0][1] else "not above the line before"
                remedy = "" if line is not lines[0][1] else "; --skip-existing leaves out what is there"
                raise BadLine(self.source, number, f"seq {line.seq} is {there}, {last_seq} ({name}){remedy}")
            if line.time_ns < last_time:
                raise BadLine(
                    self.source,
                    number,
                    f"time_ns {line.time_ns} is before {last_time}: times of a stream do not go back",
                )
            if not filters.match(line.subject):
                mine = ", ".join(stream.config.subjects)
                raise BadLine(self.source, number, f"subject {line.subject!r} is not one of stream {name}'s: {mine}")
            last_seq, last_time = line.seq, line.time_ns

    def stream(self, name: str, lines: list[tuple[int, Line]]) -> Stream:
        if name in self.db and name not in self.done.created:
            return self.db.get_stream(name)
        if self.subjects:
            wanted = set(self.subjects)
        else:
            wanted = {derived_filter(line.subject) for _, line in lines}
        if name in self.done.created:
            wanted |= set(self.db.get_stream(name).config.subjects)
        try:
            stream = self.db.make(name, sorted(wanted))
        except PenstockError as error:
            raise BadLine(
                self.source,
                lines[0][0],
                f"stream {name} cannot have subjects {', '.join(sorted(wanted))}: {error}; name others with --subjects",
            ) from None
        if name not in self.done.created:
            self.done.created.append(name)
        return stream

    def store(self, name: str, lines: list[tuple[int, Line]]) -> None:
        stream = self.db.get_stream(name)
        store = stream.store
        assert isinstance(store, FileStore)
        self.done.messages.setdefault(name, 0)
        for run in _runs(lines):
            gap = run[0][1].seq - store.index.last_seq - 1
            if gap and store.index.last_seq == 0:
                store.compact(run[0][1].seq)  # the stream begins at this sequence
            elif gap:
                store.skip(gap)
                self.done.gaps[name] = self.done.gaps.get(name, 0) + gap
            self.append(name, stream, store, run)
        store.commit()

    def append(self, name: str, stream: Stream, store: FileStore, run: list[tuple[int, Line]]) -> None:
        """Store lines with consecutive sequences; their headers apply as in a publish, except for duplicates."""
        batch = Batch.raw([(one.seq, one.time_ns, one.subject, one.headers_b64, one.payload_b64) for _, one in run])
        marks: list[tuple[int, int, bytes | None, int]] = []
        for at, (_, line) in enumerate(run):
            raw = line.headers_b64
            if raw and b"Nats-" in raw:
                self.mark(stream, batch, at, line, raw, marks)
        taken = store.engine.append(batch, 0, batch.count, store.clock.now_ns())
        for seq, time, hashed, expiry in marks:
            if seq <= store.index.last_seq:
                store.note_id_and_expiry(seq, time, hashed, expiry)
                if hashed is not None:
                    stream.rules.remember_id(hashed, seq, time)
        self.done.messages[name] += taken
        if taken < batch.count:
            at, status = batch.refused(0, batch.count)[0]
            store.commit()
            raise BadLine(self.source, run[at][0], f"refused: {LIMITS.get(status, f'status {status}')}")

    def mark(
        self, stream: Stream, batch: Batch, at: int, line: Line, raw: bytes,
        marks: list[tuple[int, int, bytes | None, int]],
    ) -> None:  # fmt: skip
        msg_id = find(raw, b"Nats-Msg-Id")
        ttl = parse_ttl(find(raw, b"Nats-TTL") or b"") if stream.config.allow_msg_ttl else 0
        if not msg_id and not ttl:
            return
        batch.mark(at, bool(ttl), bool(msg_id), False)
        expiry = NEVER if ttl == TTL_NEVER else line.time_ns + ttl if ttl else 0
        marks.append((line.seq, line.time_ns, hash_id(msg_id) if msg_id else None, expiry))


def _runs(lines: list[tuple[int, Line]]) -> Iterator[list[tuple[int, Line]]]:
    """Runs of lines with consecutive sequences."""
    start = 0
    for at in range(1, len(lines) + 1):
        if at == len(lines) or lines[at][1].seq != lines[at - 1][1].seq + 1:
            yield lines[start:at]
            start = at


__all__ = ["BadLine", "Importer", "import_lines"]
