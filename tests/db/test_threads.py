"""Many threads on one stream: each caller gets its own ack for a message that can be read, syncs are shared, a close
loses nothing.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock.errors import StoreClosed
from penstock.testing import CrashDisk

THREADS = 8


def run_all(*works: Callable[[], None]) -> None:
    """Run each function in a thread, all at once; raise the first error."""
    start = threading.Barrier(len(works))

    def begin(work: Callable[[], None]) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(begin, work) for work in works]:
            done.result(120)


@pytest.mark.parametrize("kind", ["disk", "os", "lazy", "memory"])
def test_threads_publish_read_and_delete_at_once(root: Path, kind: str) -> None:
    acked: list[dict[int, bytes]] = [{} for _ in range(THREADS)]
    deleted: list[set[int]] = [set() for _ in range(THREADS)]
    storage = "memory" if kind == "memory" else "file"
    with penstock.open(root, durability="os" if kind == "memory" else kind) as db:
        stream = db.stream("S", subjects=["s.>"], max_bytes=100_000_000, storage=storage)

        def work(me: int) -> None:
            rng = random.Random(me)
            mine = acked[me]
            for step in range(60):
                if step % 3 == 0:
                    payload = b"%d one %d" % (me, step)
                    ack = stream.publish(f"s.{me}.{step % 5}", payload)
                    assert ack.seq not in mine
                    mine[ack.seq] = payload
                else:
                    payloads = [b"%d many %d %d" % (me, step, n) for n in range(20)]
                    for ack, payload in zip(
                        stream.publish_many([(f"s.{me}.many", payload) for payload in payloads]), payloads, strict=True
                    ):
                        mine[ack.seq] = payload
                seq = rng.choice(list(mine))
                if seq in deleted[me]:
                    with pytest.raises(penstock.PenstockError):
                        stream.get(seq)
                else:
                    assert stream.get(seq).data == mine[seq]
                if step % 5 == 0:
                    assert stream.delete(seq) is (seq not in deleted[me])
                    deleted[me].add(seq)
                if step % 10 == 0:
                    batch = set(rng.sample(list(mine), min(5, len(mine))))
                    assert stream.delete_many(batch) == len(batch - deleted[me])
                    deleted[me] |= batch
                    found = [msg.seq for msg in stream.read(f"s.{me}.>")]
                    assert found == sorted(mine.keys() - deleted[me])
                    assert sum(stream.subjects(f"s.{me}.*").values()) == len(found)
                    assert stream.pending(1, f"s.{me}.>") == len(found)

        run_all(*(lambda me=me: work(me) for me in range(THREADS)))
        everything = {seq: data for mine in acked for seq, data in mine.items()}
        assert len(everything) == sum(map(len, acked)) == THREADS * (20 + 40 * 20), "no sequence was given twice"
        assert sorted(everything) == list(range(1, len(everything) + 1))
        gone = set().union(*deleted)

        def check(stream: penstock.Stream) -> None:
            assert {msg.seq: msg.data for msg in stream.read()} == {
                seq: data for seq, data in everything.items() if seq not in gone
            }
            state = stream.state()
            assert (state.messages, state.last_seq) == (len(everything) - len(gone), len(everything))
            assert sum(stream.subjects().values()) == stream.pending(1) == state.messages

        check(stream)
    if storage == "file":
        with penstock.open(root) as db:
            check(db.stream("S"))


def test_threads_that_publish_at_once_share_their_syncs(root: Path) -> None:
    root.mkdir()
    disk = CrashDisk(root)
    with penstock.open(root, disk=disk) as db:
        stream = db.stream("S")
        stream.publish("S", b"the block is there")
        before = disk.calls["sync_file"]
        disk.sync_delay_us = 3_000

        def work() -> None:
            for _ in range(40):
                stream.publish("S", b"x")

        run_all(*[work] * THREADS)
        syncs = disk.calls["sync_file"] - before
        assert stream.state().messages == THREADS * 40 + 1
        assert syncs <= THREADS * 40 // 2, f"{syncs} syncs for {THREADS * 40} messages"


def test_one_id_from_many_threads_is_stored_once(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        acks: list[penstock.Ack] = []

        def work() -> None:
            acks.extend(stream.publish("S", b"", {"Nats-Msg-Id": str(n)}) for n in range(50))

        run_all(*[work] * THREADS)
        assert stream.state().messages == 50
        assert sum(not ack.duplicate for ack in acks) == 50 and len({ack.seq for ack in acks}) == 50


def test_a_sequence_that_many_expect_is_won_by_one(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        won: list[int] = []

        def work() -> None:
            for n in range(30):
                try:
                    won.append(stream.publish("S", b"", {"Nats-Expected-Last-Sequence": str(n)}).seq)
                except penstock.ApiError as error:
                    assert "wrong last sequence" in str(error)

        run_all(*[work] * THREADS)
        assert sorted(won) == list(range(1, len(won) + 1)) and stream.state().messages == len(won) >= 1


@pytest.mark.parametrize("durability", ["disk", "os", "lazy"])
def test_a_close_while_others_publish_loses_nothing_that_was_acknowledged(root: Path, durability: str) -> None:
    acked: list[list[tuple[int, bytes]]] = [[] for _ in range(THREADS)]
    refused = threading.Semaphore(0)
    enough = threading.Event()
    db = penstock.open(root, durability=durability)
    stream = db.stream("S", max_bytes=10_000_000)

    def work(me: int) -> None:
        n = 0
        try:
            while True:
                n += 1
                if me % 2:
                    payload = b"%d %d" % (me, n)
                    acked[me].append((stream.publish("S", payload).seq, payload))
                else:
                    batch = [("S", b"%d %d %d" % (me, n, k)) for k in range(50)]
                    acked[me] += [
                        (ack.seq, data) for ack, (_, data) in zip(stream.publish_many(batch), batch, strict=True)
                    ]
                    if n % 7 == 0:
                        stream.state()
                if n == 20:
                    enough.set()
        except StoreClosed:
            refused.release()

    threads = [threading.Thread(target=work, args=(me,)) for me in range(THREADS)]
    for thread in threads:
        thread.start()
    assert enough.wait(60)
    db.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for _ in range(THREADS):
        assert refused.acquire(blocking=False), "each was told that the store is closed, and nothing else"
    with penstock.open(root) as db:
        found = {msg.seq: msg.data for msg in db.stream("S").read()}
        for mine in acked:
            for seq, data in mine:
                assert found[seq] == data
        assert sorted(found) == list(range(1, len(found) + 1))


def test_followers_that_come_and_go_miss_no_wakeup(root: Path) -> None:
    """The list of followers changed during an iteration, which once left one of them asleep."""
    count = 300
    with penstock.open(root, durability="os") as db:
        stream = db.stream("S")
        done = threading.Event()

        def follow() -> None:
            found = stream.follow(start_seq=1, timeout=20)
            assert [next(found).seq for _ in range(count)] == list(range(1, count + 1))
            found.close()

        def come_and_go() -> None:
            while not done.is_set():
                assert list(stream.follow(timeout=0)) is not None

        def publish() -> None:
            for _ in range(count):
                stream.publish("S", b"")

        busy = threading.Thread(target=come_and_go)
        busy.start()
        try:
            run_all(publish, follow, follow, follow)
        finally:
            done.set()
            busy.join(30)


def test_a_failed_sync_is_told_to_all_whose_messages_were_in_it(root: Path) -> None:
    root.mkdir()
    disk = CrashDisk(root)
    with penstock.open(root, disk=disk) as db:
        stream = db.stream("S")
        stream.publish("S", b"first")
        disk.sync_delay_us = 2_000
        acked: list[tuple[int, bytes]] = []
        failed: list[bytes] = []

        def work(me: int) -> None:
            for n in range(30):
                payload = b"%d %d" % (me, n)
                try:
                    acked.append((stream.publish("S", payload).seq, payload))
                except penstock.StoreError:
                    failed.append(payload)

        for n in (7, 11):
            disk.fail_at(n, 5, kinds={"sync_file"})
        run_all(*(lambda me=me: work(me) for me in range(THREADS)))
        assert failed and len(acked) + len(failed) == THREADS * 30
        found = {msg.seq: msg.data for msg in stream.read()}
        assert found == {1: b"first", **dict(acked)} and len(dict(acked)) == len(acked)
        assert stream.publish("S", b"last").seq == max(found) + 1
        found = {msg.seq: msg.data for msg in stream.read()}
    with penstock.open(root) as db:
        assert {msg.seq: msg.data for msg in db.stream("S").read()} == found
