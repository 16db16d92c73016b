"""Overload: crowds of clients, readers that do not read, too few file descriptors. Memory stays bounded, other clients
are served, and afterwards nothing is left of it.

`N=` sets the connections that are opened and dropped (default 2,000).
"""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from support.attack import SLOW_S, STUCK_S, Client, Probe, assert_no_trace, memory_mb
from support.servers import ServerProcess
from support.wire_client import Closed

pytestmark = pytest.mark.campaign

CONNECTIONS = int(os.environ.get("N") or 2000)
WAVE = 400
MB = 1 << 20
CONFIG = """\
host: 127.0.0.1
port: -1
max_pending: 8MB
write_deadline: "2s"
jetstream { store_dir: "$DIR", max_mem: 64MB, max_file: 1GB }
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess("ours", CONFIG) as running:
        yield running
        assert not running.has_ended
        assert_no_trace(running.log)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 15.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def fd_count(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def unread(port: int, subject: str = "flood", small: bool = True) -> socket.socket:
    """A subscriber that does not read."""
    client = socket.socket()
    if small:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(b'CONNECT {"verbose":false}\r\nSUB ' + subject.encode() + b" 1\r\nPING\r\n")
    found = b""
    while b"PONG" not in found:
        found += client.recv(4096)
    return client


def test_connections_in_waves_leave_nothing_behind(server: ServerProcess) -> None:
    Client(server.port).ping()
    before, memory = fd_count(server), 0.0
    with Probe(server.port) as probe:
        for start in range(0, CONNECTIONS, WAVE):
            crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(WAVE)]
            for n, one in enumerate(crowd):
                if n % 2:
                    one.sendall(b'CONNECT {"verbose":false}\r\nSUB a.%d 1\r\nSUB > q 2\r\nPING\r\n' % n)
                one.close()
            if start == 0:
                memory = memory_mb(server.pid)
    wait_until(lambda: fd_count(server) <= before + 2, "their descriptors stay open")
    assert memory_mb(server.pid) - memory < 60
    assert probe.median_s < SLOW_S
    assert probe.worst_s < STUCK_S


def test_one_that_never_reads_is_cut_off_by_size_and_the_others_hear_everything(server: ServerProcess) -> None:
    before = memory_mb(server.pid)
    lazy = [unread(server.port) for _ in range(3)]
    good, publisher = Client(server.port, "_INBOX.good"), Client(server.port, "_INBOX.pub")
    good.send(b"SUB flood 2\r\n")
    good.ping()
    payload = bytes(100_000)
    most = 0.0
    with Probe(server.port) as probe:
        for _ in range(300):  # 30 MB
            publisher.publish("flood", payload)
            assert good.message().payload == payload
            most = max(most, memory_mb(server.pid))
    wait_until(lambda: sum("Slow Consumer" in line for line in list(server.log)) >= 3, "they are not cut off")
    assert most - before < 100
    assert probe.median_s < SLOW_S
    for one in lazy:
        one.close()


def test_one_that_never_reads_is_cut_off_by_time(server: ServerProcess) -> None:
    publisher = Client(server.port)
    lazy = unread(server.port, "late")
    began = time.monotonic()
    seen = len(server.log)
    for _ in range(70):
        publisher.publish("late", bytes(100_000))  # 7 MB: more than the socket takes, less than may wait
    publisher.ping()
    wait_until(lambda: any("WriteDeadline" in line for line in server.log[seen:]), "it is not cut off")
    assert time.monotonic() - began > 1.5
    lazy.close()


def test_a_slow_reader_that_reads_is_not_cut_off(server: ServerProcess) -> None:
    """It was once cut off after the deadline for one write, however much it had read meanwhile."""
    publisher = Client(server.port)
    seen = len(server.log)
    slow = unread(server.port, "steady", small=False)
    slow.setblocking(False)
    is_over = threading.Event()
    taken = 0

    def read() -> None:
        nonlocal taken
        while not is_over.is_set():
            try:
                taken += len(slow.recv(100_000))
            except BlockingIOError:
                pass
            time.sleep(0.02)  # at most 5 MB a second

    reader = threading.Thread(target=read)
    reader.start()
    try:
        until, given = time.monotonic() + 4, 0
        while time.monotonic() < until:
            if given - taken < 7 * MB:  # always more than the socket takes
                publisher.publish("steady", bytes(100_000))
                publisher.ping()
                given += 100_000
            else:
                time.sleep(0.005)
    finally:
        is_over.set()
        reader.join()
    assert taken > 5 * MB
    assert not [line for line in server.log[seen:] if "Slow Consumer" in line]
    slow.close()


def test_pongs_that_nobody_reads_are_bounded_too(server: ServerProcess) -> None:
    """They piled up without a bound until the write deadline."""
    before = memory_mb(server.pid)
    lazy = unread(server.port)
    lazy.settimeout(10)
    most, seen = 0.0, len(server.log)
    with Probe(server.port) as probe:
        try:
            for _ in range(60):
                lazy.sendall(b"PING\r\n" * 170_000)
                most = max(most, memory_mb(server.pid))
        except OSError:
            pass  # it was cut off, as expected
    wait_until(lambda: any("Slow Consumer" in line for line in server.log[seen:]), "it is not cut off")
    assert most - before < 80
    assert probe.median_s < SLOW_S
    lazy.close()


@pytest.mark.parametrize(
    "line",
    [b"PUB $NRG.x 0\r\n\r\n", b"CONNECT {}\r\n", b"SUB a..b 9\r\n", b"INFO {}\r\n", b"PUB fi a.$FI 0\r\n\r\n"],
)
def test_mistakes_without_end_are_told_after_the_others_have_been_served(server: ServerProcess, line: bytes) -> None:
    """Handling a read of fifteen thousand of them took a second, in which nobody else was served."""
    before = memory_mb(server.pid)
    bad = Client(server.port, "_INBOX.bad")
    if b"$FI" in line:
        bad.create("FI", "fi")
    bad._socket.settimeout(0.4)
    with Probe(server.port) as probe:
        try:
            while len(probe.rounds) < 400:
                bad._socket.sendall(line * (MB // len(line)))
        except TimeoutError:
            pass  # the server does not read it as fast as it sends
    assert probe.median_s < 0.2
    assert probe.worst_s < STUCK_S
    assert memory_mb(server.pid) - before < 40


def test_one_that_is_closed_and_does_not_read_is_not_waited_for(server: ServerProcess) -> None:
    """Its socket stayed open for good, with all its pending bytes."""
    before = fd_count(server)
    publisher = Client(server.port)
    lazy = [unread(server.port, "last") for _ in range(5)]
    for _ in range(40):
        publisher.publish("last", bytes(100_000))
    publisher.ping()
    for one in lazy:
        one.sendall(b"GARBAGE\r\n")
    wait_until(lambda: fd_count(server) <= before + 1, "their sockets stay open")
    for one in lazy:
        one.close()


def test_too_few_descriptors_for_a_crowd_leave_those_who_are_there_alone(server: ServerProcess) -> None:
    there = Client(server.port)
    there.create("FD", "fd.>")
    assert there.ask("fd.1", b"x")["seq"] == 1
    used = fd_count(server)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 20, 20_000))
    try:
        crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        rounds = [there.ping() for _ in range(50)]
        assert sorted(rounds)[25] < SLOW_S
        assert there.ask("fd.1", b"x")["seq"] == 2
        for one in crowd:
            one.close()
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (20_000, 20_000))

    def is_welcome() -> bool:
        try:
            Client(server.port).ping()
        except (Closed, OSError):
            return False
        return True

    wait_until(is_welcome, "nobody is let in any more")
    assert there.ask("fd.1", b"x")["seq"] == 3


def test_many_publishers_at_once_lose_nothing(server: ServerProcess) -> None:
    subscribers = [Client(server.port, f"_INBOX.h{n}") for n in range(4)]
    for one in subscribers:
        one.send(b"SUB many.> 2\r\n")
        one.ping()

    def publish(name: int) -> None:
        client = Client(server.port, f"_INBOX.p{name}")
        for n in range(0, 500, 50):
            client.send(b"".join(client.pub(f"many.{name}", b"%d" % (n + m)) for m in range(50)))
        client.ping()

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for one in subscribers:
        found: dict[bytes, list[int]] = {}
        for _ in range(4000):
            frame = one.message(20)
            found.setdefault(frame.subject, []).append(int(frame.payload))
        assert found == {b"many.%d" % n: list(range(500)) for n in range(8)}
    for thread in threads:
        thread.join()


def test_subscriptions_without_end_are_given_back(server: ServerProcess) -> None:
    def fill() -> None:
        client = Client(server.port)
        for start in range(0, 40_000, 1000):
            client.send(b"".join(b"SUB s.%d.%d q%d %d\r\n" % (n % 97, n, n % 5, n) for n in range(start, start + 1000)))
        client.ping()
        client.close()

    fill()
    before = memory_mb(server.pid)
    with Probe(server.port) as probe:
        for _ in range(4):
            fill()
    assert memory_mb(server.pid) - before < 40
    assert probe.median_s < SLOW_S


def test_what_many_had_subscribed_to_is_kept_of_the_last_ones_alone(server: ServerProcess) -> None:
    """For monitoring: ten thousand closed connections with a thousand subscriptions each took three gigabytes."""
    lines = b"".join(b"SUB some.subject.%d queue%d %d\r\n" % (n, n % 7, n) for n in range(1024))
    before = memory_mb(server.pid)
    for _ in range(250):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(b'CONNECT {"verbose":false}\r\n' + lines + b"PING\r\n")
        found = b""
        while b"PONG" not in found:
            found = found[-10:] + client.recv(65536)
        client.close()
    assert memory_mb(server.pid) - before < 60
