"""Many threads use one stream's consumers: whatever they do concurrently, each message is processed once, and the end
is clean.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

import penstock
from penstock import errors


class Crew:
    """Threads that repeat something until they are stopped; their exceptions are kept."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.raised: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def add(self, work: object, *arguments: object, allowed: tuple[type[BaseException], ...] = ()) -> None:
        def run() -> None:
            try:
                while not self.is_over.is_set():
                    work(*arguments)  # type: ignore[operator]
            except allowed:
                pass
            except BaseException as error:  # noqa: BLE001 - checked by the test
                self.raised.append(error)
                self.is_over.set()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def stop(self) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a thread hangs"
        assert self.raised == []


@pytest.mark.parametrize("durability", ["disk", "os"])
@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
def test_naks_pauses_and_double_acks_from_all_sides_lose_nothing(root: Path, durability: str, retention: str) -> None:
    rng = random.Random(7)
    total, done, lock, is_done = 400, Counter[int](), threading.Lock(), threading.Event()
    with penstock.open(root, durability=durability) as db:
        stream = db.stream("S", retention=retention)
        first = stream.consumer("c", max_ack_pending=30, ack_wait="20ms")
        crew = Crew()

        def consume(handle: penstock.Consumer) -> None:
            for msg in handle.fetch(rng.randint(1, 7), timeout=0.05):
                choice = rng.random()
                if choice < 0.15:
                    msg.nak(rng.choice([None, 0.001]))
                elif choice < 0.2:
                    msg.in_progress()
                elif choice < 0.25:
                    continue  # it is redelivered by itself
                elif msg.ack(sync=choice > 0.9):
                    with lock:
                        done[int(msg.data)] += 1
                        if len(done) == total:
                            is_done.set()

        def disturb() -> None:
            choice = rng.random()
            if choice < 0.3:
                first.pause(0.001)
            elif choice < 0.6:
                first.resume()
            else:
                stream.consumer("c", max_ack_pending=rng.randint(5, 40))
            first.info()
            threading.Event().wait(0.002)

        for _ in range(5):
            crew.add(consume, stream.consumer("c"))
        crew.add(disturb)
        for start in range(0, total, 20):
            stream.publish_many([("S", b"%d" % n) for n in range(start, start + 20)])
        assert is_done.wait(50) or crew.raised
        crew.stop()
        assert done == Counter(range(total)), "each is acknowledged once"
        info = first.info()
        assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, total)
        assert stream.state().messages == (total if retention == "limits" else 0)


@pytest.mark.parametrize("end", ["close", "delete"])
def test_the_end_comes_while_threads_fetch_and_wait_for_the_disk(root: Path, end: str) -> None:
    def consume(handle: penstock.Consumer) -> None:
        for msg in handle.fetch(5, timeout=None):
            msg.ack(sync=True)
            acks.release()

    for _ in range(5):
        db = penstock.open(root)
        stream = db.stream("S")
        stream.publish_many([("S", b"x")] * 500)
        crew, acks = Crew(), threading.Semaphore(0)
        for _ in range(4):
            crew.add(consume, stream.consumer("c"), allowed=(errors.StoreClosed,))
        for _ in range(20):
            assert acks.acquire(timeout=30)
        if end == "delete":
            db.delete_stream("S")
        db.close()
        crew.stop()


def test_consumers_come_and_go_while_others_read(root: Path) -> None:
    with penstock.open(root, durability="os") as db:
        stream = db.stream("S", subjects=["s.>"], retention="interest")
        kept = stream.consumer("kept", max_ack_pending=-1)
        crew, count = Crew(), threading.Semaphore(0)
        rng = random.Random(3)

        def come_and_go() -> None:
            with stream.consumer(filter=f"s.{rng.randint(0, 4)}", max_ack_pending=5) as mine:
                for msg in mine.fetch(3, timeout=0.001):
                    msg.ack()
            name = f"n{rng.randint(0, 3)}"
            try:
                stream.consumer(name, filter="s.0").fetch(2, timeout=0)
                stream.delete_consumer(name)
            except errors.ConsumerNotFound:  # another thread was faster
                return
            finally:
                count.release()

        for _ in range(4):
            crew.add(come_and_go)
        got = 0
        for n in range(200):
            stream.publish_many([(f"s.{n % 5}", b"%d" % n)] * 5)
            messages = kept.fetch(100, timeout=0)
            got += kept.ack(messages)
        for _ in range(20):
            assert count.acquire(timeout=30)
        crew.stop()
        for name in stream.consumers():
            if name != "kept":
                stream.delete_consumer(name)
        got += kept.ack(kept.fetch(10_000, timeout=0))
        assert got == 1000 and stream.consumers() == ["kept"] and stream.state().messages == 0
