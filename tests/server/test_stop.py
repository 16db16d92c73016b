"""The end of a server as its clients see it: every accepted request is answered, and no client is told that what it
asks for does not exist.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import nats.errors
import nats.js.api
import nats.js.errors
import pytest

import penstock
from penstock.server.embedded import EmbeddedServer
from penstock.testing import CrashDisk
from support.attack import Client
from support.servers import Kind, ServerProcess
from support.wire_client import Frame, Silent

CONFIG = """\
host: 127.0.0.1
port: -1
jetstream { store_dir: "$DIR", max_mem: 64MB, max_file: 1GB, domain: hub }
lame_duck_grace_period: "20s"
lame_duck_duration: "30s"
"""
SILENCE_S = 0.3


def wait_until(is_so: Callable[[], Any]) -> None:
    is_over = threading.Event()
    while not is_so():
        assert not is_over.wait(0.001)


def consume(client: Client, name: str, **config: Any) -> None:
    config = {"durable_name": name, "ack_policy": "explicit"} | config
    found = client.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
    assert "error" not in found, found


# Lame duck mode: as in nats-server.


def answers_of_a_lame_duck(kind: Kind) -> dict[str, bytes]:
    pull = b'{"batch":1,"no_wait":true}'
    with ServerProcess(kind, CONFIG) as server:
        client = Client(server.port)
        client.create("S", "s.>", allow_direct=True)
        client.create("KV_B", "$KV.B.>")
        consume(client, "c")
        client.ask("s.x", b"x")
        client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"", "_INBOX.me.m")
        ack = str(client.message().reply, "ascii")
        server.signal(12)
        assert server.wait_for_log("JetStream Shutdown")
        client.ping()
        found = {}
        for subject, payload in [
            ("$JS.API.INFO", b""), ("$JS.API.STREAM.INFO.S", b""), ("$JS.API.STREAM.CREATE.T", b'{"name":"T"}'),
            ("$JS.API.STREAM.MSG.GET.S", b'{"seq":1}'), ("$JS.API.NO.SUCH", b""), ("$JS.hub.API.INFO", b""),
            ("$JS.API.CONSUMER.MSG.NEXT.S.c", pull), ("$JS.API.CONSUMER.MSG.NEXT.S.nope", pull),
            ("$JS.hub.API.CONSUMER.MSG.NEXT.S.c", pull), ("$JS.API.DIRECT.GET.S", b'{"seq":1}'),
            ("$JS.API.DIRECT.GET.S.s.x", b""), ("s.y", b"x"), ("$KV.B.k", b"x"), ("$JS.hub.API.$KV.B.k", b"x"),
            (ack, b"+ACK"), (ack, b"+NXT"), ("nobody", b""),
        ]:  # fmt: skip
            name = f"{subject if subject != ack else 'ack'} {payload.decode()}"
            try:
                answer = client.request(subject, payload, wait=SILENCE_S)
                found[name] = (answer.headers or b"").partition(b"\r\n")[0] + answer.payload
            except Silent:
                found[name] = b"nothing"
        server.signal(9)
        return found


def test_in_lame_duck_mode_each_kind_of_request_hears_what_it_does_from_nats_server() -> None:
    """API requests are not answered, other requests get "no responders"; Penstock once answered all of them with "no
    responders".
    """
    assert answers_of_a_lame_duck("ours") == answers_of_a_lame_duck("real")


# The stop.


@pytest.fixture
def disk(tmp_path: Path) -> CrashDisk:
    return CrashDisk(str(tmp_path))


@pytest.fixture
def server(tmp_path: Path, disk: CrashDisk) -> Iterator[EmbeddedServer]:
    with (
        penstock.open(tmp_path / "data", disk=disk) as db,
        penstock.Server(database=db) as running,
    ):
        yield running
        disk.release()


def stop(server: EmbeddedServer) -> None:
    """Begin to stop; it waits for the disk when this returns."""
    jetstream = server.server.jetstream
    assert jetstream is not None
    asyncio.run_coroutine_threadsafe(server.server.stop(), server.server.loop)
    wait_until(lambda: jetstream._shutdown_replies is not None)


def statuses(frames: list[Frame]) -> list[bytes]:
    return [frame.headers.partition(b"\r\n")[0] for frame in frames if frame.headers]


def test_what_comes_while_the_server_stops_is_not_told_that_nobody_is_there(
    server: EmbeddedServer, disk: CrashDisk
) -> None:
    """A client takes 503 for a pull request as "no such consumer" and gives up; the same for 409 Consumer Deleted."""
    client = Client(server.port)
    client.create("S", "s.>", allow_direct=True)
    client.create("M", "m.>", storage="memory")
    consume(client, "c", filter_subject="s.none")
    consume(client, "d")
    client.ask("s.x", b"1")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.d", b"", "_INBOX.me.m")
    ack = str(client.message().reply, "ascii")
    with disk.holding("sync_file"):
        client.publish("s.x", b"2", "_INBOX.me.held")
        disk.wait_held()
        stop(server)
        for n, (subject, payload) in enumerate(
            [
                ("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":1,"expires":60000000000}'),
                ("$JS.API.CONSUMER.MSG.NEXT.S.nope", b""),
                ("$JS.API.STREAM.INFO.S", b""),
                ("$JS.API.CONSUMER.INFO.S.c", b""),
                ("$JS.API.STREAM.CREATE.T", b'{"name":"T"}'),
                ("$JS.API.DIRECT.GET.S", b'{"seq":1}'),
                ("s.x", b"3"),
                ("m.x", b"4"),
                (ack, b"+ACK"),
                ("$JS.ACK.S.d.1.1.1.1.0", b"+ACK"),
            ]
        ):
            client.publish(subject, payload, f"_INBOX.me.{n}")
        client.ping()  # all of it was read
    frames = client.kept() + [frame for frame in client.drain() if frame.verb in ("MSG", "HMSG")]
    assert set(statuses(frames)) <= {b"NATS/1.0 409 Server Shutdown"}, frames
    answered = {frame.subject.rpartition(b".")[2]: frame.payload for frame in frames}
    assert json.loads(answered[b"held"])["seq"] == 2, "what was taken is durable, and answered"
    assert b"0" in answered, "who waits for messages is told why there are none"
    for name in (b"1", b"2", b"3", b"4", b"5"):
        assert name not in answered


def test_acks_that_become_durable_while_the_server_stops_are_answered(server: EmbeddedServer, disk: CrashDisk) -> None:
    """Of streams they were; who waited for the ack of an ack was cut off without a word."""
    client = Client(server.port)
    client.create("S", "s.>")
    consume(client, "c")
    client.ask("s.x", b"1")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"", "_INBOX.me.m")
    ack = str(client.message().reply, "ascii")
    with disk.holding("sync_file"):
        client.publish(ack, b"+ACK", "_INBOX.me.acked")
        client.ping()
        stop(server)
        disk.wait_held()
    frames = client.kept() + client.drain()
    assert b"_INBOX.me.acked" in [frame.subject for frame in frames]
    assert b"NATS/1.0 503" not in statuses(frames)


@pytest.mark.parametrize("kind", ["ours", "real"])
def test_nats_py_goes_on_after_a_restart_in_the_middle_of_its_requests(kind: Kind) -> None:
    """It fetches in a loop, and must notice a restart only as a pause."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    config = CONFIG.replace("port: -1", f"port: {port}")

    async def work(server: ServerProcess) -> list[str]:
        async def pass_over(error: Exception) -> None:
            """It cannot connect at the moment."""

        url = f"nats://127.0.0.1:{port}"
        nc = await nats.connect(url, reconnect_time_wait=0.05, max_reconnect_attempts=-1, error_cb=pass_over)
        js = nc.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        sub = await js.pull_subscribe("s.>", durable="c")
        wanted, seen, refused, is_over = 0, set(), [], False

        async def fetch() -> None:
            while not is_over or len(seen) < wanted:
                try:
                    for message in await sub.fetch(5, timeout=0.2):
                        seen.add(message.data)
                        await message.ack_sync(timeout=1)
                except nats.js.errors.ServiceUnavailableError as error:
                    refused.append(repr(error))
                except (nats.errors.Error, TimeoutError, ConnectionError):
                    continue  # not connected at the moment, or nothing is there

        fetching = asyncio.create_task(fetch())
        for _ in range(3):
            for _message in range(20):
                await js.publish("s.x", b"%d" % wanted)
                wanted += 1
            while len(seen) < wanted:
                await asyncio.sleep(0.01)
            back = asyncio.Event()

            async def come_back(back: asyncio.Event = back) -> None:
                back.set()

            nc._reconnected_cb = come_back
            await asyncio.to_thread(server.restart)
            await asyncio.wait_for(back.wait(), 60)
        is_over = True
        await js.publish("s.x", b"the last")
        wanted += 1
        await asyncio.wait_for(fetching, 60)
        await nc.close()
        return refused

    with ServerProcess(kind, config) as server:
        refused = asyncio.run(work(server))
    if kind == "ours":  # the reference's consumers go before its connections: it may tell
        assert refused == []
