"""Make a golden store: what this version writes, to be read by every later one. Run once per format version.

    .venv/bin/python tools/make_golden.py tests/golden/format-1

Salts and ids are random, so the files differ from run to run; what they hold does not. An existing folder is left
alone.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from penstock.store.base import NEVER
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.open.recovery import hash_id
from penstock.store.write.batch import Batch
from penstock.testing.clock import FakeClock

SECOND = 10**9
STREAM_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
LIMITS = {"block_size": 2000}


def put(store: FileStore, subject: str, payload: bytes, headers: bytes | None = None) -> int:
    """Store one message as a stream does: its headers' id and TTL are marked and noted."""
    batch = Batch.one(subject, payload, headers)
    has_id, has_ttl = b"Nats-Msg-Id: " in (headers or b""), b"Nats-TTL: " in (headers or b"")
    batch.mark(0, has_ttl, has_id, False)
    store.append(batch)
    if headers and (has_id or has_ttl):
        values = dict(line.split(b": ", 1) for line in headers.split(b"\r\n") if b": " in line)
        ttl = values.get(b"Nats-TTL", b"0")
        now = store.clock.now_ns()
        expiry = NEVER if ttl == b"never" else now + int(ttl) * SECOND if has_ttl else 0
        store.note_id_and_expiry(batch.seq(0), now, hash_id(values[b"Nats-Msg-Id"]) if has_id else None, expiry)
    store.commit()
    return batch.seq(0)


def fill(store: FileStore, clock: FakeClock) -> None:
    """Three blocks with some of everything that a block can hold."""
    for n in range(12):
        put(store, f"orders.{n % 4}", b"order %d " % n * 3)
        clock.advance(SECOND)
    put(store, "orders.1", b"", b"NATS/1.0\r\nNats-Msg-Id: id-13\r\n\r\n")
    put(store, "ttl.short", b"gone after an hour", b"NATS/1.0\r\nNats-TTL: 3600\r\n\r\n")
    put(store, "ttl.never", b"stays", b"NATS/1.0\r\nNats-TTL: never\r\n\r\n")
    store.skip(3)
    put(store, "größe.ß", b"\x00\xff" * 20, b"NATS/1.0\r\nA: b\r\nA: c\r\n\r\n")
    store.remove(4)
    store.remove_many([6, 7, 8, 10])
    put(store, "secret", b"THE-ERASED-PAYLOAD" * 4, b"NATS/1.0\r\nS: THE-ERASED-HEADER\r\n\r\n")
    store.erase(20)
    clock.advance(SECOND)
    put(store, "large", bytes(range(256)) * 10)
    for n in range(20):
        put(store, f"items.{n % 3}", b"item %d" % n, b"NATS/1.0\r\nNats-Msg-Id: item-%d\r\n\r\n" % n)
    store.compact(2)
    store.purge_ex("items.1", 0, 2)


def manifest(store: FileStore, clock: FakeClock) -> dict[str, Any]:
    state = store.state()
    assert state.deleted is not None
    return {
        "format": 1,
        "stream_id": STREAM_ID.hex(),
        "limits": LIMITS,
        "now_ns": clock.now_ns(),
        "state": {
            name: getattr(state, name)
            for name in (
                "messages",
                "bytes",
                "first_seq",
                "last_seq",
                "first_time",
                "last_time",
                "num_subjects",
                "num_deleted",
            )
        },
        "deleted": [list(one) for one in state.deleted.ranges()],
        "skipped": [list(one) for one in store.skips.ranges()],
        "subjects": {name: [one.messages, one.first_seq, one.last_seq] for name, one in store.subjects_state().items()},
        "expiries": sorted([*map(list, store.wheel.entries()), *([seq, NEVER] for seq in store.exempt)]),
        "ids": [[seq, time, hashed.hex()] for seq, time, hashed, _ in store.recent_ids_and_expiries(0) if hashed],
        "messages": [
            [m.seq, m.time_ns, m.subject, None if m.raw_headers is None else m.raw_headers.hex(), m.data.hex()]
            for m in store.read()
        ],
    }


def main(target: Path) -> None:
    if target.exists():
        sys.exit(f"{target} is there already: golden files are kept for good")
    clock = FakeClock()
    work = target.with_suffix(".tmp")
    work.mkdir()
    store = FileStore(work / "stream", STREAM_ID, limits=Limits(**LIMITS), durability="disk", clock=clock)
    fill(store, clock)
    store.stop()
    # What must be read is what a second open reads: it has been through the files once.
    shutil.copytree(work / "stream", work / "again")
    again = FileStore(work / "again", STREAM_ID, limits=Limits(**LIMITS), durability="disk", clock=clock)
    told = manifest(again, clock)
    again.stop()
    shutil.rmtree(work / "again")
    (work / "manifest.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    work.rename(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
