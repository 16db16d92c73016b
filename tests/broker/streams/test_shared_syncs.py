"""Small publishes of many clients share syncs: what comes during one waits for its end, and is begun by itself then."""

from __future__ import annotations

import errno
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.broker import tick as turn
from penstock.server.embedded import EmbeddedServer
from penstock.store.file_store import FileStore
from penstock.testing import SYNC_KINDS, CrashDisk
from support.attack import Client
from support.failing_disk import failing
from support.still_loop import still

DELAY_S = 0.02
CLIENTS, EACH = 24, 6


@pytest.fixture
def disk(tmp_path: Path) -> CrashDisk:
    (tmp_path / "data").mkdir()
    return CrashDisk(tmp_path / "data")


@pytest.fixture
def server(tmp_path: Path, disk: CrashDisk) -> Iterator[EmbeddedServer]:
    """A server on a disk whose syncs take their time."""
    with penstock.open(tmp_path / "data", disk=disk) as db, penstock.Server(database=db) as found:
        db.stream("S", subjects=["s.>"])
        disk.sync_delay_us = int(DELAY_S * 1e6)
        yield found
        disk.release()
        disk.sync_delay_us = 0


def test_what_comes_during_a_sync_is_answered_after_the_next_though_nothing_else_comes(server: EmbeddedServer) -> None:
    first, second, third = (Client(server.port, f"_INBOX.{n}") for n in range(3))
    first.send(first.pub("s.a", b"1", "_INBOX.0.x"))
    first.ping()  # it is appended, and its sync is under way
    second.send(second.pub("s.a", b"2", "_INBOX.1.x"))
    second.ping()
    third.send(third.pub("s.a", b"3", "_INBOX.2.x"))
    found = [json.loads(client.message().payload)["seq"] for client in (third, second, first)]
    assert found == [3, 2, 1]


def test_many_clients_share_syncs(server: EmbeddedServer, disk: CrashDisk) -> None:
    clients = [Client(server.port, f"_INBOX.c{n}") for n in range(CLIENTS)]
    before = disk.calls["sync_file"]
    for _ in range(EACH):
        with disk.holding("sync_file"):
            for n, client in enumerate(clients):
                client.send(client.pub("s.a", b"x", f"_INBOX.c{n}.x"))
                client.ping()
        seqs = [json.loads(client.message().payload)["seq"] for client in clients]
        assert len(set(seqs)) == CLIENTS
    assert disk.calls["sync_file"] - before <= EACH * 3, "a few syncs a round, not one for each client"
    for client in clients:
        client.close()


def test_a_turn_that_has_no_time_left_answers_more_than_the_first_few(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries take theirs before the answers: publishers of a busy stream were to wait seven turns for one."""
    monkeypatch.setattr(turn, "ANSWER_S", 0.0)
    counts: list[int] = []
    serve = turn.Tick._serve

    def counted(self: turn.Tick, endpoint: Any) -> None:
        before = endpoint.answered
        serve(self, endpoint)
        counts.append(endpoint.answered - before)

    monkeypatch.setattr(turn.Tick, "_serve", counted)
    clients = [Client(server.port, f"_INBOX.c{n}") for n in range(CLIENTS)]
    for _ in range(2):
        for n, client in enumerate(clients):
            client.send(client.pub("s.a", b"x", f"_INBOX.c{n}.x"))
        for client in clients:
            client.message()
    assert max(counts) > CLIENTS // 2
    for client in clients:
        client.close()


# What is read during a sync is not even appended until that ends: whatever else happens meanwhile, it is.


def put_off(server: EmbeddedServer, disk: CrashDisk) -> tuple[Client, Client]:
    """Two clients: a sync for the first one's message is held, and the second one's was read."""
    disk.hold("sync_file")
    first, second = Client(server.port, "_INBOX.0"), Client(server.port, "_INBOX.1")
    first.send(first.pub("s.a", b"1", "_INBOX.0.x"))
    disk.wait_held()
    first.ping()  # its turn has ended
    read = server.server.router.in_msgs
    second.send(second.pub("s.a", b"2", "_INBOX.1.x"))  # a PING after it would end a turn
    wait_until(lambda: server.server.router.in_msgs > read)
    is_idle = threading.Event()
    server.server.loop.call_soon_threadsafe(is_idle.set)
    assert is_idle.wait(10)
    return first, second


def ask_meanwhile(server: EmbeddedServer, disk: CrashDisk, client: Client, subject: str) -> dict[str, Any]:
    """The answer to a request that comes during the sync, which ends once it was read."""
    read = server.server.router.in_msgs
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.ask, subject)
        wait_until(lambda: server.server.router.in_msgs > read)
        disk.release()
        return asked.result()


def delete_meanwhile(db: penstock.Database, disk: CrashDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete the stream during the sync, which ends once that waits for it."""
    waits = threading.Event()
    abandon = FileStore.abandon

    def told(store: FileStore) -> None:
        waits.set()
        abandon(store)

    monkeypatch.setattr(FileStore, "abandon", told)
    with ThreadPoolExecutor(1) as pool:
        deleted = pool.submit(db.delete_stream, "S")
        assert waits.wait(10)
        disk.release()
        deleted.result()


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < until


def answer(client: Client) -> dict[str, object]:
    found: dict[str, object] = json.loads(client.message().payload)
    return found


def test_what_was_put_off_is_taken_before_a_purge(server: EmbeddedServer, disk: CrashDisk) -> None:
    first, second = put_off(server, disk)
    asked = ask_meanwhile(server, disk, first, "$JS.API.STREAM.PURGE.S")
    assert asked["success"] and asked["purged"] == 2
    assert [answer(first)["seq"], answer(second)["seq"]] == [1, 2]


def test_what_was_put_off_is_kept_though_the_sync_before_it_fails(server: EmbeddedServer, disk: CrashDisk) -> None:
    with failing(disk, "sync"):
        first, second = put_off(server, disk)
        disk.release()
        assert "error" in answer(first)
        assert answer(second)["seq"] == 1
    stored = json.loads(first.request("$JS.API.STREAM.MSG.GET.S", {"seq": 1}).payload)
    assert stored["message"]["data"] == "Mg=="


def test_what_was_put_off_is_answered_though_the_stream_is_deleted(server: EmbeddedServer, disk: CrashDisk) -> None:
    first, second = put_off(server, disk)
    assert ask_meanwhile(server, disk, first, "$JS.API.STREAM.DELETE.S")["success"]
    assert [answer(first)["seq"], answer(second)["seq"]] == [1, 2]
    first.ping()


@pytest.mark.parametrize(("size", "is_submitted"), [(10, False), (70_000, True)])
def test_everybody_is_answered_though_the_library_deletes_the_stream(
    tmp_path: Path, disk: CrashDisk, monkeypatch: pytest.MonkeyPatch, size: int, is_submitted: bool
) -> None:
    """A sync is under way: little that comes meanwhile waits for its end, much is submitted. That is waited for."""
    with penstock.open(tmp_path / "data", disk=disk) as db, penstock.Server(database=db) as server:
        db.stream("S", subjects=["s.>"])
        clients = [Client(server.port, f"_INBOX.{n}") for n in range(30)]
        with disk.holding("sync_file"):
            for n, client in enumerate(clients):
                client.send(client.pub("s.a", b"x" * (size if n else 1), f"_INBOX.{n}.x"))
                client.ping()
                disk.wait_held()
            delete_meanwhile(db, disk, monkeypatch)
        found = [answer(client) for client in clients]
        assert found[0]["seq"] == 1
        assert ["error" not in each for each in found[1:]] == [is_submitted] * 29
        assert is_submitted or found[1]["error"]["description"] == "stream S is closed"  # type: ignore[index]


def test_what_was_put_off_is_answered_though_the_library_deletes_the_stream(
    tmp_path: Path, disk: CrashDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.open(tmp_path / "data", disk=disk) as db, penstock.Server(database=db) as server:
        db.stream("S", subjects=["s.>"])
        with disk.holding("sync_file"):
            first, second = put_off(server, disk)
            delete_meanwhile(db, disk, monkeypatch)
        assert answer(first)["seq"] == 1
        assert "error" in answer(second)


def test_what_was_put_off_is_answered_and_kept_when_the_server_stops(tmp_path: Path, disk: CrashDisk) -> None:
    with penstock.open(tmp_path / "data", disk=disk) as db, ThreadPoolExecutor(1) as pool:
        with penstock.Server(database=db) as server:
            db.stream("S", subjects=["s.>"])
            first, second = put_off(server, disk)
            served = server.server
            released = pool.submit(lambda: (wait_until(lambda: served.is_stopping), disk.release()))
        released.result()
        assert [answer(first)["seq"], answer(second)["seq"]] == [1, 2]
        assert [db.stream("S").get(seq).data for seq in (1, 2)] == [b"1", b"2"]


# After a sync its publishers are answered, and what they say next is read meanwhile: whatever that is, it is answered.


class Meddling:
    """A loop's sockets, with something that happens just before they are polled from within the end of a turn."""

    def __init__(self, server: EmbeddedServer, before: Callable[[], None], what: str) -> None:
        self._tick = server.server.tick
        self._real, self._before, self._what = self._tick.sockets, before, what
        self._tick.sockets = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def poll(self, spin_ns: int = 0) -> int:
        if self._what == "poll" and sys._getframe(1).f_code.co_name == "_serve":
            self._before()
        return self._real.poll(spin_ns)

    def gather(self, *asked: Any) -> None:
        if self._what == "gather":
            self._before()
        self._real.gather(*asked)


@pytest.mark.parametrize("header", ["Nats-Msg-Id: once", "Nats-Expected-Last-Sequence: 7"])
def test_a_publish_that_is_refused_while_others_are_gathered_is_answered(server: EmbeddedServer, header: str) -> None:
    headers = f"NATS/1.0\r\n{header}\r\n\r\n".encode()
    client = Client(server.port, "_INBOX.0")
    client.send(b"HPUB s.a _INBOX.0.x %d %d\r\n%s\r\n" % (len(headers), len(headers), headers))
    client.message()
    again = [b"HPUB s.a _INBOX.0.y %d %d\r\n%s\r\n" % (len(headers), len(headers), headers)]
    Meddling(server, lambda: client.send(again.pop()) if again else None, "gather")
    client.send(client.pub("s.a", b"2", "_INBOX.0.z"))
    assert answer(client)["seq"]
    assert not again
    found = answer(client)
    assert "duplicate" in found or "error" in found


def test_what_is_rolled_back_while_others_are_answered_is_not_acknowledged(
    server: EmbeddedServer, disk: CrashDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commits: one answers many clients, and between them the other fails, and a read rolls it back."""
    monkeypatch.setattr("penstock.broker.tick.ANSWER_S", 60.0)  # however slow the machine is: in one turn
    stream = server.server.accounts["$G"].jetstream.stream("S").stream  # type: ignore[union-attr]
    clients = [Client(server.port, f"_INBOX.c{n}") for n in range(30)]
    lost, late = Client(server.port, "_INBOX.l"), Client(server.port, "_INBOX.t")
    lost.send(lost.pub("s.w", b"w", "_INBOX.l.0"))  # the block is there
    lost.message()

    def fail_and_roll_back() -> None:
        until = time.monotonic() + 10
        while stream.store.engine.log.failure() is None and not stream.store.failures:
            assert time.monotonic() < until
        late.send(late.pub("s.y", b"y" * 20_000, "_INBOX.t.0"))  # appended when it is read, which rolls back before

    Meddling(server, fail_and_roll_back, "poll")
    disk.fail_at(2, errno.EIO, kinds=SYNC_KINDS)
    with disk.holding("sync_file"):
        with still(server):  # they come in one turn
            for n, client in enumerate(clients):
                client.send(client.pub("s.a", b"x", f"_INBOX.c{n}.x"))
        disk.wait_held()
        lost.send(lost.pub("s.x", b"x" * 100_000, "_INBOX.l.1"))  # too much to wait for the end of the first sync
        lost.ping()
    for client in clients:
        assert answer(client)["seq"]
    assert "error" in answer(lost)
    disk.sync_delay_us = 0
    assert answer(late)["seq"]
    assert [message.subject for message in stream.read(subjects="s.x")] == []
