"""Readers beside a writer, in this process and in another one: every message in order, never a torn one."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from penstock.errors import StoreLocked
from support.writer import payload

WRITER = Path(__file__).parents[1] / "support" / "writer.py"


class Writer:
    """A writing process and its output."""

    def __init__(self, root: Path, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WRITER), str(root), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.hear() == "ready"

    def hear(self) -> str:
        return self.process.stdout.readline().strip()

    def tell(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def close(self) -> int:
        if self.process.poll() is None:
            self.process.stdin.close()
        code = self.process.wait(60)
        self.process.stdout.close()
        if not self.process.stdin.closed:
            self.process.stdin.close()
        return code


@contextmanager
def writing(root: Path, *arguments: object) -> Iterator[Writer]:
    writer = Writer(root, *arguments)
    try:
        yield writer
    finally:
        writer.process.kill() if sys.exc_info()[0] else None
        writer.close()


def check_message(msg: penstock.Message) -> None:
    """Check that a message is whole: its payload contains its sequence."""
    number = msg.data.split()[0] if msg.subject != "end" else b""
    if msg.subject == "keep.x":
        assert msg.data == payload(int(number))
    elif msg.subject.startswith("junk."):
        count = int(msg.data[5:].partition(b"j")[0])
        assert msg.data == b"junk %d" % count * 10
    else:
        assert (msg.subject, msg.data) == ("end", b"")


# In the same process.


def test_a_follower_in_another_thread_sees_what_is_published(root: Path) -> None:
    with penstock.open(root, durability="os") as db:
        stream = db.stream("S", subjects=["s.>"])
        stream.publish("s.before", b"")
        found: list[int] = []
        half = threading.Event()
        follower = stream.follow("s.a.*")  # it begins here, not at its first request

        def follow() -> None:
            for msg in follower:
                found.append(msg.seq)
                if len(found) == 250:
                    half.set()
                if msg.data == b"end":
                    return

        thread = threading.Thread(target=follow)
        expected = [stream.publish("s.a.0", b"").seq]
        thread.start()
        for n in range(500):
            expected += [ack.seq for ack in stream.publish_many([("s.a.x", b"%d" % n), ("s.b.x", b"")])][:1]
            if n == 400:
                assert half.wait(30)
        expected.append(stream.publish("s.a.end", b"end").seq)
        thread.join(30)
        assert found == expected


def test_a_follower_ends_after_its_timeout_and_begins_where_it_is_told(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        stream.publish_many([("S", b"%d" % n) for n in range(5)])
        assert [msg.seq for msg in stream.follow(timeout=0.01)] == []
        assert [msg.seq for msg in stream.follow(start_seq=4, timeout=0.01)] == [4, 5]
        assert [msg.seq for msg in stream.follow(since="-1h", timeout=0.01)] == [1, 2, 3, 4, 5]
        assert [msg.seq for msg in stream.follow(start_seq=99, timeout=0.01)] == []
        later = stream.follow(start_seq=7, timeout=0.01)
        stream.publish_many([("S", b""), ("S", b"")])
        assert [msg.seq for msg in later] == [7]
        assert stream.listeners == []


def test_a_reader_in_the_same_process_looks_again_at_each_question(root: Path) -> None:
    """A read-only handle once answered `get` and `last` with the state from when it was opened."""
    with penstock.open(root) as db, penstock.open(root, read_only=True) as beside:
        stream = db.stream("S", subjects=["s.*"])
        reader = beside.stream("S")
        for n in range(1, 20):
            stream.publish(f"s.{n}", b"%d" % n)
            assert reader.get(n).data == b"%d" % n and reader.last().seq == n
            assert reader.state().messages == n and len(list(reader.read(until="+1h"))) == n
            assert len(list(reader.read(since="-1h"))) == n and reader.pending(1) == n
            assert len(reader.to_arrow()) == n and reader.last(f"s.{n}").seq == n
        stream.delete(5)
        with pytest.raises(penstock.MessageDeleted):
            reader.get(5)
        stream.erase(6)
        assert [msg.seq for msg in reader.read(stop_seq=8)] == [1, 2, 3, 4, 7]
        stream.purge()
        assert reader.last() is None and reader.state().first_seq == 20


# Beside another process.


@pytest.mark.parametrize("durability", ["disk", "os", "lazy"])
def test_a_reader_follows_a_writing_process_without_gaps(root: Path, durability: str) -> None:
    """20,000 messages in blocks of 32,000 bytes, with deletes, erases and purges among them."""
    count = 20_000
    with writing(root, durability, "churn", count) as writer, penstock.open(root, read_only=True) as db:
        stream = db.stream("S")
        follower = stream.follow(start_seq=1, timeout=60)
        writer.tell()
        kept, last_seq = 0, 0
        for msg in follower:
            check_message(msg)
            assert msg.seq > last_seq
            last_seq = msg.seq
            if msg.subject == "keep.x":
                assert msg.data == payload(kept), f"message {kept} at sequence {msg.seq}"
                kept += 1
            if msg.subject == "end":
                break
        assert kept == count
        assert writer.hear() == "under way" and writer.hear() == f"done {count}"
        assert stream.subjects("keep.x") == {"keep.x": count} and stream.last("keep.x").data == payload(count - 1)
        whole = list(stream.read())
        assert sum(msg.subject == "keep.x" for msg in whole) == count and len(whole) == stream.state().messages
        assert not [finding for finding in stream.findings if finding.kind != "torn tail"], stream.findings
        del follower, whole


def test_a_reader_beside_a_stream_that_drops_its_oldest_sees_only_whole_messages(root: Path) -> None:
    with writing(root, "os", "limited", 20_000) as writer, penstock.open(root, read_only=True) as db:
        stream = db.stream("S")
        before = len(os.listdir("/proc/self/fd"))
        writer.tell()
        last_seq = 0
        for seen, msg in enumerate(stream.follow(start_seq=1, timeout=60)):
            check_message(msg)
            assert msg.seq > last_seq
            last_seq = msg.seq
            if seen % 50 == 0:
                newest = stream.last("keep.x")
                assert newest is not None
                check_message(newest)
                rest = [one.seq for one in stream.read("keep.*")]
                assert rest == sorted(set(rest))
            if msg.subject == "end":
                break
        assert writer.hear() == "under way" and writer.hear() == "done 20000"
        state = stream.state()
        assert state.bytes <= 100_000 and state.last_seq == last_seq and state.lost == []
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) - before < 100, "descriptors of blocks that went are closed"


def test_a_table_beside_a_writer_is_whole_and_only_grows(root: Path) -> None:
    with writing(root, "os", "churn", 20_000) as writer, penstock.open(root, read_only=True) as db:
        stream = db.stream("S")
        writer.tell()
        assert writer.hear() == "under way"
        done = threading.Event()
        waiting = threading.Thread(target=lambda: (writer.hear(), done.set()))
        waiting.start()
        rows = tables = 0
        while True:
            is_last = done.is_set()
            table = stream.to_arrow("keep.*", columns=["seq", "payload"])
            payloads = table["payload"].to_pylist()
            assert payloads == [payload(n) for n in range(len(payloads))]
            assert len(payloads) >= rows
            seqs = table["seq"].to_pylist()
            assert seqs == sorted(set(seqs))
            rows = len(payloads)
            tables += 1
            if is_last:
                break
        waiting.join(60)
        assert rows == 20_000 and tables > 1


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_reader_lives_through_the_death_of_the_writer_and_its_return(root: Path, durability: str) -> None:
    epochs: list[int] = []
    with penstock.open(root) as db:
        db.stream("S", subjects=["keep.*", "junk.*", "end"])
    with penstock.open(root, read_only=True) as db:
        stream = db.stream("S")
        followed = follower_seqs(stream.follow(start_seq=1, timeout=30))
        next_seq = 1
        for _ in range(3):
            with writing(root, durability, "forever") as writer:
                writer.tell()
                acked = 0
                for _ in range(60):
                    acked = int(writer.hear())
                for seq in range(next_seq, acked + 1):
                    assert next(followed) == seq
                next_seq = acked + 1
                writer.kill()
                acked = max([acked, *map(int, writer.process.stdout.read().split("\n")[:-1])])
            assert stream.get(acked).data == payload(acked - 1), "what was acknowledged is there"
            last_seq = stream.state().last_seq
            assert last_seq >= acked and [msg.seq for msg in stream.read()] == list(range(1, last_seq + 1))
            with penstock.open(root, read_only=True) as other:
                assert other.stream("S").state().last_seq == last_seq
            epochs.append(stream.view().epoch)
        with penstock.open(root) as again:
            end = again.stream("S").publish("end", b"").seq
            assert end > last_seq, "what was written and not acknowledged may be there too"
            for seq in range(next_seq, end + 1):
                assert next(followed) == seq
            epochs.append(stream.view().epoch)
        assert epochs == sorted(set(epochs)), "each unclean end begins a new epoch"


def follower_seqs(found: Iterator[penstock.Message]) -> Iterator[int]:
    for msg in found:
        check_message(msg)
        yield msg.seq


def test_a_second_writer_learns_who_has_the_store(root: Path) -> None:
    with writing(root, "os", "idle") as writer:
        with pytest.raises(StoreLocked) as caught:
            penstock.open(root)
        pid = writer.process.pid
        assert caught.value.holder["pid"] == pid
        assert f"pid {pid} " in str(caught.value) and str(WRITER) in str(caught.value)
        with penstock.open(root, read_only=True) as db:
            assert db.streams() == ["S"]
        writer.kill()
        penstock.open(root).close()


def test_reading_many_blocks_needs_few_descriptors(root: Path) -> None:
    """Each block that was read once kept its file open: a long stream used up the descriptors."""
    script = f"""
import resource, penstock, penstock.stream.config
penstock.stream.config.BLOCK_SIZE_MAX = 32_000
with penstock.open({str(root)!r}, durability="os") as db:
    db.stream("S").publish_many([("S", b"x" * 1000)] * 10_000)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
for read_only in (False, True):
    with penstock.open({str(root)!r}, read_only=read_only) as db:
        stream = db.stream("S")
        print(sum(1 for _ in stream.read()))
        print(sum(stream.get(seq).seq == seq for seq in range(1, 10_001, 10)))
        print(len(stream.to_arrow()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["10000", "1000", "10000"] * 2
