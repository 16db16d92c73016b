"""Router and Link without sockets: reads cut anywhere, buffers that grow, ends in the middle of a read, services that
publish. Random exchanges against a model: tests/fuzz/test_router_fuzz.py."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.routing.link import Link
from penstock.broker.routing.origin import Origin
from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist


class Peer(Link):
    """A client without a socket: what it hears is in `heard`, what the router tells in `events`."""

    def __init__(self, place: Place, **flags: Any) -> None:
        super().__init__(place.router, len(place.peers) + 1)
        self.place = place
        self.received = b""
        self.events: list[tuple[str, bytes]] = []
        self.is_verbose = self.is_pedantic = False
        self.has_headers = True
        self.on_connect: Callable[[bytes], None] | None = None
        self.join("account", place.sublist)
        for name, value in flags.items():
            setattr(self, name, value)
        place.peers.append(self)

    def flush(self) -> None:
        self.received += self.take_out()

    def read(self, data: bytes) -> None:
        """As a transport reads: into the buffer that is asked for before each part."""
        while data:
            view = self.get_buffer(-1)
            assert len(view) > 0
            part, data = data[: len(view)], data[len(view) :]
            view[: len(part)] = part
            self.buffer_updated(len(part))

    def end(self) -> None:
        self.events.append(("closed", b""))
        self.forget_subs()

    def connected(self, text: bytes) -> None:
        self.events.append(("connect", text))
        if self.on_connect is not None:
            self.on_connect(text)

    def faulted(self, fault: int, snippet: bytes) -> None:
        self.events.append(("fault", snippet))
        self.end()

    def protocol_error(self, text: bytes) -> None:
        self.events.append(("told", text))

    def unauthorized(self) -> None:
        self.events.append(("unauthorized", b""))
        self.end()

    def stalled(self) -> None:
        self.events.append(("stalled", b""))

    def refused_publish(self, subject: bytes) -> None:
        self.events.append(("refused", subject))

    def refused_reply(self, reply: bytes) -> None:
        self.events.append(("refused", reply))

    def refused_subscribe(self, subject: bytes, queue: bytes) -> None:
        self.events.append(("refused", subject))

    def refused_tokens(self, subject: bytes) -> None:
        self.events.append(("refused", subject))


class Place:
    """One router with one account."""

    def __init__(self) -> None:
        self.router, self.sublist = Router(), Sublist()
        self.router.add_sublist(self.sublist)
        self.peers: list[Peer] = []
        self.turns = 0
        self.router.on_tick = self._ask

    def _ask(self) -> None:
        self.turns += 1

    def turn(self) -> None:
        self.router.begin_tick()
        self.router.take_batches()
        self.router.flush()
        self.router.free_removed()
        self.router.finish_tick()


def pub(subject: bytes, payload: bytes = b"", reply: bytes = b"") -> bytes:
    return b"PUB %s%s %d\r\n%s\r\n" % (subject, b" " + reply if reply else b"", len(payload), payload)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 100, 9000, 70_000, 131_060, 131_072, 262_144, 700_000]), min_size=1, max_size=5),
    st.lists(st.integers(1, 400_000), min_size=1, max_size=12),
    st.booleans(),
)
def test_payloads_of_any_size_come_through_any_cut(sizes: list[int], cuts: list[int], feeds: bool) -> None:
    place = Place()
    publisher, subscriber = Peer(place), Peer(place)
    subscriber.read(b"SUB > 1\r\n")
    payloads = [bytes([n + 65]) * size for n, size in enumerate(sizes)]
    data = b"".join(pub(b"a", payload) for payload in payloads)
    for n in range(len(data)):
        if not data:
            break
        size = max(cuts[n % len(cuts)], sum(sizes) // 100)
        if feeds and n % 2:
            publisher.feed(data[:size])
        else:
            publisher.read(data[:size])
        data = data[size:]
    place.turn()
    assert subscriber.received == b"".join(b"MSG a 1 %d\r\n%s\r\n" % (len(payload), payload) for payload in payloads)
    assert publisher.in_msgs == len(sizes)
    assert publisher.in_bytes == sum(sizes)


def test_a_size_that_never_comes_takes_no_memory_that_is_not_filled() -> None:
    place = Place()
    peers = [Peer(place, max_payload=64 << 20) for _ in range(50)]
    for peer in peers:
        peer.read(b"PUB a 60000000\r\n" + bytes(200_000))
        assert len(peer.get_buffer(-1)) > 50_000_000
    place.turn()


@pytest.mark.parametrize("how", ["read", "feed"])
def test_bytes_one_at_a_time_are_understood(how: str) -> None:
    place = Place()
    peer = Peer(place)
    for n in b"SUB a 1\r\nHPUB a r 12 15\r\nNATS/1.0\r\n\r\nabc\r\nPING\r\n":
        getattr(peer, how)(bytes([n]))
    place.turn()
    assert peer.received == b"HMSG a 1 r 12 15\r\nNATS/1.0\r\n\r\nabc\r\nPONG\r\n"


def test_one_that_is_closed_in_the_middle_of_a_read_hears_and_does_nothing_more() -> None:
    place = Place()
    peer, other = Peer(place), Peer(place)
    other.read(b"SUB > 1\r\n")
    peer.read(b"SUB b 1\r\n" + pub(b"a", b"before") + b"GARBAGE\r\n" + pub(b"a", b"after") + b"SUB c 2\r\n")
    place.turn()
    assert [name for name, _ in peer.events] == ["fault", "closed"]
    assert other.received == b"MSG a 1 6\r\nbefore\r\n"
    assert place.sublist.count == 1
    peer.read(pub(b"a", b"later"))
    peer.feed(pub(b"a", b"later"))
    other.read(pub(b"b", b"to nobody but me"))
    place.turn()
    assert peer.received == b""
    assert peer.is_closed


def test_one_that_a_message_closes_is_left_out_of_the_rest_of_its_delivery() -> None:
    """A service closes a client while the read that called it is under way."""
    place = Place()
    first, second = Peer(place), Peer(place)
    first.read(b"SUB a 1\r\nSUB a 2\r\nSUB a q 3\r\n")

    def kick(*request: object) -> None:
        first.end()

    place.sublist.add_service(kick, b"kick")
    second.read(pub(b"a", b"1") + pub(b"kick") + pub(b"a", b"2"))
    place.turn()
    assert first.received.count(b"\r\n1\r\n") == 3
    assert place.sublist.count == 1
    second.read(pub(b"a", b"3"))
    place.turn()
    assert b"\r\n3\r\n" not in first.received


def test_one_that_ends_itself_before_its_own_connect_does_not_connect() -> None:
    """A request to be kicked and a CONNECT in one read: the account kept a client that was gone."""
    place = Place()
    peer = Peer(place)
    place.sublist.add_service(lambda *request: peer.end(), b"kick")
    peer.read(pub(b"kick") + b"CONNECT {}\r\nPING\r\n")
    place.turn()
    assert peer.events == [("closed", b"")]
    assert peer.received == b""


def test_after_a_change_of_account_neither_side_hears_the_other() -> None:
    place = Place()
    elsewhere = Sublist()
    place.router.add_sublist(elsewhere)
    peer, stays, there = Peer(place), Peer(place), Peer(place)
    there.leave()
    there.join("other", elsewhere)
    for one in (peer, stays, there):
        one.read(b"SUB > 1\r\n")

    def move(text: bytes) -> None:
        peer.leave()
        peer.join("other", elsewhere)

    peer.on_connect = move
    peer.read(pub(b"a", b"here") + b"CONNECT {}\r\n" + pub(b"a", b"there") + b"SUB > 2\r\n" + pub(b"b", b"mine"))
    stays.read(pub(b"c", b"stays"))
    place.turn()
    assert stays.received == b"MSG a 1 4\r\nhere\r\nMSG c 1 5\r\nstays\r\n"
    assert there.received == b"MSG a 1 5\r\nthere\r\nMSG b 1 4\r\nmine\r\n"
    assert peer.received == b"MSG a 1 4\r\nhere\r\nMSG b 2 4\r\nmine\r\n"
    assert (place.sublist.count, elsewhere.count) == (1, 2)


@pytest.mark.parametrize("tail", [b"", b"P", pub(b"a", bytes(300_000))[:150_000], pub(b"a", b"x") * 30_000])
def test_commands_behind_a_connect_wait_until_it_is_decided(tail: bytes) -> None:
    place = Place()
    peer, other = Peer(place), Peer(place)
    other.read(b"SUB > 1\r\n")

    def pause(text: bytes) -> None:
        peer.is_paused = True

    peer.on_connect = pause
    peer.read(b"CONNECT {}\r\n" + pub(b"a", b"later") + tail)
    peer.read(b"")
    place.turn()
    assert other.received == b""
    peer.resume()
    place.turn()
    assert other.received == b"MSG a 1 5\r\nlater\r\n" + b"MSG a 1 1\r\nx\r\n" * tail.count(b"\nx\r\n")


def test_services_that_publish_to_services_are_called_one_after_the_other() -> None:
    place = Place()
    router, sublist = place.router, place.sublist
    seen: list[bytes] = []

    def chain(client: object, subject: bytes, reply: object, headers: object, payload: bytes) -> None:
        seen.append(payload)
        if len(payload) < 200:
            router.send(Origin.CLIENT, sublist, b"chain", payload + b"x")

    sublist.add_service(chain, b"chain")
    peer = Peer(place)
    peer.read(b"SUB chain 1\r\n" + pub(b"chain") + pub(b"chain", b"second" * 50))
    place.turn()
    assert seen == [b"", b"second" * 50, *[b"x" * n for n in range(1, 201)]] or len(seen) == 202
    assert peer.received.count(b"MSG chain") == 202


def test_a_service_that_fails_is_told_of_and_takes_nobody_with_it(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    peer = Peer(place)

    def fail(*request: object) -> None:
        raise RuntimeError("a mistake of ours")

    place.sublist.add_service(fail, b"a")
    peer.read(b"SUB a 1\r\n" + pub(b"a") + b"PING\r\n")
    place.turn()
    assert peer.received == b"MSG a 1 0\r\n\r\nPONG\r\n"
    assert "a mistake of ours" in caplog.text


def test_a_service_that_is_removed_while_it_is_called_is_not_called_again() -> None:
    place = Place()
    called: list[bytes] = []

    def once(client: object, subject: bytes, *rest: object) -> None:
        called.append(subject)
        place.sublist.remove_service(token)
        place.router.free_removed()
        gc.collect()

    token = place.sublist.add_service(once, b"a.>")
    peer = Peer(place)
    peer.read(pub(b"a.1") + pub(b"b"))
    peer.read(pub(b"a.2"))
    place.turn()
    assert called == [b"a.1"]


def test_too_much_for_one_marks_it_slow_and_stops_writing_to_it() -> None:
    place = Place()
    slow, other, publisher = Peer(place, max_pending=1_000_000), Peer(place), Peer(place)
    for one in (slow, other):
        one.read(b"SUB a 1\r\n")
    for _ in range(40):
        publisher.read(pub(b"a", bytes(50_000)))
    assert slow.is_slow
    assert slow.pending < 1_100_000
    assert ("stalled", b"") in publisher.events
    place.turn()
    assert other.received.count(b"MSG") == 40


def test_thousands_of_subscriptions_come_and_go_by_their_sids() -> None:
    place = Place()
    peer, publisher = Peer(place), Peer(place)
    peer.read(b"".join(b"SUB s.%d %d\r\n" % (n % 50, n) for n in range(5000)))
    peer.read(b"".join(b"UNSUB %d\r\n" % n for n in range(0, 5000, 2)) + b"UNSUB 1 1\r\nUNSUB 3 2\r\nUNSUB nobody\r\n")
    assert peer.sub_count == 2500 == place.sublist.count
    publisher.read(pub(b"s.1") * 3 + pub(b"s.3") * 3)
    place.turn()
    assert peer.received.count(b"MSG s.1 1 ") == 1
    assert peer.received.count(b"MSG s.3 3 ") == 2
    assert peer.received.count(b"MSG") == 1 + 99 * 3 + 2 + 99 * 3
    peer.forget_subs()
    while place.sublist.count:
        place.turn()


def test_one_with_many_subscriptions_leaves_in_parts_and_hears_nothing_meanwhile() -> None:
    """Half a million were taken out in one go when their connection closed: nobody else was served for a second."""
    place = Place()
    peer, other, publisher = Peer(place), Peer(place), Peer(place)
    peer.read(b"".join(b"SUB s.%d %d\r\nSUB q.%d group %dq\r\n" % (n, n, n, n) for n in range(1500)))
    other.read(b"SUB q.> group 1\r\n")
    peer.forget_subs()
    counts = [place.sublist.count]
    while place.sublist.count > 1:
        received = place.router.send(Origin.EVENT, place.sublist, b"s.1499", b"")
        publisher.read(pub(b"q.7"))
        place.turn()
        counts.append(place.sublist.count)
        assert received == 0
    assert counts[0] == 3001 and len(counts) == 9
    assert max(before - after for before, after in pairwise(counts)) == 400
    assert peer.received == b"" and peer.pending == 0
    assert other.received.count(b"MSG q.7") == 8
    assert peer.is_closed
    place.turn()
    place.turns = 0
    place.turn()
    assert place.turns == 0, "nothing is asked for any more"


def test_an_unsubscribe_between_two_messages_of_one_read_takes_effect() -> None:
    place = Place()
    peer = Peer(place)
    peer.read(b"SUB a 1\r\n" + pub(b"a", b"1") + b"UNSUB 1\r\n" + pub(b"a", b"2") + b"SUB a 1\r\n" + pub(b"a", b"3"))
    place.turn()
    assert peer.received == b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n3\r\n"


def test_refusals_do_not_stop_the_rest_of_a_read() -> None:
    place = Place()
    peer = Peer(place, max_sub_tokens=3, max_subs=2)
    lines = [b"SUB a.b.c.d 1", b"SUB a _sys_ 2", b"SUB a..b 3", b"SUB a 4", b"SUB b 5", b"SUB c 6"]
    peer.read(
        b"".join(line + b"\r\n" for line in lines) + pub(b"$NRG.x") + pub(b"_GR_.x") + pub(b"a", b"", b"$JS.ACK.x")
    )
    place.turn()
    assert peer.sub_count == 2
    assert peer.events == [
        ("refused", b"a.b.c.d"),
        ("refused", b"a"),
        ("told", b"Invalid Subject"),
        ("told", b"maximum subscriptions exceeded"),
        ("refused", b"$NRG.x"),
        ("refused", b"_GR_.x"),
        ("refused", b"$JS.ACK.x"),
    ]


def test_a_turn_is_asked_for_once_however_much_there_is_to_do() -> None:
    place = Place()
    peers = [Peer(place) for _ in range(10)]
    for peer in peers:
        peer.read(b"SUB a 1\r\n")
    peers[0].read(pub(b"a") * 100)
    assert place.turns == 1
    place.turn()
    peers[0].read(b"PING\r\n")
    assert place.turns == 2
