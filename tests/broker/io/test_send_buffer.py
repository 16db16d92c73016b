"""SendBuffer: what waits for a socket comes out as it went in, is never moved, and its memory comes back."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.io import send_buffer as pieces
from penstock.broker.io.send_buffer import PIECE_BYTES, SPARE_BYTES, SendBuffer
from penstock.broker.routing.link import Link
from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 3000), st.sampled_from([65_535, 65_536, 262_144, 300_000])), max_size=60))
def test_what_went_in_comes_out(sizes: list[int]) -> None:
    waiting, wanted = SendBuffer(), b""
    for n, size in enumerate(sizes):
        part = bytes([n % 251]) * size
        waiting.write(part)
        wanted += part
        assert waiting.size == len(wanted)
        if n % 7 == 6:
            taken = waiting.take()
            assert wanted.startswith(taken) and (taken or not wanted)
            wanted = wanted[len(taken) :]
    rest = b""
    while taken := waiting.take():
        rest += taken
    assert rest == wanted
    assert (waiting.size, waiting.count) == (0, 0)


def test_no_piece_is_larger_than_the_others_however_much_waits() -> None:
    """It was one buffer that doubled: with 44 MB waiting each growth copied tens of megabytes on the loop."""
    waiting = SendBuffer()
    for _ in range(3000):
        waiting.write(bytes(8192))
    assert waiting.capacity_max == PIECE_BYTES
    assert waiting.count < 3000 * 8192 // PIECE_BYTES + 16
    waiting.write(bytes(1 << 20))  # only what comes in one go has a piece of its own
    assert waiting.capacity_max == 1 << 20


def test_memory_of_those_who_do_not_read_comes_back_beside_the_loop() -> None:
    waiting = [SendBuffer() for _ in range(20)]
    before = resident()
    for n in range(20 * 2000):
        waiting[n % 20].write(bytes(8192))
    held = sum(one.size for one in waiting)
    assert resident() - before > held * 0.9
    freed = pieces.memory()[2]
    waiting.clear()
    pieces.wait_until_freed()
    spare, doomed, freed_now = pieces.memory()
    assert spare <= SPARE_BYTES and doomed == 0
    assert freed_now - freed >= held * 0.98 - SPARE_BYTES  # by the thread, all but the spares and the first small ones
    assert resident() - before < SPARE_BYTES * 2


def test_a_child_of_a_fork_has_a_thread_of_its_own() -> None:
    code = """if True:
        import os
        from penstock.broker.io import send_buffer as pieces
        def fill():
            waiting = pieces.SendBuffer()
            for _ in range(4000):
                waiting.write(bytes(8192))
            del waiting
            pieces.wait_until_freed()
            assert pieces.memory()[0] <= pieces.SPARE_BYTES
        fill()
        child = os.fork()
        if child == 0:
            fill()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        fill()
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


class Peer(Link):
    def flush(self) -> None:
        pass


class Exchange:
    """One who publishes, and others who hear it; nobody is sent anything before `flush`."""

    def __init__(self, subscribers: int) -> None:
        self.router, self.sublist = Router(), Sublist()
        self.router.on_tick = lambda: None
        self.publisher, *self.subscribers = (Peer(self.router, n + 1) for n in range(subscribers + 1))
        for peer in (self.publisher, *self.subscribers):
            peer.is_verbose = peer.is_pedantic = False
            peer.join("account", self.sublist)
        for subscriber in self.subscribers:
            subscriber.feed(b"SUB a 1\r\n")

    def publish(self, size: int, count: int) -> None:
        self.publisher.feed((b"PUB a %d\r\n%s\r\n" % (size, bytes(size))) * count)

    def read(self, data: bytes) -> int:
        """As a socket with that much waiting is read once: how much was taken."""
        view = self.publisher.get_buffer(-1)
        part = data[: len(view)]
        view[: len(part)] = part
        self.publisher.buffer_updated(len(part))
        return len(part)


@pytest.mark.parametrize("size", [10, 1000, 65_000, 100_000, 300_000])
def test_a_clients_buffer_is_sent_in_pieces_without_a_copy_of_the_rest(size: int) -> None:
    """A socket that takes a little at a time: all comes, in order, also where a piece is cut by it."""
    exchange = Exchange(1)
    subscriber = exchange.subscribers[0]
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    peer.setblocking(False)
    count = 3_000_000 // (size + 100)
    exchange.publish(size, count)
    wanted = b"MSG a 1 %d\r\n%s\r\n" % (size, bytes(size)) * count
    assert subscriber.pending == len(wanted)
    taken = b""
    while len(taken) < len(wanted):
        subscriber.fd = ours.fileno()
        subscriber.send_straight()
        while len(taken) < len(wanted):
            try:
                taken += peer.recv(50_000)
            except BlockingIOError:
                break
    assert taken == wanted
    assert subscriber.pending == 0
    ours.close()
    peer.close()


def test_one_whose_reads_take_long_is_read_less_of_at_a_time() -> None:
    """A read of 256 KiB became 26 MB in the buffers of a hundred others, and everybody waited for that."""
    exchange = Exchange(1)
    data = b"PUB a 1000\r\n%s\r\n" % bytes(1000) * 2000
    at = 0

    def read() -> int:
        nonlocal at
        taken = exchange.read(data[at:])
        at += taken
        exchange.subscribers[0].drop_out()
        return taken // 1024  # what waits of a command that is not whole takes some room

    exchange.router.read_ns = 0  # any read takes longer
    assert read() == 256
    assert max(read() for _ in range(5)) <= 8
    exchange.router.read_ns = 10**12
    reads = [read() for _ in range(8)]
    assert reads == sorted(reads)
    assert reads[0] <= 8 and reads[-1] >= 254


def test_a_large_message_is_read_in_one_go_also_where_reads_take_long() -> None:
    exchange = Exchange(100)
    exchange.router.read_ns = 0
    data = b"PUB a 900000\r\n%s\r\n" % bytes(900_000)
    reads = []
    for _ in range(3):
        at = 0
        while at < len(data):
            at += exchange.read(data[at:])
            reads.append(at)
        for subscriber in exchange.subscribers:
            assert subscriber.pending > 900_000
            subscriber.drop_out()
    assert len(reads) <= 9
