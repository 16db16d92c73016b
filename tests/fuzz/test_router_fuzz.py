"""A campaign of random exchanges between a few clients, their bytes cut anywhere, against a model of who hears what.

`N=` sets the length as for the parser (default 250,000: 400 exchanges), `SEED=` another campaign. A failure prints its
seed.
"""

from __future__ import annotations

import os
import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from penstock.broker.routing.link import Link
from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist
from twins.subject import matches

pytestmark = pytest.mark.campaign

EXCHANGES = int(os.environ.get("N") or 250_000) // 625
SEED = int(os.environ.get("SEED") or 20_261_115)
CHUNKS = 4
SUBJECTS = [b"a", b"b", b"a.b", b"a.c", b"a.b.c", b"x.y", b"_INBOX.1"]
FILTERS = [*SUBJECTS, b"a.*", b"*.b", b"a.>", b">", b"*", b"*.*.c", b"_INBOX.*"]
QUEUES = [b"", b"", b"", b"q", b"w"]
BAD = [b"a..b", b".a", b"a.", b"a.>.b"]


@dataclass(frozen=True)
class Frame:
    """What a client hears: a message, or a line."""

    line: bytes = b""
    subject: bytes = b""
    sid: bytes = b""
    reply: bytes = b""
    headers: bytes = b""
    payload: bytes = b""


class Peer(Link):
    """A client without a socket."""

    def __init__(self, router: Router, cid: int, sublist: Sublist) -> None:
        super().__init__(router, cid)
        self.received = b""
        self.is_verbose = self.is_pedantic = False
        self.join(None, sublist)

    def flush(self) -> None:
        self.received += self.take_out()

    def protocol_error(self, text: bytes) -> None:
        self.write(b"-ERR '" + text + b"'\r\n")

    def frames(self) -> deque[Frame]:
        """What it has heard since the last time, apart."""
        found: deque[Frame] = deque()
        rest, self.received = self.received, b""
        while rest:
            line, end, rest = rest.partition(b"\r\n")
            assert end, "a frame is sent whole"
            words = line.split(b" ")
            if words[0] not in (b"MSG", b"HMSG"):
                found.append(Frame(line=line))
                continue
            count = 2 if words[0] == b"HMSG" else 1
            names, sizes = words[1:-count], [int(word) for word in words[-count:]]
            body, rest = rest[: sizes[-1]], rest[sizes[-1] :]
            assert rest[:2] == b"\r\n"
            rest = rest[2:]
            split = sizes[0] if count == 2 else 0
            reply = names[2] if len(names) == 3 else b""
            found.append(Frame(b"", names[0], names[1], reply, body[:split], body[split:]))
        return found


@dataclass
class Subscription:
    subject: bytes
    queue: bytes
    sid: bytes
    msgs: int = 0
    max_msgs: int = 0


@dataclass
class Client:
    """A client as the model knows it."""

    peer: Peer
    subscriptions: dict[bytes, Subscription] = field(default_factory=dict)
    received: deque[Frame] = field(default_factory=deque)

    def expect(self, line: bytes) -> None:
        assert self.received and self.received.popleft().line == line, line

    def say_ok(self) -> None:
        if self.peer.is_verbose:
            self.expect(b"+OK")

    def take(self, frame: Frame) -> list[bytes]:
        """The subscriptions at which it hears a message, next of all that it hears."""
        sids = []
        while self.received and self.received[0] == Frame(b"", frame.subject, self.received[0].sid, *self._rest(frame)):
            sids.append(self.received.popleft().sid)
        return sids

    def _rest(self, frame: Frame) -> tuple[bytes, bytes, bytes]:
        return frame.reply, frame.headers if self.peer.has_headers else b"", frame.payload

    def drop(self, subscription: Subscription) -> None:
        del self.subscriptions[subscription.sid]


class Model:
    """Who hears what, command by command."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients

    def run(self, client: Client, command: tuple[bytes, ...]) -> None:
        match command:
            case (b"SUB", subject, queue, sid):
                if sid not in client.subscriptions and subject in BAD:
                    client.expect(b"-ERR 'Invalid Subject'")
                    return
                client.subscriptions.setdefault(sid, Subscription(subject, queue, sid))
                client.say_ok()
            case (b"UNSUB", sid, count):
                found = client.subscriptions.get(sid)
                if found is not None and int(count or 0) > found.msgs:
                    found.max_msgs = int(count)
                elif found is not None:
                    client.drop(found)
                client.say_ok()
            case (b"PING",):
                client.expect(b"PONG")
            case (b"PUB", subject, reply, headers, payload):
                client.say_ok()
                received = self._deliver(client, Frame(b"", subject, b"", reply, headers, payload))
                if not received and reply and client.peer.has_no_responders:
                    self._no_responders(client, subject, reply)

    def _deliver(self, publisher: Client, frame: Frame) -> int:
        count = 0
        groups: dict[bytes, list[tuple[int, bytes]]] = {}
        received: list[tuple[int, bytes]] = []
        for client in self.clients:
            sids = sorted(client.take(frame))
            plain = []
            for one in list(client.subscriptions.values()):
                if not matches(frame.subject, one.subject) or (client is publisher and not client.peer.has_echo):
                    continue
                if one.queue:
                    groups.setdefault(one.queue, []).append((client.peer.cid, one.sid))
                else:
                    plain.append(one)
            for one in plain:
                assert one.sid in sids, f"client {client.peer.cid} does not hear {frame} at {one.sid!r}"
                sids.remove(one.sid)
                self._count(client, one)
                count += 1
            received += [(client.peer.cid, sid) for sid in sids]
        for members in groups.values():
            picked = [one for one in received if one in members]
            assert len(picked) == 1, f"{picked} of the group {members} heard {frame}"
            received.remove(picked[0])
            client = self.clients[picked[0][0]]
            self._count(client, client.subscriptions[picked[0][1]])
            count += 1
        assert not received, f"{received} heard {frame}"
        return count

    @staticmethod
    def _count(client: Client, one: Subscription) -> None:
        one.msgs += 1
        if one.max_msgs and one.msgs >= one.max_msgs:
            client.drop(one)

    @staticmethod
    def _no_responders(client: Client, subject: bytes, reply: bytes) -> None:
        sids = [one.sid for one in client.subscriptions.values() if not one.queue and matches(reply, one.subject)]
        if sids:
            received = client.received.popleft()
            assert received.sid in sids
            assert received.subject == reply
            assert received.headers == b"NATS/1.0 503\r\nNats-Subject: " + subject + b"\r\n\r\n"


def make_command(rng: random.Random, number: int) -> tuple[bytes, ...]:
    sid = b"%d" % rng.randrange(6)
    match rng.randrange(10):
        case 0 | 1:
            subject = rng.choice(FILTERS) if rng.random() < 0.95 else rng.choice(BAD)
            return b"SUB", subject, rng.choice(QUEUES), sid
        case 2:
            return b"UNSUB", sid, rng.choice([b"", b"1", b"2", b"5", b"0"])
        case 3:
            return (b"PING",)
        case _:
            size = rng.choice((0, 1, 10, 100, 3000)) if rng.random() < 0.98 else rng.choice((140_000, 300_000))
            payload = b"%d:" % number + bytes(size)
            headers = b"NATS/1.0\r\nA: %d\r\n\r\n" % number if rng.random() < 0.4 else b""
            reply = rng.choice(SUBJECTS) if rng.random() < 0.4 else b""
            return b"PUB", rng.choice(SUBJECTS), reply, headers, payload


def encode(command: tuple[bytes, ...]) -> bytes:
    match command:
        case (b"PUB", subject, reply, headers, payload):
            head = subject + (b" " + reply if reply else b"")
            if headers:
                return b"HPUB %s %d %d\r\n" % (head, len(headers), len(headers + payload)) + headers + payload + b"\r\n"
            return b"PUB %s %d\r\n" % (head, len(payload)) + payload + b"\r\n"
        case _:
            return b" ".join(word for word in command if word) + b"\r\n"


def feed(rng: random.Random, peer: Peer, data: bytes) -> None:
    """As a WebSocket does, or as a transport does that reads into our buffers."""
    if rng.random() < 0.3:
        peer.feed(data)
        return
    while data:
        view = peer.get_buffer(-1)
        size = min(len(view), len(data))
        view[:size] = data[:size]
        peer.buffer_updated(size)
        data = data[size:]


def exchange(seed: int) -> None:
    rng = random.Random(seed)
    router, sublist = Router(), Sublist()
    router.on_tick = lambda: None
    router.add_sublist(sublist)
    clients = [Client(Peer(router, cid, sublist)) for cid in range(4)]
    for client in clients:
        peer = client.peer
        peer.is_verbose, peer.has_echo = rng.random() < 0.2, rng.random() < 0.8
        peer.has_headers = rng.random() < 0.7
        peer.has_no_responders = peer.has_headers and rng.random() < 0.7
    model = Model(clients)
    commands = [[make_command(rng, 1000 * cid + n) for n in range(40)] for cid in range(4)]
    waiting = [[(encode(one), one) for one in some] for some in commands]
    streams = [b"".join(data for data, _ in some) for some in waiting]
    fed, due = [0] * 4, [0] * 4  # bytes given; bytes after which the next command is whole
    while any(streams):
        at = rng.choice([n for n in range(4) if streams[n]])
        size = rng.choice((1, 5, 30, 200, 5000, 100_000, 1_000_000))
        chunk, streams[at] = streams[at][:size], streams[at][size:]
        feed(rng, clients[at].peer, chunk)
        router.begin_tick()
        router.take_batches()
        router.flush()
        router.free_removed()
        router.finish_tick()
        for client in clients:
            client.received = client.peer.frames()
        fed[at] += len(chunk)
        while waiting[at] and due[at] + len(waiting[at][0][0]) <= fed[at]:
            data, command = waiting[at].pop(0)
            due[at] += len(data)
            model.run(clients[at], command)
        for client in clients:
            assert not client.received, f"client {client.peer.cid} heard more: {client.received[0]}"
            assert client.peer.sub_count == len(client.subscriptions)
        assert sublist.count == sum(len(client.subscriptions) for client in clients)
    for client in clients:
        expected = {(one.subject, one.queue, one.sid, one.msgs, one.max_msgs) for one in client.subscriptions.values()}
        assert set(client.peer.subscriptions()) == expected
        client.peer.forget_subs()
    assert sublist.count == 0


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_everyone_hears_what_the_model_says(chunk: int) -> None:
    for n in range(chunk, EXCHANGES, CHUNKS):
        seed = SEED * 1_000_003 + n
        try:
            exchange(seed)
        except AssertionError as error:
            raise AssertionError(f"exchange({seed}): {error}") from error
