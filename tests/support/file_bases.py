"""The stores that the file fuzzer damages, each with its contents: one of every kind of file, small enough to be read
in milliseconds.

Everything but salts and ids is the same in every run, so that a case can be replayed from its seed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from penstock.db.adopt import root_of
from penstock.db.database import Database
from penstock.db.stage import Stage
from penstock.db.stream import Stream
from penstock.errors import StoreError
from penstock.store.file_store import FileStore
from penstock.store.open.adoption import Adoption
from penstock.store.write.batch import Batch
from penstock.store.write.truncation import Truncation
from penstock.testing import FakeClock

BLOCK_SIZE = 3000
SECOND = 10**9
Content = tuple[str, bytes | None, bytes]
Files = dict[str, bytes]
FILTERS = ("s.1.>", "s.*.b", "s.2.a", "nobody")


@dataclass(slots=True)
class Base:
    """A store at rest: its files (below the store's directory) and the contents of its streams."""

    kind: str
    files: Files
    live: dict[int, Content] = field(default_factory=dict)
    published: dict[int, Content] = field(default_factory=dict)
    """Also what is gone again."""
    later: dict[int, Content] = field(default_factory=dict)
    """What an adoption that is finished by the next open adds."""
    consumers: tuple[str, ...] = ()


@contextmanager
def small_blocks() -> Iterator[None]:
    with patch("penstock.stream.stream.block_size", lambda config: BLOCK_SIZE):
        yield


def contents(stream: Stream, *filters: str) -> dict[int, Content]:
    found = stream.read(list(filters) or None)
    return {one.seq: (one.subject, one.raw_headers, one.data) for one in found}


def read_files(root: Path) -> Files:
    return {str(one.relative_to(root)): one.read_bytes() for one in sorted(root.rglob("*")) if one.is_file()}


def write_files(root: Path, files: Files) -> None:
    """Make `root` hold exactly these files."""
    shutil.rmtree(root, ignore_errors=True)
    made: set[str] = set()
    for name, data in files.items():
        path = os.path.join(root, name)
        folder = os.path.dirname(path)
        if folder not in made:
            os.makedirs(folder, 0o700, exist_ok=True)
            made.add(folder)
        with open(path, "wb") as file:
            file.write(data)
    os.makedirs(root / "$G" / "S" / "blocks", 0o700, exist_ok=True)


def message(number: int) -> tuple[str, bytes, dict[str, str] | None]:
    headers = {"Nats-Msg-Id": f"id-{number}"} if number % 3 == 0 else None
    if number % 10 == 4:
        headers = {"Nats-TTL": "876000h"}
    if number % 17 == 5:
        headers = {"Nats-TTL": "never", "X": str(number)}
    return (
        f"s.{number % 4}.{'abcdefgh'[number % 8]}",
        b"%d " % number + bytes([65 + number % 26]) * (number % 70),
        headers,
    )


def fill(stream: Stream, clock: FakeClock, start: int, stop: int, published: dict[int, Content]) -> None:
    for at in range(start, stop, 8):
        clock.advance(SECOND)
        stream.publish_many([message(number) for number in range(at, min(at + 8, stop))])
    published |= contents(stream)


def busy(db: Database, clock: FakeClock, published: dict[int, Content]) -> Stream:
    """Several blocks, with control records of every kind."""
    stream = db.stream("S", subjects=["s.>"], allow_msg_ttl=True, allow_rollup_hdrs=True, max_msgs_per_subject=60)
    fill(stream, clock, 0, 24, published)
    one = stream.consumer("one", filter="s.1.>", ack_wait="30s")
    stream.consumer("two", ack_policy="all", max_deliver=3)
    for got in one.fetch(4, timeout=0)[:2]:
        got.ack()
    stream.delete(2)
    stream.erase(5)
    fill(stream, clock, 24, 70, published)
    for seq in range(30, 36):
        stream.delete(seq)
    stream.purge("s.3.d")
    stream.publish("s.0.a", b"rolled", {"Nats-Rollup": "sub"})
    stream.purge(seq=8)
    fill(stream, clock, 70, 120, published)
    stream.consumer("two").fetch(9, timeout=0)[-1].ack()
    stream.delete(100)
    return stream


def ended(db: Database, kind: str) -> None:
    """Leave the store as a killed process would, or stop it cleanly."""
    if kind == "killed":
        for stream in db._streams.values():
            assert isinstance(stream.store, FileStore)
            stream.store.abandon()
            stream.consumers.abandon()
        db._streams.clear()
    db.close()


def stage(root: Path, job: str, batch: int, count: int) -> dict[str, object]:
    made = Stage(root_of(root, "S"), job, f"task-{batch}")
    made.append(Batch.of([(f"s.1.staged{n % 3}", b"staged %d " % n + bytes(40)) for n in range(count)]))
    return made.finish()


def make_base(kind: str, room: Path) -> Base:
    """`stopped`, `bare` (stopped, without checkpoint and HEAD), `killed`, `adopt` and `append` (an adoption that was
    decided and not done), `truncate` (a truncation that was interrupted).
    """
    root, clock = room / "base", FakeClock(1_700_000_000 * SECOND)
    shutil.rmtree(root, ignore_errors=True)
    with small_blocks():
        db = Database(root, clock=clock)
        db.stream("T", subjects=["t.>"]).publish("t.1", b"another stream")
        published: dict[int, Content] = {}
        stream = busy(db, clock, published)
        live = contents(stream)
        later: dict[int, Content] = {}
        if kind in ("adopt", "append"):
            live, later = decide(db, root, clock, kind)
        if kind == "truncate":
            live = cut_short(stream)
        ended(db, "killed" if kind in ("killed", "adopt", "append", "truncate") else "stopped")
    files = read_files(root)
    shutil.rmtree(root)
    files = {name: data for name, data in files.items() if name != "LOCK" and not name.endswith(".tmp")}
    if kind == "bare":
        del files["$G/S/CHECKPOINT"], files["$G/S/HEAD"]
    return Base(kind, files, live, published | live, later, ("one", "two"))


def decide(db: Database, root: Path, clock: FakeClock, kind: str) -> tuple[dict[int, Content], dict[int, Content]]:
    """An adoption that stops right after ADOPT was written: the messages before it, and the messages that it adds."""
    stream = db.get_stream("S")
    # An earlier, finished adoption leaves BATCHES.
    stream.adopt("q-1", [stage(root, "q-1", 1, 40)], query="q", batch=1)
    live = contents(stream)
    infos = [stage(root, "q-2", 2, 90 if kind == "adopt" else 3)]

    def stop(*args: object, **more: object) -> None:
        raise StoreError("stopped here")

    name = "move" if kind == "adopt" else "_append"
    try:
        with patch.object(Adoption, name, stop):
            stream.adopt("q-2", infos, query="q", batch=2)
    except StoreError:
        pass
    first = max(max(live), stream.state().last_seq) + 1
    count = 90 if kind == "adopt" else 3
    later = {first + n: (f"s.1.staged{n % 3}", None, b"staged %d " % n + bytes(40)) for n in range(count)}
    return live, later


def cut_short(stream: Stream) -> dict[int, Content]:
    """A truncation that stops right after TRUNCATE was written."""
    store = stream.store
    assert isinstance(store, FileStore)
    seq = 90

    def stop(*args: object, **more: object) -> None:
        raise StoreError("stopped here")

    live = {one: content for one, content in contents(stream).items() if one <= seq}
    try:
        with patch.object(Truncation, "cut_files", stop):
            store.truncate(seq)
    except StoreError:
        pass
    return live


KINDS = ("stopped", "bare", "killed", "adopt", "append", "truncate")
