"""The peers: LMDB, RocksDB and SQLite, each keeping (seq -> subject, time, payload) and an index by subject.

Peers receive prepared bytes (packed keys, values packed with a time), an advantage that Penstock does not get; a commit
is one transaction or write batch.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from bench.harness import Message

_SEQ = struct.Struct(">Q")
_FRONT = struct.Struct("<qH")  # time, size of the subject


class Peer(Protocol):
    """A store of numbered messages."""

    name: str

    def prepare(self, messages: list[Message]) -> Any:
        """Prepare the argument of `write`, with the next sequences; off the clock."""

    def write(self, prepared: Any) -> None: ...
    def getter(self) -> Callable[[int], object]:
        """A function that returns the message with a given sequence."""

    def iterate(self) -> Iterator[object]: ...
    def close(self) -> None: ...


class Lmdb:
    """py-lmdb: two databases, one transaction per batch; the index has sequences as sorted duplicates of a subject."""

    name = "LMDB"

    def __init__(self, path: Path, is_synced: bool) -> None:
        import lmdb

        # Without syncs a writable map saves the copy at commit; with syncs it would only add bytes to sync.
        self._env = lmdb.open(
            str(path), map_size=1 << 36, max_dbs=2, sync=is_synced, writemap=not is_synced, map_async=not is_synced
        )
        self._messages = self._env.open_db(b"messages")
        self._index = self._env.open_db(b"subjects", dupsort=True, dupfixed=True)
        self._seq = 0

    def prepare(self, messages: list[Message]) -> Any:
        rows, entries, now = [], [], time.time_ns()
        for subject, payload in messages:
            self._seq += 1
            key, name = _SEQ.pack(self._seq), subject.encode()
            rows.append((key, _FRONT.pack(now, len(name)) + name + payload))
            entries.append((name, key))
        return rows, sorted(entries)

    def write(self, prepared: Any) -> None:
        rows, entries = prepared
        with self._env.begin(write=True) as txn:
            with txn.cursor(self._messages) as cursor:
                cursor.putmulti(rows, append=True)
            with txn.cursor(self._index) as cursor:
                cursor.putmulti(entries)

    def getter(self) -> Callable[[int], object]:
        get, pack = self._env.begin(db=self._messages).get, _SEQ.pack
        return lambda seq: get(pack(seq))

    def iterate(self) -> Iterator[object]:
        with self._env.begin(db=self._messages) as txn, txn.cursor() as cursor:
            yield from cursor

    def close(self) -> None:
        self._env.close()


class RocksDb:
    """rocksdict in raw mode: one WriteBatch per batch, a second key per message as the index."""

    name = "RocksDB"

    def __init__(self, path: Path, is_synced: bool) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(rocksdict.DBCompressionType.none())  # random bytes do not compress
        options.increase_parallelism(2)
        self._db = rocksdict.Rdict(str(path), options)
        self._make_batch = rocksdict.WriteBatch
        self._write_options = rocksdict.WriteOptions()
        self._write_options.sync = is_synced
        self._seq = 0

    def prepare(self, messages: list[Message]) -> Any:
        found, now = [], time.time_ns()
        for subject, payload in messages:
            self._seq += 1
            seq, name = _SEQ.pack(self._seq), subject.encode()
            found.append((b"m" + seq, _FRONT.pack(now, len(name)) + name + payload))
            found.append((b"s" + name + b"\0" + seq, b""))
        return found

    def write(self, prepared: Any) -> None:
        batch = self._make_batch(raw_mode=True)
        put = batch.put
        for key, value in prepared:
            put(key, value)
        self._db.write(batch, self._write_options)

    def getter(self) -> Callable[[int], object]:
        get, pack = self._db.get, _SEQ.pack
        return lambda seq: get(b"m" + pack(seq))

    def iterate(self) -> Iterator[object]:
        for key, value in self._db.items(from_key=b"m"):
            if key >= b"s":  # type: ignore[operator]  # the index begins
                return
            yield key, value

    def close(self) -> None:
        self._db.close()


class Sqlite:
    """SQLite in WAL mode: one table, one index, executemany in one transaction per batch."""

    name = "SQLite"

    def __init__(self, path: Path, is_synced: bool) -> None:
        path.mkdir()
        self._db = sqlite3.connect(path / "messages.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if is_synced else 'OFF'}")
        self._db.execute("CREATE TABLE messages (seq INTEGER PRIMARY KEY, time INTEGER, subject TEXT, payload BLOB)")
        self._db.execute("CREATE INDEX by_subject ON messages (subject)")
        self._seq = 0

    def prepare(self, messages: list[Message]) -> Any:
        first, now = self._seq + 1, time.time_ns()
        self._seq += len(messages)
        return [(seq, now, subject, payload) for seq, (subject, payload) in enumerate(messages, first)]

    def write(self, prepared: Any) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", prepared)
        self._db.execute("COMMIT")

    def getter(self) -> Callable[[int], object]:
        execute = self._db.execute
        return lambda seq: execute("SELECT seq, time, subject, payload FROM messages WHERE seq = ?", (seq,)).fetchone()

    def iterate(self) -> Iterator[object]:
        return iter(self._db.execute("SELECT seq, time, subject, payload FROM messages ORDER BY seq"))

    def close(self) -> None:
        self._db.close()


PEERS: tuple[Callable[[Path, bool], Peer], ...] = (Lmdb, RocksDb, Sqlite)


def open_peers(folder: Path, is_synced: bool) -> list[Peer]:
    """Every peer that is installed, each in its own folder."""
    found = []
    for make in PEERS:
        try:
            found.append(make(folder / make.__name__.lower(), is_synced))
        except ImportError as error:
            print(f"  (without {make.__name__}: {error}; pip install penstock[bench])")
    return found
