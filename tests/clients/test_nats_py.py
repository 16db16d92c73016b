"""nats-py as its users use it: the same scenes on the real server and ours, then servers that restart, or shut out.

A subscriber that is too slow is cut off by its own client here; the server's side is in tests/parity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import nats
import nkeys
import pytest
from nats.aio.client import Client
from nats.errors import Error, MaxPayloadError, SlowConsumerError
from nats.js import api

from support import nats_py_buckets, nats_py_consumers, nats_py_scenes
from support.certificates import Authority
from support.nats_py_scenes import Notes
from support.servers import BASE, JETSTREAM, Kind, ServerProcess

pytestmark = pytest.mark.nats_py

SEED = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
KEY = nkeys.from_seed(bytearray(SEED)).public_key.decode()

SCENES = [*nats_py_scenes.SCENES, *nats_py_consumers.SCENES, *nats_py_buckets.SCENES]

kinds = pytest.mark.parametrize("kind", ["real", "ours"])


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[Kind, ServerProcess]]:
    with ServerProcess("real", BASE + JETSTREAM) as real, ServerProcess("ours", BASE + JETSTREAM) as ours:
        yield {"real": real, "ours": ours}


def run(server: ServerProcess, body: Callable[[Client], Awaitable[Any]], scheme: str = "nats", **options: Any) -> Any:
    """What `body` gives, with a client of this server that heard no error meanwhile."""

    async def main() -> Any:
        errors: list[Exception] = []

        async def note(error: Exception) -> None:
            errors.append(error)

        options.setdefault("error_cb", note)
        client = await nats.connect(
            f"{scheme}://localhost:{server.port}", **{"allow_reconnect": False, "connect_timeout": 5, **options}
        )
        try:
            found = await asyncio.wait_for(body(client), 20)
        finally:
            await client.close()
        assert errors == []
        return found

    return asyncio.run(main())


async def settle(client: Client) -> None:
    """Until the server has all that was sent: nats-py's PING overtakes what waits in the client, so two of them."""
    await client.flush()
    await client.flush()


# A watcher of nats-py asks how many messages are left when the last of them may be on its way already; then it takes a
# bucket for empty, of either server, and what follows is another story. A difference is one that comes every time.
TRIES = {"watching": 4}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_nats_py_hears_the_same_from_both_servers(scene: Any, servers: dict[Kind, ServerProcess]) -> None:
    def hear(server: ServerProcess) -> dict[str, Any]:
        notes = Notes()
        run(server, lambda client: scene(client, notes))
        received = dict(notes.found)
        assert len(received) == len(notes.found), "a step is noted once"
        return received

    for _ in range(TRIES.get(scene.__name__, 1)):
        with ThreadPoolExecutor(2) as both:  # most scenes wait for the clock now and then
            real, ours = both.map(hear, (servers["real"], servers["ours"]))
        assert list(ours) == list(real)
        different = {step: (ours[step], said) for step, said in real.items() if ours[step] != said}
        if not different:
            break
    assert different == {}


@kinds
def test_a_client_comes_back_to_a_server_that_was_killed_and_started_again(kind: Kind) -> None:
    """It subscribes anew by itself, what it published meanwhile arrives, and the stream has what was acknowledged."""

    async def body(client: Client) -> None:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        for n in range(50):
            await js.publish("s", b"%d" % n)
        received = await client.subscribe("after")
        await asyncio.to_thread(server.restart, True)
        await client.publish("after", b"in between")
        assert (await received.next_msg(timeout=10)).data == b"in between"
        ack = await js.publish("s", b"after", timeout=10)
        assert ack.seq == 51
        assert (await js.get_msg("S", 50)).data == b"49"
        assert client.stats["reconnects"] == 1

    with ServerProcess(kind, BASE + JETSTREAM) as server:
        server.configure(server.config.replace("port: -1", f"port: {server.port}"))

        async def ignore(_: Exception) -> None:
            """That the connection was lost is what this is about."""

        run(server, body, allow_reconnect=True, reconnect_time_wait=0.05, max_reconnect_attempts=-1, error_cb=ignore)


@kinds
def test_consumers_go_on_after_a_restart_and_ours_after_a_kill(kind: Kind) -> None:
    """What was acknowledged for certain does not come again; the rest does; a push consumer finds its subscriber.

    The real server writes a consumer's state down later: killed, it delivers again what it has confirmed the ack of.
    """

    async def body(client: Client) -> None:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.*"])
        pull = await js.pull_subscribe("s.*", durable="pull", config=api.ConsumerConfig(ack_wait=1))
        push = await js.subscribe("s.*", durable="push", config=api.ConsumerConfig(max_ack_pending=100))
        for n in range(30):
            await js.publish(f"s.{n}", b"%d" % n)
        held = await pull.fetch(20, timeout=10)
        for message in held[:10]:
            await message.ack_sync(timeout=10)
        for _ in range(30):
            await (await push.next_msg(timeout=10)).ack_sync(timeout=10)
        await asyncio.to_thread(server.restart, kind == "ours")
        await client.flush(timeout=10)
        left = set(range(10, 30))
        while left:
            for message in await pull.fetch(len(left), timeout=10):
                left.remove(int(message.data))
                await message.ack_sync(timeout=10)
        await js.publish("s.new", b"new", timeout=10)
        assert (await push.next_msg(timeout=10)).data == b"new"
        info = await pull.consumer_info()
        assert (info.num_ack_pending, info.num_pending, info.ack_floor.stream_seq) == (0, 1, 30)

    with ServerProcess(kind, BASE + JETSTREAM) as server:
        server.configure(server.config.replace("port: -1", f"port: {server.port}"))

        async def ignore(_: Exception) -> None:
            """That the connection was lost is what this is about."""

        run(server, body, allow_reconnect=True, reconnect_time_wait=0.05, max_reconnect_attempts=-1, error_cb=ignore)


@kinds
def test_a_client_that_drains_answers_everything_that_has_come(kind: Kind, servers: dict[Kind, ServerProcess]) -> None:
    async def body(client: Client) -> None:
        worker = await nats.connect(client.connected_url.geturl())

        async def answer(message: Any) -> None:
            await asyncio.sleep(0)
            await message.respond(message.data)

        await worker.subscribe("work", queue="q", cb=answer)
        await settle(worker)
        asked = [asyncio.create_task(client.request("work", b"%d" % n, timeout=10)) for n in range(200)]
        first = await asked[0]
        await settle(client)
        await worker.drain()
        assert first.data == b"0"
        assert [(await task).data for task in asked] == [b"%d" % n for n in range(200)]
        assert worker.is_closed

    run(servers[kind], body)


@kinds
def test_tls_and_an_nkey(kind: Kind, tmp_path: Any) -> None:
    authority = Authority(tmp_path)
    authority.server()
    files = f'cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.key"'
    config = BASE + JETSTREAM + f"tls {{ {files} }}\nauthorization {{ users: [{{nkey: {KEY}}}] }}\n"
    context = authority.client_context()

    async def body(client: Client) -> None:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        assert [(await js.publish("s", b"x" * 500_000)).seq for _ in range(4)] == [1, 2, 3, 4]
        assert (await js.get_msg("S", 4)).data == b"x" * 500_000

    with ServerProcess(kind, config) as server:
        run(server, body, "tls", tls=context, nkeys_seed_str=SEED.decode())
        with pytest.raises(Error, match="Authorization Violation"):
            run(server, body, "tls", tls=context)


@kinds
def test_a_token_and_a_bound_on_payloads(kind: Kind) -> None:
    config = BASE + "authorization { token: secret }\nmax_payload: 4KB\n"

    async def body(client: Client) -> None:
        assert client.max_payload == 4096
        subscription = await client.subscribe("a")
        await client.publish("a", b"x" * 4096)
        assert len((await subscription.next_msg(timeout=5)).data) == 4096
        with pytest.raises(MaxPayloadError):
            await client.publish("a", b"x" * 4097)

    with ServerProcess(kind, config) as server:
        run(server, body, token="secret")
        with pytest.raises(Error, match="Authorization Violation"):
            run(server, body, token="wrong")


@kinds
def test_messages_of_eight_megabytes_go_to_subscribers_and_streams(kind: Kind) -> None:
    payload = bytes(range(256)) * 32_700

    async def body(client: Client) -> None:
        js = client.jetstream()
        await js.add_stream(name="BIG", subjects=["big"], allow_direct=True)
        subscription = await client.subscribe("big", pending_bytes_limit=64 << 20)
        for seq in (1, 2):
            assert (await js.publish("big", payload, timeout=10)).seq == seq
            assert (await subscription.next_msg(timeout=10)).data == payload
        assert (await js.get_msg("BIG", 2, direct=True)).data == payload

    with ServerProcess(kind, BASE + JETSTREAM + "max_payload: 8MB\n") as server:
        run(server, body)


@kinds
def test_a_slow_subscriber_loses_messages_in_its_client_and_stays_connected(
    kind: Kind, servers: dict[Kind, ServerProcess]
) -> None:
    errors: list[Exception] = []

    async def note(error: Exception) -> None:
        errors.append(error)

    async def body(client: Client) -> int:
        slow = await client.subscribe("fast", pending_msgs_limit=10)
        for n in range(100):
            await client.publish("fast", b"%d" % n)
        await settle(client)
        received = [(await slow.next_msg(timeout=5)).data for _ in range(10)]
        assert received == [b"%d" % n for n in range(10)] and slow.pending_msgs == 0
        await client.publish("fast", b"later")
        assert (await slow.next_msg(timeout=5)).data == b"later"
        return len(errors)

    assert run(servers[kind], body, error_cb=note) == 90
    assert all(isinstance(e, SlowConsumerError) for e in errors)
