"""How a nats-py user works with a server, step by step; `note` records the outcome of each step for comparison.

A scene is `async def scene(client, note)`: it may use any stream name, and leaves no stream behind.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
from collections.abc import Awaitable, Callable
from typing import Any

from nats import micro
from nats.aio.client import Client
from nats.errors import Error, MsgAlreadyAckdError
from nats.js import api
from nats.js.errors import Error as JetStreamError


def plain(value: Any) -> Any:
    """`value` with times and ids, which differ from run to run, replaced by a word."""
    if isinstance(value, datetime.datetime):
        return "TIME"
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


class Notes:
    """The steps of a scene and their outcomes, in order."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Any]] = []

    async def __call__(self, name: str, step: Awaitable[Any], view: Callable[[Any], Any] = plain) -> Any:
        """Record the result of `step`, or how it failed."""
        try:
            value = await step
        except (Error, JetStreamError, TimeoutError, ValueError) as e:
            # One timer's error shows the whole message; the other's has some text or none. Which one fires first
            # varies.
            text = "" if isinstance(e, MsgAlreadyAckdError | TimeoutError) else f": {e}"
            self.found.append((name, f"{type(e).__name__}{text}"))
            return None
        self.found.append((name, plain(view(value))))
        return value


def stored(message: api.RawStreamMsg) -> Any:
    headers = {k: v for k, v in (message.headers or {}).items() if k != "Nats-Time-Stamp"}
    return message.seq, message.subject, message.data, headers


async def core(client: Client, note: Notes) -> None:
    """Publish, subscribe, request, queue groups, headers, unsubscribe."""

    async def echo(message: Any) -> None:
        await client.publish(message.reply, message.data, headers=message.headers)

    def reply(message: Any) -> Any:
        return message.data, message.headers

    await client.subscribe("echo", cb=echo)
    await note("nobody answers", client.request("nobody", b"x", timeout=5))
    await note("echo", client.request("echo", b"hello", timeout=5), reply)
    await note("echo with headers", client.request("echo", b"", headers={"A": "1", "b": "two words"}, timeout=5), reply)
    await note("old style", client.request("echo", b"old", old_style=True, timeout=5), reply)
    many = await asyncio.gather(*(client.request("echo", b"%d" % n, timeout=10) for n in range(200)))
    assert [m.data for m in many] == [b"%d" % n for n in range(200)]

    counts = [0, 0, 0]

    def worker(n: int) -> Callable[[Any], Awaitable[None]]:
        async def count(_: Any) -> None:
            counts[n] += 1

        return count

    workers = [await client.subscribe("work.>", queue="q", cb=worker(n)) for n in range(3)]
    everything = await client.subscribe("work.*")
    for n in range(300):
        await client.publish(f"work.{n}")
    await client.flush()
    received = [(await everything.next_msg(timeout=5)).subject for _ in range(300)]
    assert received == [f"work.{n}" for n in range(300)]
    for each in workers:
        await each.drain()
    assert sum(counts) == 300 and min(counts) > 30
    await everything.unsubscribe()

    limited = await client.subscribe("limited")
    await limited.unsubscribe(limit=2)
    for n in range(4):
        await client.publish("limited", b"%d" % n)
    await client.flush()
    first, second = await limited.next_msg(timeout=5), await limited.next_msg(timeout=5)
    assert (first.data, second.data) == (b"0", b"1")
    size = client.max_payload
    await note("the largest", client.request("echo", b"x" * size, timeout=10), lambda m: len(m.data))
    await note("too large", client.publish("echo", b"x" * (size + 1)))


def account(info: api.AccountInfo) -> Any:
    """Account information without the number of API requests: some scenes poll until an event arrives."""
    return {**plain(info), "api": info.api.level}


async def management(client: Client, note: Notes) -> None:
    """Streams: created, changed, listed, purged, deleted; messages fetched and deleted."""
    js = client.jetstream()
    await note("nothing", js.account_info(), account)
    await note("no stream", js.stream_info("NONE"))
    await note("add", js.add_stream(name="S", subjects=["s.>"], description="a stream", metadata={"a": "b"}))
    await note("add the same", js.add_stream(name="S", subjects=["s.>"], description="a stream", metadata={"a": "b"}))
    await note("add another", js.add_stream(name="S", subjects=["t.>"]))
    await note("overlap", js.add_stream(name="T", subjects=["s.x"]))
    config = api.StreamConfig(
        name="M",
        subjects=["m.*"],
        storage=api.StorageType.MEMORY,
        discard=api.DiscardPolicy.NEW,
        retention=api.RetentionPolicy.LIMITS,
        max_msgs=10,
        max_msgs_per_subject=2,
        max_age=3600,
        duplicate_window=30,
        allow_direct=True,
    )
    await note("memory", js.add_stream(config))
    for n in range(10):
        await js.publish(f"s.{n % 3}", b"%d" % n)
    await note("info", js.stream_info("S", subjects_filter=">"))
    await note("update", js.update_stream(name="S", subjects=["s.>", "more"], max_msgs=8))
    await note("update wrongly", js.update_stream(name="S", subjects=["s.>"], storage=api.StorageType.MEMORY))
    await note("get", js.get_msg("S", 4), stored)
    await note("get the last", js.get_last_msg("S", "s.1"), stored)
    await note("get the next", js.get_msg("S", subject="s.2", next=True, seq=5), stored)
    await note("get what is gone", js.get_msg("S", 1))
    await note("delete a message", js.delete_msg("S", 5))
    await note("delete it again", js.delete_msg("S", 5))
    await note("purge a subject", js.purge_stream("S", subject="s.0"))
    await note("purge to", js.purge_stream("S", seq=6))
    await note("purge, keep", js.purge_stream("S", keep=1))
    await note("state", js.stream_info("S"))
    await note("list", js.streams_info(), lambda found: [(i.config.name, i.state.messages) for i in found])
    await note("find", js.find_stream_name_by_subject("m.1"))
    await note("find none", js.find_stream_name_by_subject("x"))
    await note("account", js.account_info(), account)
    await note("delete", js.delete_stream("S"))
    await note("delete again", js.delete_stream("S"))
    await note("delete memory", js.delete_stream("M"))


async def publishing(client: Client, note: Notes) -> None:
    """Acknowledgements, ids, expectations, headers, TTLs, many at once."""
    js = client.jetstream()
    await js.add_stream(name="P", subjects=["p.>"], max_msg_size=5000, allow_msg_ttl=True)
    await note("publish", js.publish("p.a", b"one"))
    await note("for this stream", js.publish("p.a", b"two", stream="P"))
    await note("for another", js.publish("p.a", b"two", stream="Q"))
    await note("nobody stores it", js.publish("q", b"x", timeout=5))
    for name in ("an id", "the id again"):
        await note(name, js.publish("p.a", b"x", headers={"Nats-Msg-Id": "1"}))
    for header, value in (
        ("Nats-Expected-Last-Sequence", "3"),
        ("Nats-Expected-Last-Sequence", "1"),
        ("Nats-Expected-Last-Subject-Sequence", "4"),
        ("Nats-Expected-Last-Subject-Sequence", "4"),
        ("Nats-Expected-Last-Msg-Id", "none"),
        ("Nats-Rollup", "all"),
        ("Nats-Rollup", "other"),
        ("Nats-TTL", "1h"),
        ("Nats-TTL", "-5"),
    ):
        await note(f"{header}: {value}, {len(note.found)}", js.publish("p.a", b"x", headers={header: value}))
    await note("msg_ttl", js.publish("p.t", b"x", msg_ttl=60.0))
    await note("too large", js.publish("p.a", b"x" * 5001))
    await note("headers", js.publish("p.h", b"headed", headers={"Color": "red", "Empty": ""}))
    await note("headers stored", js.get_last_msg("P", "p.h"), stored)
    futures = [await js.publish_async(f"p.many.{n % 5}", b"%d" % n) for n in range(500)]
    acks = await asyncio.gather(*futures)
    assert [ack.seq - acks[0].seq for ack in acks] == list(range(500))
    await note("state", js.stream_info("P"))
    await js.delete_stream("P")


async def direct(client: Client, note: Notes) -> None:
    """Direct gets: messages fetched without the API's JSON."""
    js = client.jetstream()
    await js.add_stream(name="D", subjects=["d.*"], allow_direct=True)
    for n in range(9):
        await js.publish(f"d.{n % 3}", b"%d" % n, headers={"N": str(n)} if n % 2 else None)
    await js.delete_msg("D", 4)
    await note("by seq", js.get_msg("D", 2, direct=True), stored)
    await note("last", js.get_last_msg("D", "d.0", direct=True), stored)
    await note("next", js.get_msg("D", 2, subject="d.0", next=True, direct=True), stored)
    await note("deleted", js.get_msg("D", 4, direct=True))
    await note("past the end", js.get_msg("D", 40, direct=True))
    await note("no subject", js.get_last_msg("D", "d.7", direct=True))
    await js.delete_stream("D")


async def services(client: Client, note: Notes) -> None:
    """A service with two instances: requests, discovery, statistics."""

    async def add(request: Any) -> None:
        if not request.data:
            await request.respond_error("400", "nothing to add")
            return
        await request.respond(b"%d" % sum(map(int, request.data.split())))

    made = []
    for version in ("1.0.0", "1.0.1"):
        service = await micro.add_service(client, name="adder", version=version, description="adds")
        await service.add_endpoint(name="add", handler=add)
        await service.add_group(name="math").add_endpoint(name="sum", handler=add)
        made.append(service)
    await note("add", client.request("add", b"1 2 3", timeout=5), lambda m: m.data)
    await note("sum", client.request("math.sum", b"4 5", timeout=5), lambda m: m.data)
    await note("an error", client.request("add", b"", timeout=5), lambda m: (m.data, m.headers))
    for verb in ("PING", "INFO", "STATS"):
        for name in ("", ".adder", f".adder.{made[0].id}"):
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            await client.publish(f"$SRV.{verb}{name}", reply=inbox)
            received = [await answers.next_msg(timeout=5) for _ in range(2 - name.count(".") // 2)]
            await answers.unsubscribe()
            assert all(b'"adder"' in m.data for m in received)
    counted = [endpoint.num_requests for service in made for endpoint in service.stats().endpoints]
    assert sum(counted) == 3
    for service in made:
        await service.stop()
    await note("it is gone", client.request("add", b"1", timeout=5))


SCENES = [core, management, publishing, direct, services]
