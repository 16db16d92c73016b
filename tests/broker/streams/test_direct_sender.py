"""DirectSender: a stored message as an answer, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.base.clock import SYSTEM
from penstock.base.duration import format_time
from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist
from penstock.broker.streams.direct_sender import DirectSender
from penstock.store.limits import Limits
from penstock.store.memory_store import MemoryStore
from penstock.store.read.reader import Reader
from penstock.testing.inside_client import InsideClient

SECOND = 10**9
HEADERS = b"NATS/1.0\r\nX: y\r\n\r\n"


class Place:
    """A store, a sender of its messages, and what comes to the inbox."""

    def __init__(self) -> None:
        self.store = MemoryStore("S", Limits(subjects=("s.>",), block_size=1 << 16), SYSTEM)
        self.router, self.sublist = Router(), Sublist()
        self.router.on_tick = lambda: None
        self.router.add_sublist(self.sublist)
        self.sender = DirectSender(self.router, self.sublist, self.store.engine, b"S")
        self._heard: list[tuple[bytes | None, bytes]] = []
        self._client = InsideClient(self.router, self.sublist)
        self._client.subscribe("inbox", lambda received: self._heard.append((received.headers, received.payload)))

    @property
    def received(self) -> list[tuple[bytes | None, bytes]]:
        self.router.flush()
        return self._heard


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.store.stop()


def expected(seq: int, time: int, subject: str, own: bytes = b"NATS/1.0\r\n", more: str = "") -> bytes:
    told = (
        f"Nats-Stream: S\r\nNats-Subject: {subject}\r\nNats-Sequence: {seq}\r\nNats-Time-Stamp: {format_time(time)}\r\n"
    )
    return own + told.encode() + more.encode() + b"\r\n"


TIMES = [
    1,
    SECOND - 1,
    SECOND,
    86_399 * SECOND + 999_999_999,
    86_400 * SECOND,
    951_782_400 * SECOND + 120,  # 2000-02-29
    951_868_800 * SECOND,  # 2000-03-01
    1_709_164_799 * SECOND + 100_000_000,  # 2024-02-28
    1_709_164_800 * SECOND + 5,  # 2024-02-29
    1_735_689_599 * SECOND + 10,
    1_794_722_766_338_307_079,
    4_107_542_400 * SECOND,  # 2100-03-01, after a year that is no leap year
    9_223_372_036 * SECOND,
]


def test_times_are_written_as_go_writes_them(place: Place) -> None:
    for seq, time in enumerate(TIMES, 1):
        place.store.store_raw(seq, time, "s.1", None, b"x")
    for seq, time in enumerate(TIMES, 1):
        assert place.sender.send(b"inbox", seq)
        assert place.received.pop() == (expected(seq, time, "s.1"), b"x")


def test_the_messages_own_headers_come_first(place: Place) -> None:
    place.store.store_raw(1, SECOND, "s.é", HEADERS, b"payload")
    assert place.sender.send(b"inbox", 1)
    assert place.sender.send(b"inbox", 1, True)
    assert place.received == [(expected(1, SECOND, "s.é", HEADERS[:-2]), b"payload"), (None, b"payload")]


def test_what_is_not_there_is_not_sent(place: Place) -> None:
    for seq in (1, 2, 3):
        place.store.store_raw(seq, SECOND, "s.1", None, b"")
    place.store.remove(2)
    assert not any(place.sender.send(b"inbox", seq) for seq in (0, 2, 4, 2**63, 2**64 - 1))
    assert place.sender.send_placed(b"inbox", 2, 0, 0) == -1
    assert place.received == []


def test_a_run_counts_down_and_stops_at_its_bounds(place: Place) -> None:
    for seq in range(1, 11):
        place.store.store_raw(seq, SECOND, f"s.{seq % 2}", None, b"12345")
    reader = Reader(place.store.engine, ["s.0"], 1)
    assert place.sender.send_next(reader, b"inbox", 2, 1 << 20, False, 5, 0) == (2, 16, 3, 4)
    assert place.received == [
        (expected(2, SECOND, "s.0", more="Nats-Num-Pending: 4\r\nNats-Last-Sequence: 0\r\n"), b"12345"),
        (expected(4, SECOND, "s.0", more="Nats-Num-Pending: 3\r\nNats-Last-Sequence: 2\r\n"), b"12345"),
    ]
    assert place.sender.send_next(reader, b"inbox", 9, 9, True, 3, 4) == (2, 16, 3, 8)
    assert place.sender.send_next(reader, b"inbox", 9, 1 << 20, False, 1, 8) == (1, 8, 0, 10)
    assert place.sender.send_next(reader, b"inbox", 9, 1 << 20, False, 0, 10) == (0, 0, 0, 10)


def test_headers_of_any_size_fit(place: Place) -> None:
    for seq, size in enumerate((0, 100, 1000, 60_000, 10), 1):
        own = b"NATS/1.0\r\nX: " + b"y" * size + b"\r\n\r\n"
        place.store.store_raw(seq, SECOND, "s." + "t" * 200, own, b"p" * size)
        assert place.sender.send_placed(b"inbox", seq, 2**64 - 1, 2**63 - 1) == 202 + len(own) + size
        headers, payload = place.received.pop()
        assert headers is not None and headers.startswith(own[:-2]) and payload == b"p" * size
        assert headers.endswith(
            b"Nats-Num-Pending: 18446744073709551615\r\nNats-Last-Sequence: 9223372036854775807\r\n\r\n"
        )
