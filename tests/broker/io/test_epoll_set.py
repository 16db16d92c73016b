"""EpollSet: real ones, as the loop looks at them: reads, writes that must wait, every kind of end."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.broker.io.epoll_set import EpollSet, Socket
from penstock.broker.routing.link import Link
from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist
from penstock.broker.streams.ingest import Ingest

LARGE = 8 << 20  # more than a socket takes at once


class Place:
    """A loop, its sockets, and pairs of them: our end with its protocol, and the peer's."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.sockets = EpollSet(self.loop)
        self.sockets.poll_ns = self.sockets.end_ns = 10**12  # however busy the machine is: all in one turn
        self.router = Router()
        self.router.on_tick = lambda: None
        self.sublist = Sublist()
        self.peers: list[socket.socket] = []

    def pair(self, protocol: Any) -> tuple[Socket, socket.socket]:
        ours, peer = socket.socketpair()
        for end in (ours, peer):
            end.setblocking(False)
        self.peers.append(peer)
        return Socket(self.sockets, ours, protocol), peer

    def run(self) -> None:
        """What was called soon."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.sockets.poll()
            self.run()

    def close(self) -> None:
        self.sockets.close()
        self.run()
        for peer in self.peers:
            peer.close()
        self.loop.close()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.close()


class Told:
    """A protocol that is handed what was read."""

    def __init__(self, on_data: Callable[[bytes], None] | None = None) -> None:
        self.data = b""
        self.events: list[Any] = []
        self.on_data = on_data

    def connection_made(self, transport: Socket) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.on_data is not None:
            self.on_data(data)

    def eof_received(self) -> None:
        self.events.append("eof")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append(error)


class Straight(Link):
    """A client whose commands the router takes straight from the socket."""

    is_straight = True

    def __init__(self, place: Place) -> None:
        super().__init__(place.router, 1)
        self.is_verbose = self.is_pedantic = False
        self.events: list[Any] = []
        self.join("account", place.sublist)

    def connection_made(self, transport: Socket) -> None:
        self.transport = transport

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append(error)
        self.forget_subs()

    def connected(self, text: bytes) -> None:
        self.events.append(text)

    def faulted(self, fault: int, snippet: bytes) -> None:
        raise RuntimeError("no command")


def read_all(peer: socket.socket) -> bytes:
    """What is there now."""
    taken = b""
    while True:
        try:
            part = peer.recv(1 << 20)
        except (BlockingIOError, ConnectionResetError):  # reset: we had said what was not read
            return taken
        if not part:
            return taken
        taken += part


def is_ended(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False


# In.


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4000), min_size=1, max_size=12), st.lists(st.integers(0, 200_000), max_size=3))
def test_a_link_reads_commands_cut_anywhere(cuts: list[int], sizes: list[int]) -> None:
    place = Place()
    try:
        link = Straight(place)
        link.max_payload = 1 << 20
        _, peer = place.pair(link)
        said = b"SUB a.> 1\r\n" + b"".join(b"PUB a.b %d\r\n%b\r\n" % (size, b"x" * size) for size in sizes)
        said += b"CONNECT {}\r\n"
        at = 0
        while at < len(said):
            at += peer.send(said[at : at + (cuts.pop() if cuts else 60_000)])
            place.look()
        place.look(3)
        assert link.events == [b"{}"]
        assert link.in_msgs == len(sizes) and link.in_bytes == sum(sizes)
        received = link.take_out()
        assert received == b"".join(b"MSG a.b 1 %d\r\n%b\r\n" % (size, b"x" * size) for size in sizes)
    finally:
        place.close()


def test_all_that_have_something_are_read_in_one_look(place: Place) -> None:
    told = [Told() for _ in range(100)]
    peers = [place.pair(each)[1] for each in told]
    for n, peer in enumerate(peers):
        if n % 3:
            peer.send(b"%d" % n)
    assert place.sockets.poll() == sum(1 for n in range(100) if n % 3)
    assert [each.data for each in told] == [b"%d" % n if n % 3 else b"" for n in range(100)]


def test_what_is_paused_is_not_read_until_it_goes_on(place: Place) -> None:
    told = Told()
    transport, peer = place.pair(told)
    transport.pause_reading()
    peer.send(b"now")
    place.look()
    assert told.data == b""
    peer.close()  # while nobody listens: noticed afterwards, and nothing spins on it
    assert place.sockets.poll() == 0
    transport.resume_reading()
    place.look(2)
    assert told.data == b"now"
    assert told.events == ["eof", None]


def test_another_protocol_takes_over(place: Place) -> None:
    link = Straight(place)
    transport, peer = place.pair(Told(lambda _: transport.set_protocol(link)))
    peer.send(b"hello")
    place.look()
    peer.send(b"CONNECT {}\r\n")
    place.look()
    assert link.events == [b"{}"]


def test_a_descriptor_of_somebody_else_is_told_of(place: Place) -> None:
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        place.sockets.watch(fd)
        assert place.sockets.poll() == 0 and not place.sockets.is_signalled
        os.eventfd_write(fd, 1)
        assert place.sockets.poll(1_000_000) == 1 and place.sockets.is_signalled
        os.eventfd_read(fd)
        assert place.sockets.poll(1_000) == 0 and not place.sockets.is_signalled
    finally:
        os.close(fd)


def test_a_look_from_within_a_look_does_nothing(place: Place) -> None:
    found: list[int] = []
    first, second = Told(lambda _: found.append(place.sockets.poll())), Told()
    for each in (first, second):
        place.pair(each)[1].send(b"x")
    assert place.sockets.poll() == 2
    assert found == [0]
    assert (first.data, second.data) == (b"x", b"x")


def test_what_another_thread_wants_first_is_done_before_anything_is_read(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    happened: list[str] = []
    for n in range(3):
        told = Told(lambda _, n=n: (happened.append(f"read {n}"), place.sockets.first.append((happened.append, (n,)))))
        place.pair(told)[1].send(b"x")
    place.sockets.first.append((happened.append, ("first",)))
    place.sockets.first.append((lambda: 1 // 0, ()))
    assert place.sockets.poll() == 7
    assert happened == ["first", "read 0", 0, "read 1", 1, "read 2"]
    assert "ZeroDivisionError" in caplog.text
    assert place.sockets.poll(10**9) == 1, "it does not look again while there is something"
    assert happened[-1] == 2


class Chain:
    """Clients that publish one after the other: each when the look before has read the one before it."""

    def __init__(self, place: Place, *said: bytes) -> None:
        self.place, self.said = place, list(said)
        self.ingest = Ingest()
        place.router.capture(place.sublist, self.ingest, b"s.>")
        self.link = Straight(place)
        self.publisher = place.pair(self.link)[1]
        self.starter = place.pair(Told(lambda _: self.go_on()))[1]
        self.go_on()

    def go_on(self) -> None:
        if self.said:
            self.publisher.send(self.said.pop(0))
            self.starter.send(b"x")

    def gather(self, wanted: int, most_ns: int = 10**10) -> int:
        """How many were read."""
        self.place.sockets.gather(self.place.router, wanted, 1_000_000, most_ns)
        return self.link.in_msgs


PUB = b"PUB s.a 1\r\nx\r\n"


def test_gathering_ends_with_what_was_wanted(place: Place) -> None:
    chain = Chain(place, *[PUB] * 8)
    assert chain.gather(5) == 5
    assert chain.gather(5) == 5, "they are there"
    assert chain.gather(7) == 7


class Heard:
    """What stands behind a stream's ingest on a server."""

    def touched(self) -> None:
        """Nothing is to be handed over."""


def test_what_has_come_is_appended_while_others_are_waited_for(place: Place, tmp_path: Path) -> None:
    """Once all of it was appended only when the last one had come, for which everybody waits."""
    with penstock.open(tmp_path / "data") as db:
        stream = db.stream("S", subjects=["s.>"])
        chain = Chain(place, *[PUB] * 20)
        chain.ingest.engine, chain.ingest.rules = stream.store.engine, stream.rules
        chain.ingest.lock, chain.ingest.endpoint = stream.locked(), Heard()
        assert chain.gather(20) == 20
        assert stream.store.index.messages == 16
        assert place.router.take_batches() == 4
        assert stream.store.index.messages == 20


def test_gathering_ends_when_nothing_more_comes(place: Place) -> None:
    assert Chain(place, *[PUB] * 3).gather(5) == 3


def test_gathering_ends_when_its_time_is_over(place: Place) -> None:
    assert Chain(place, *[PUB] * 3).gather(3, most_ns=0) == 0


def test_gathering_ends_when_somebody_has_something_to_get(place: Place) -> None:
    assert Chain(place, PUB, PUB + b"PING\r\n", PUB, PUB).gather(4) == 2


def test_gathering_ends_when_it_is_told_of_something(place: Place) -> None:
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        place.sockets.watch(fd)
        chain = Chain(place, *[PUB] * 8)
        os.eventfd_write(fd, 1)
        assert chain.gather(5) == 1 and place.sockets.is_signalled
    finally:
        os.close(fd)


def test_after_its_time_a_look_ends_and_the_next_goes_on_where_it_was(place: Place) -> None:
    """What a hundred clients had sent was read in one go, however long that took; but nobody may be left out."""
    place.sockets.poll_ns = 0
    order: list[int] = []
    told = [Told(lambda data, n=n: order.append(n)) for n in range(5)]  # type: ignore[misc]
    pairs = [place.pair(one) for one in told]
    for _ in range(4):
        for _, peer in pairs:
            peer.send(b"x" * 65_536)  # a read takes as much: there is always more
    while len(order) < 20:
        before = len(order)
        place.sockets.poll()
        assert len(order) == before + 1
    for start in range(0, 20, 5):
        assert sorted(order[start : start + 5]) == [0, 1, 2, 3, 4]


def test_a_look_that_ends_early_has_heard_of_commits(place: Place) -> None:
    place.sockets.poll_ns = 0
    pairs = [place.pair(Told()) for _ in range(3)]
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        place.sockets.watch(fd)
        for _, peer in pairs:
            peer.send(b"x")
        os.eventfd_write(fd, 1)
        place.sockets.poll()
        assert place.sockets.is_signalled
    finally:
        os.close(fd)


def test_of_many_that_end_a_few_are_told_in_one_turn(place: Place) -> None:
    """Five thousand that went at once were all ended before anybody else was read: 0.2 s."""
    place.sockets.end_ns = 0
    told = [Told() for _ in range(10)]
    pairs = [place.pair(one) for one in told]
    other = Told()
    _, speaker = place.pair(other)
    for _, peer in pairs:
        peer.close()
    speaker.send(b"x")
    place.look()
    assert other.data == b"x"
    assert sum(len(one.events) for one in told) <= 2
    for _ in range(40):
        place.run()
    assert all(one.events == ["eof", None] for one in told)


# Out.


def test_what_the_socket_does_not_take_waits_in_order(place: Place) -> None:
    told = Told()
    transport, peer = place.pair(told)
    parts = [bytes([n]) * (LARGE // 16) for n in range(16)]
    for part in parts:
        transport.write(part)
    assert told.events == ["pause"]
    left = transport.get_write_buffer_size()
    assert 0 < left < LARGE
    taken = b""
    while len(taken) < LARGE:
        taken += read_all(peer)
        place.look()
        assert transport.get_write_buffer_size() <= left
        left = transport.get_write_buffer_size()
    assert taken == b"".join(parts)
    assert told.events == ["pause", "resume"]
    transport.write(b"more")
    assert peer.recv(10) == b"more"


# Ends.


def test_a_close_waits_until_all_is_sent(place: Place) -> None:
    told = Told()
    transport, peer = place.pair(told)
    transport.write(b"x" * LARGE)
    transport.close()
    assert transport.is_closing()
    peer.send(b"too late")
    taken = 0
    while taken < LARGE:
        taken += len(read_all(peer))
        place.look()
    assert told.data == b""
    assert told.events[-1] is None and told.events.count(None) == 1
    assert is_ended(peer)


@pytest.mark.parametrize("end", ["close", "abort"])
def test_an_end_is_told_once_and_later(place: Place, end: str) -> None:
    told = Told()
    transport, peer = place.pair(told)
    getattr(transport, end)()
    assert told.events == []  # not from within the call
    transport.close()
    transport.abort()
    transport.write(b"nobody gets this")
    place.run()
    assert told.events == [None]
    transport.pause_reading()
    transport.resume_reading()  # of no use, and harmless
    place.look()
    assert is_ended(peer)


def test_abort_throws_away_what_waits(place: Place) -> None:
    told = Told()
    transport, peer = place.pair(told)
    transport.write(b"x" * LARGE)
    transport.abort()
    place.run()
    assert transport.get_write_buffer_size() == 0
    assert told.events == ["pause", None]
    assert len(read_all(peer)) < LARGE


@pytest.mark.parametrize("writes", [False, True])
def test_a_reset_is_an_error(place: Place, writes: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    ours.setblocking(False)
    told = Told()
    transport = Socket(place.sockets, ours, told)
    if writes:
        transport.pause_reading()
        while not transport.get_write_buffer_size():
            transport.write(b"x" * LARGE)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    place.look()
    error = told.events[-1]
    assert isinstance(error, OSError) and error.errno in (errno.ECONNRESET, errno.EPIPE)


def test_a_protocol_that_fails_costs_only_its_own_connection(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    def fail(data: bytes) -> None:
        raise RuntimeError("on purpose")

    bad, link, good = Told(fail), Straight(place), Told()
    for protocol, said in ((bad, b"x"), (link, b"nonsense\r\n"), (good, b"x")):
        place.pair(protocol)[1].send(said)
    place.look()
    assert good.data == b"x" and good.events == []
    assert bad.events == [None] and link.events == [None]
    assert "on purpose" in caplog.text and "no command" in caplog.text


def test_one_that_cannot_be_begun_is_left_to_the_caller(place: Place) -> None:
    class Unwilling(Told):
        def connection_made(self, transport: Socket) -> None:
            raise RuntimeError("on purpose")

    ours, peer = socket.socketpair()
    told = Unwilling()
    with ours, peer:
        with pytest.raises(RuntimeError, match="on purpose"):
            Socket(place.sockets, ours, told)
        peer.send(b"x")
        assert place.sockets.poll() == 0
        place.sockets.close()
        place.run()
        assert told.events == [] and ours.fileno() >= 0


def test_one_may_end_another_that_the_same_look_has_found(place: Place) -> None:
    told: list[Told] = []

    def end_all(data: bytes) -> None:
        for each in told:
            each.transport.abort()

    for _ in range(20):
        told.append(Told(end_all))
        place.pair(told[-1])[1].send(b"x")
    place.look()
    assert sum(1 for each in told if each.data) == 1  # the first of them ended all
    assert all(each.events == [None] for each in told)
    place.look()


def test_with_the_sockets_all_of_them_end(place: Place) -> None:
    told = [Told() for _ in range(3)]
    peers = [place.pair(each)[1] for each in told]
    told[1].transport.write(b"x" * LARGE)
    place.sockets.close()
    place.run()
    assert [each.events[-1] for each in told] == [None, None, None]
    assert all(read_all(peer) is not None and is_ended(peer) for peer in peers)
    assert place.sockets.poll() == 0


def test_one_that_is_paused_ends_with_the_sockets_too(place: Place) -> None:
    told = Told()
    transport, _ = place.pair(told)
    transport.pause_reading()
    place.sockets.close()
    place.run()
    assert told.events == [None]


def test_the_descriptor_is_closed_with_the_end(place: Place) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        _, peer = place.pair(Told())
        peer.close()
    place.look()
    assert len(os.listdir("/proc/self/fd")) == before
