"""SendRing sends to many clients in one system call. Whatever a socket does, its client gets all its bytes once."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.io.io_uring import SendRing
from penstock.broker.routing.link import Link
from penstock.broker.routing.origin import Origin
from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist
from support.io_urings import rings

FRAME = b"MSG a 1 %d\r\n%s\r\n"

try:
    SendRing()
except OSError as error:  # what the server does then: tests/server/test_sends.py
    pytest.skip(f"this system gives us no io_uring: {error.strerror}", allow_module_level=True)


class Subscriber(Link):
    """A client with a socket: what that does not take is left to the transport, here `rest`."""

    def __init__(self, place: Place, cid: int) -> None:
        super().__init__(place.router, cid)
        self.ours, self.peer = socket.socketpair()
        for end in (self.ours, self.peer):
            end.setblocking(False)
        self.fd = self.ours.fileno()
        self.rest = b""
        self.is_verbose = self.is_pedantic = False
        self.join("account", place.sublist)
        self.feed(b"SUB a 1\r\n")

    def flush(self) -> None:
        self.rest += self.take_out()

    def fill(self) -> int:
        """Leave the socket no room: how many bytes that took."""
        filled = 0
        try:
            while True:
                filled += self.ours.send(b"\0" * 65536)
        except BlockingIOError:
            return filled

    def received(self) -> bytes:
        got = b""
        try:
            while part := self.peer.recv(1 << 20):
                got += part
        except BlockingIOError:
            return got
        return got

    def end(self) -> None:
        self.forget_subs()
        self.ours.close()
        self.peer.close()


class Place:
    """A router that sends to many at once, and some who hear `a`."""

    def __init__(self, count: int) -> None:
        before = rings()
        self.router, self.sublist = Router(), Sublist()
        self.router.on_tick = lambda: None
        self.router.send_together()
        (self.ring,) = rings() - before
        self.subscribers = [Subscriber(self, cid) for cid in range(1, count + 1)]

    def publish(self, payload: bytes) -> bytes:
        """To all of them: the frame that each is to get."""
        self.router.send(Origin.CLIENT, self.sublist, b"a", payload)
        self.router.flush()
        return FRAME % (len(payload), payload)

    def close(self) -> None:
        for subscriber in self.subscribers:
            subscriber.end()


@pytest.fixture
def five() -> Iterator[Place]:
    made = Place(5)
    yield made
    made.close()


@pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 65, 200])
def test_everybody_gets_everything_however_many_they_are(count: int) -> None:
    place = Place(count)
    expected = b"".join(place.publish(b"%d" % n * n) for n in range(70))  # around the queue's end, too
    assert [subscriber.received() for subscriber in place.subscribers] == [expected] * count
    assert [subscriber.rest for subscriber in place.subscribers] == [b""] * count
    place.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["reads", "full", "nearly full", "gone", "closed", "transport"]), min_size=1, max_size=12),
    st.lists(st.integers(0, 300_000), min_size=1, max_size=4),
)
def test_what_a_socket_does_not_take_is_the_transports_and_nobody_elses_trouble(
    states: list[str], sizes: list[int]
) -> None:
    place = Place(len(states))
    filled = dict.fromkeys(place.subscribers, 0)
    for subscriber, state in zip(place.subscribers, states, strict=True):
        if state in ("full", "nearly full"):
            filled[subscriber] = subscriber.fill()
            if state == "nearly full":
                filled[subscriber] -= len(subscriber.peer.recv(40_000))
        elif state == "gone":
            subscriber.peer.close()
        elif state == "closed":
            subscriber.forget_subs()
        elif state == "transport":
            subscriber.fd = -1
    expected = b"".join(place.publish(b"x" * size) for size in sizes)
    for subscriber, state in zip(place.subscribers, states, strict=True):
        if state == "gone":
            assert expected.endswith(subscriber.rest)
            assert subscriber.fd == -1
        elif state == "closed":
            assert subscriber.received() + subscriber.rest == b""
        else:
            got = subscriber.received()
            assert got[filled[subscriber] :] + subscriber.rest == expected, state
            assert (subscriber.fd == -1) == bool(subscriber.rest), state
    place.close()


def test_a_ring_that_takes_nothing_more_is_done_without(five: Place) -> None:
    first = five.publish(b"1")
    with open(os.devnull, "rb") as other:
        os.dup2(other.fileno(), five.ring)
    second = five.publish(b"2")
    assert [subscriber.received() for subscriber in five.subscribers] == [first + second] * 5
    assert five.router.out_msgs == 10


def test_a_descriptor_that_has_become_another_ring_is_done_without(five: Place) -> None:
    """It takes nothing, and says no error; with the errno of an interrupted call still there it was tried for ever."""
    other = Place(0)
    os.dup2(other.ring, five.ring)
    five.router.send(Origin.CLIENT, five.sublist, b"a", b"1")
    libc = ctypes.CDLL(None)
    libc.__errno_location.restype = ctypes.POINTER(ctypes.c_int)
    libc.__errno_location()[0] = errno.EINTR
    five.router.flush()
    expected = FRAME % (1, b"1") + five.publish(b"2")
    assert [subscriber.received() for subscriber in five.subscribers] == [expected] * 5


def test_a_hub_lets_go_of_its_ring(five: Place) -> None:
    five.router.send_alone()
    assert five.ring not in rings()
    expected = five.publish(b"1")
    assert [subscriber.received() for subscriber in five.subscribers] == [expected] * 5
