"""kill -9 of a server under full load with twenty consumers, many times over the same directory.

After each restart: every acknowledged publish is there; no ack that was answered is forgotten; and the server's
counters of each consumer match a recount of the stored messages and of what the clients know. Then some of the
consumers are drained, and deliver exactly what the counters said. `N=` sets the cycles (default 3), `SEED=` the work.
"""

from __future__ import annotations

import random
import subprocess
import time
from typing import Any

import pytest
from bench.load import build

from support.attack import Client, assert_no_trace
from support.consumer_load import Book, Delivery, Life, Publisher, Worker
from support.crash_cases import campaign_size, chunk_seed
from support.servers import ServerProcess

pytestmark = pytest.mark.campaign
CYCLES = campaign_size(3)
CONFIG = """\
host: 127.0.0.1
port: -1
jetstream { store_dir: "$DIR", max_mem: 64MB, max_file: 4GB %s }
"""
STREAMS = {"S": "limits", "Q": "workqueue", "I": "interest"}
SUBJECTS = [str(n) for n in range(4)]
NOISE = "N"  # a work queue that the load generator keeps busy: the other streams share its disk and its loop
Stored = dict[int, tuple[str, bytes]]
Info = dict[str, Any]


def make_books() -> list[Book]:
    """Twenty consumers, of every ack policy, with and without a filter."""
    books = [Book("S", f"S{n}", "explicit", "S.>" if n < 4 else f"S.{n % 4}") for n in range(8)]
    books += [Book("S", "SA0", "all", "S.>"), Book("S", "SA1", "all", "S.1")]
    books += [Book("S", "SN0", "none", "S.>"), Book("S", "SN1", "none", "S.2")]
    books += [Book("Q", f"Q{n}", "explicit", f"Q.{n}") for n in range(4)]
    books += [Book("I", "I0", "explicit", "I.>"), Book("I", "I1", "explicit", "I.1")]
    books += [Book("I", "I2", "explicit", "I.2"), Book("I", "IA", "all", "I.>")]
    assert len(books) == 20
    return books


class World:
    """A server, the clients' books, and the messages known to be stored."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.books = make_books()
        self.published: dict[str, Stored] = {name: {} for name in STREAMS}
        self.stored: dict[str, Stored] = {name: {} for name in STREAMS}
        client = Client(server.port)
        for name, retention in STREAMS.items():
            client.create(name, f"{name}.>", retention=retention, allow_direct=True)
        client.create(NOISE, f"{NOISE}.>", retention="workqueue")
        for book in [*self.books, Book(NOISE, "C000", "explicit", f"{NOISE}.>")]:
            book.create(client)

    def load(self, seed: int, is_killed: bool = True) -> None:
        """Run publishers and workers for a while; then kill the server and start it again."""
        rng, port = random.Random(seed), self.server.port
        publishers = [Publisher(port, seed, f"{name}{seed}", [f"{name}.{n}" for n in SUBJECTS]) for name in STREAMS]
        workers = [Worker(port, chunk_seed(seed, book.name), book) for book in self.books]
        noise = start_noise(port)
        lives: list[Life] = [*publishers, *workers]
        try:
            for life in lives:
                life.start()
            wait_until(lambda: is_under_load(publishers, workers), lives)
            time.sleep(rng.choice((0.0, 0.1, 0.5)) * rng.random())  # when to kill
        finally:
            self.server.restart(kill=is_killed)
            noise.kill()
            noise.wait()
        for life in lives:
            life.join(30)
            assert not life.is_alive()
            if life.failure is not None:
                raise life.failure
        for publisher in publishers:
            known = self.published[publisher.name[0]]
            assert not known.keys() & publisher.acked.keys(), "a sequence was given twice"
            known.update(publisher.acked)

    def check(self, rng: random.Random) -> None:
        client = Client(self.server.port)
        broken = [line for book in self.books for line in book.broken]
        assert not broken, broken[:9]
        for name in STREAMS:
            self.read_stored(client, name)
            self.check_stored(name)
        told = {book.name: consumer_info(client, book) for book in self.books}
        for book in self.books:
            check_told(book, told[book.name], self.matching(book))
        self.check_queue(told)
        check_noise(client)
        for book in rng.sample(self.books, 6):
            self.check_drained(client, book, told[book.name])
        assert_no_trace(self.server.log)

    def read_stored(self, client: Client, name: str) -> None:
        """The messages of a stream, read by direct gets; only the new ones if the stream never loses any."""
        stored = self.stored[name] if name == "S" else {}
        state, at = client.state(name), max(stored, default=0) + 1
        while at <= state["last_seq"]:
            found = read_batch(client, name, at)
            stored.update(found)
            at = max(found) + 1 if found else state["last_seq"] + 1
        self.stored[name] = stored
        assert state["messages"] == len(stored), f"{name}: {state} and {len(stored)} stored"

    def check_stored(self, name: str) -> None:
        stored, published = self.stored[name], self.published[name]
        for seq, content in stored.items():
            assert published.get(seq, content) == content, f"{name} {seq} is not what was acknowledged"
        for seq, (subject, _) in published.items():
            if seq in stored:
                continue
            assert name != "S", f"S {seq} was acknowledged, and is gone"
            concerned = [book for book in self.books if book.stream == name and book.matches(subject)]
            missing = [book.name for book in concerned if not book.is_sure(seq) and not book.is_maybe(seq)]
            assert not missing, f"{name} {seq} is gone, and {missing} did not acknowledge it"

    def matching(self, book: Book) -> list[int]:
        return [seq for seq, (subject, _) in self.stored[book.stream].items() if book.matches(subject)]

    def check_queue(self, told: dict[str, Info]) -> None:
        """A work queue holds exactly the messages that its consumers still have to process."""
        left = sum(told[b.name]["num_pending"] + told[b.name]["num_ack_pending"] for b in self.books if b.stream == "Q")
        assert left == len(self.stored["Q"])

    def check_drained(self, client: Client, book: Book, info: Info) -> None:
        """The consumer delivers what it reports as pending, once each, and nothing else."""
        worker = Worker(self.server.port, 0, book)
        try:
            found = worker.drain(info["num_pending"] + info["num_ack_pending"])
        finally:
            worker.close()
        assert not book.broken, book.broken[:9]
        check_deliveries(book, info, found, self.stored[book.stream])
        if book.policy == "none":
            return
        after = consumer_info(client, book)
        assert (after["num_pending"], after["num_ack_pending"]) == (0, 0), after
        # An ack of policy `all` may name an earlier delivery than the last.
        floor_of = "stream_seq" if book.policy == "all" else "consumer_seq"
        assert after["ack_floor"][floor_of] == after["delivered"][floor_of], after
        if book.stream == "Q":
            for delivery in found:
                del self.stored["Q"][delivery.seq]
            assert client.state("Q")["messages"] == len(self.stored["Q"])


def check_told(book: Book, info: Info, matching: list[int]) -> None:
    """Check the counters against the stored messages and what the clients know."""
    position, floor = info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"]
    where = f"{book.name}: {info}"
    assert info["num_pending"] == sum(seq > position for seq in matching), where
    if book.policy == "none":
        assert info["num_ack_pending"] == 0, where
        return
    delivered = [seq for seq in matching if seq <= position]
    unacked = [seq for seq in delivered if not book.is_sure(seq)]
    at_least = sum(not book.is_maybe(seq) for seq in unacked)
    assert at_least <= info["num_ack_pending"] <= len(unacked), where
    assert max(book.sure, default=book.sure_floor) <= position, where
    assert all(book.is_maybe(seq) for seq in matching if seq <= floor), where
    assert floor <= position and info["ack_floor"]["consumer_seq"] <= info["delivered"]["consumer_seq"], where


def check_deliveries(book: Book, info: Info, found: list[Delivery], stored: Stored) -> None:
    position, next_seq = info["delivered"]["stream_seq"], info["delivered"]["consumer_seq"] + 1
    for delivery in found:
        assert stored[delivery.seq] == (delivery.subject, delivery.payload), delivery
        assert (delivery.deliveries == 1) == (delivery.seq > position), f"{delivery}, {info}"
    assert found == [] or found[0].consumer_seq == next_seq, f"{found[0]}, {info}"
    again = sum(delivery.seq <= position for delivery in found)
    assert again == info["num_ack_pending"], f"{book.name}, {info}: {again} came again"


def check_noise(client: Client) -> None:
    found = client.api(f"CONSUMER.INFO.{NOISE}.C000")
    assert client.state(NOISE)["messages"] == found["num_pending"] + found["num_ack_pending"], found
    assert client.api(f"STREAM.PURGE.{NOISE}")["success"]
    found = client.api(f"CONSUMER.INFO.{NOISE}.C000")
    assert (found["num_pending"], found["num_ack_pending"]) == (0, 0), found


def consumer_info(client: Client, book: Book) -> Info:
    found = client.api(f"CONSUMER.INFO.{book.stream}.{book.name}")
    assert "error" not in found, found
    return found


def read_batch(client: Client, name: str, seq: int) -> Stored:
    inbox = f"{client.inbox.decode()}.batch{seq}"
    client.publish(f"$JS.API.DIRECT.GET.{name}", b'{"batch":500,"seq":%d}' % seq, inbox)
    found: Stored = {}
    while True:
        frame = client.message()
        assert frame.headers is not None, frame
        if frame.headers.startswith((b"NATS/1.0 204", b"NATS/1.0 404")):
            return found
        lines = dict(line.split(": ", 1) for line in frame.headers.decode().split("\r\n") if ": " in line)
        found[int(lines["Nats-Sequence"])] = lines["Nats-Subject"], frame.payload


def is_under_load(publishers: list[Publisher], workers: list[Worker]) -> bool:
    return all(one.done > 50 for one in publishers) and sum(one.done for one in workers) > 200


def wait_until(is_so: Any, lives: list[Life]) -> None:
    stop = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < stop, [(life.failure, life.done) for life in lives]
        assert all(life.is_alive() for life in lives), [life.failure for life in lives]
        time.sleep(0.002)


def start_noise(port: int) -> subprocess.Popen[bytes]:
    wanted = f"work --port {port} --stream {NOISE} --subject {NOISE}.x --count 100000000 --window 2000 --frames 2000"
    words = [str(build()), *wanted.split(), "--acks", "1", "--batch", "500", "--backlog", "4000"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("durability", ["", ", durability: os"], ids=["disk", "os"])
def test_a_killed_server_forgets_no_publish_and_no_ack_that_it_answered(durability: str) -> None:
    cycles = -(-CYCLES // 2)
    with ServerProcess("ours", CONFIG % durability) as server:
        world = World(server)
        for cycle in range(cycles):
            seed = chunk_seed("consumers", durability, cycle)
            try:
                world.load(seed)
                world.check(random.Random(seed))
            except BaseException as error:
                error.add_note(f"cycle {cycle} of {cycles}, seed {seed}\n{''.join(server.log[-20:])}")
                raise
