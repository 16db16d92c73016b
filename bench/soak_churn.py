"""The changing load of the soak: streams with their consumers, connections, subscriptions, buckets and object stores.

A cycle creates something, uses it and deletes it in one of several randomly chosen ways; `start` runs all cycles
concurrently until the load is over.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, DiscardPolicy, StorageType, StreamConfig
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError

from bench.soak_base import STREAM as BASE
from bench.soak_base import fetch
from bench.soak_load import Cycle, Load, check, jetstream, refused
from bench.soak_wire import WAIT_S, Out, Wire

FILE_STREAMS, MEMORY_STREAMS = 6, 3  # that live at the same time
AT_ONCE = 24  # streams in the beginning: as many as make the server start all threads that it ever starts
NAMES = 40  # a name comes again after so many others
ROUNDS = (3, 8)
INACTIVE_S = 2.0  # after which an ephemeral consumer goes by itself
VISIT_S_MAX = 10.0  # the same for one that is deleted before
SUBSCRIPTIONS = 300
KEYS = (10, 60)
OBJECT_SIZE = (1, 600 << 10)
FILL = (50, 600)
GONE = (10037, 10043, 10057)  # err_codes: there is no such message
FULL = (10077, 10122)  # err_codes: a limit is reached


@dataclass(slots=True)
class Life:
    """A stream between its creation and its end, and who uses it."""

    load: Load
    chance: random.Random
    js: JetStreamContext
    wire: Wire
    name: str
    filled: int = 0

    def payload(self, size_max: int = 400) -> bytes:
        return self.chance.randbytes(self.chance.randint(0, size_max))

    def subject(self) -> str:
        """One of a few, or one of its own."""
        n = self.filled if self.chance.random() < 0.5 else self.chance.randrange(10)
        return f"{self.name}.{self.chance.choice('abc')}.{n}"


# Streams.


async def stream_life(load: Load, client: Client, chance: random.Random, name: str, storage: StorageType) -> None:
    """A stream with random limits, some operations on it, and its deletion."""
    js = jetstream(client)
    config = _stream_config(chance, name, storage)
    await js.add_stream(config)
    load.did("streams made")
    try:
        async with await load.wire() as wire:
            life = Life(load, chance, js, wire, name)
            await fill(life)
            for _ in range(chance.randint(*ROUNDS)):
                act = chance.choice(ACTS)
                await act(life)
                load.did(act.__name__.replace("_", " "))
                if await load.pause(chance.uniform(0.1, 0.5)):
                    break
    finally:
        await js.delete_stream(name)


def _stream_config(chance: random.Random, name: str, storage: StorageType) -> StreamConfig:
    limits: dict[str, Any] = chance.choice(
        [
            {},
            {"max_msgs": chance.randint(10, 500)},
            {"max_bytes": chance.randint(10_000, 100_000)},
            {"max_age": 2.0},
            {"max_msgs_per_subject": chance.randint(1, 3)},
            {"max_msgs": 300, "max_msgs_per_subject": 1, "max_age": 2.0},
        ]
    )
    return StreamConfig(
        name=name,
        subjects=[f"{name}.>"],
        storage=storage,
        duplicate_window=1.0,
        allow_direct=True,
        **limits,
    )


async def fill(life: Life) -> None:
    outs = []
    for _ in range(life.chance.randint(*FILL)):
        life.filled += 1
        outs.append(Out(life.subject(), life.payload()))
    await life.wire.publish(outs)
    life.load.did("churn publishes", len(outs))


async def fill_with_ids(life: Life) -> None:
    """The second time they are duplicates."""
    start = life.filled
    life.filled += 100
    outs = [Out(life.subject(), life.payload(), f"{life.name}-{n}") for n in range(start, life.filled)]
    answers = await life.wire.publish(outs + outs[:20], window=len(outs) + 20)
    again = sum(bool(answer.get("duplicate")) for answer in answers[len(outs) :])
    check(again == 20, f"{again} of 20 were known")


async def fill_large(life: Life) -> None:
    await life.wire.publish([Out(life.subject(), life.chance.randbytes(100_000)) for _ in range(10)])


async def purge(life: Life) -> None:
    state = (await life.js.stream_info(life.name)).state
    wanted: dict[str, Any] = life.chance.choice(
        [{}, {"keep": 5}, {"seq": (state.first_seq + state.last_seq) // 2 or 1}, {"subject": f"{life.name}.a.>"}]
    )
    await life.js.purge_stream(life.name, **wanted)


async def delete_messages(life: Life) -> None:
    (answer,) = await life.wire.publish([Out(life.subject(), b"to be deleted")])
    try:
        await life.js.delete_msg(life.name, answer["seq"])
    except APIError as error:
        check(error.err_code in GONE, f"not deleted: {error}")  # its limits were first
    with refused(NotFoundError):
        await life.js.get_msg(life.name, answer["seq"])


async def get_messages(life: Life) -> None:
    """One that was just stored, by its sequence and as the last of its subject, from the API and directly."""
    out = Out(life.subject(), life.payload())
    (answer,) = await life.wire.publish([out])
    for is_direct in (False, True):
        found = await life.js.get_msg(life.name, answer["seq"], direct=is_direct)
        check((found.data or b"") == out.payload, f"another message at {answer['seq']}: {found}")
        last = await life.js.get_last_msg(life.name, out.subject, direct=is_direct)
        check(last.seq == answer["seq"], f"the last of {out.subject} is {last.seq}, not {answer['seq']}")


async def get_subjects(life: Life) -> None:
    await life.js.stream_info(life.name, subjects_filter=">")
    await life.js.consumers_info(life.name)


async def change_limits(life: Life) -> None:
    config = (await life.js.stream_info(life.name)).config
    config.max_msgs = life.chance.randint(50, 200)
    config.discard = life.chance.choice([DiscardPolicy.OLD, DiscardPolicy.NEW])
    await life.js.update_stream(config)
    answers = await life.wire.ask([Out(life.subject(), life.payload()) for _ in range(250)])
    full = sum(answer.get("error", {}).get("err_code") in FULL for answer in answers)
    others = [answer["error"] for answer in answers if "error" in answer]
    check(len(others) == full, f"refused for another reason: {others[:1]}")
    check(config.discard == DiscardPolicy.NEW or not full, "the oldest are to go, and new ones were refused")
    config.max_msgs, config.discard = -1, DiscardPolicy.OLD
    await life.js.update_stream(config)


# Consumers.


async def pull_durable(life: Life) -> None:
    """Fetched from, acknowledged in part, deleted."""
    await _pull(life, ConsumerConfig(durable_name="d", ack_policy=AckPolicy.EXPLICIT, ack_wait=0.5))
    await life.js.delete_consumer(life.name, "d")


async def pull_ephemeral(life: Life) -> None:
    """It goes by itself, or with the stream."""
    name = f"e{life.chance.randrange(10**6)}"
    await _pull(
        life,
        ConsumerConfig(name=name, inactive_threshold=INACTIVE_S, filter_subject=f"{life.name}.b.>"),
    )


async def _pull(life: Life, config: ConsumerConfig) -> None:
    info = await life.js.add_consumer(life.name, config)
    pull = await life.js.pull_subscribe_bind(info.name, life.name)
    try:
        for _ in range(3):
            for n, message in enumerate(await fetch(pull, 40, 0.2)):
                if n % 10 == 0:
                    await message.nak(delay=0.1)
                elif n % 10 > 2:
                    await message.ack()
        await pull.consumer_info()
    finally:
        await pull.unsubscribe()


async def push_ordered(life: Life) -> None:
    """Reads the stream from its start: as many as there are, in their order."""
    found = await life.js.subscribe(f"{life.name}.>", ordered_consumer=True, inactive_threshold=INACTIVE_S)
    try:
        seq = 0
        for _ in range(50):
            message = await found.next_msg(timeout=0.5)
            at = message.metadata.sequence.stream
            check(at > seq, f"sequence {at} after {seq}")
            seq = at
            if message.metadata.num_pending == 0:
                return
    except TimeoutError:
        pass  # there is nothing, or what came next has expired
    finally:
        await found.unsubscribe()


async def push_durable(life: Life) -> None:
    """With flow control and heartbeats; some is not acknowledged."""
    found = await life.js.subscribe(
        f"{life.name}.>",
        durable="p",
        manual_ack=True,
        flow_control=True,
        idle_heartbeat=0.5,
        config=ConsumerConfig(ack_wait=0.5, max_ack_pending=50),
    )
    try:
        for n in range(100):
            message = await found.next_msg(timeout=0.3)
            if n % 5:
                await message.ack()
    except TimeoutError:
        pass  # there is no more
    finally:
        await found.unsubscribe()
        await life.js.delete_consumer(life.name, "p")


async def leave_consumers(life: Life) -> None:
    """Consumers of all kinds with messages pending, which go with the stream."""
    for policy in (DeliverPolicy.ALL, DeliverPolicy.LAST, DeliverPolicy.NEW, DeliverPolicy.LAST_PER_SUBJECT):
        name = f"left-{policy.value}"
        config = ConsumerConfig(
            durable_name=name,
            deliver_policy=policy,
            filter_subject=f"{life.name}.>",
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=1.0,
            max_deliver=3,
        )
        await life.js.add_consumer(life.name, config)
        pull = await life.js.pull_subscribe_bind(name, life.name)
        await fetch(pull, 20, 0.1)
        await pull.unsubscribe()


ACTS: tuple[Callable[[Life], Awaitable[None]], ...] = (
    fill,
    fill,
    fill_with_ids,
    fill_large,
    purge,
    delete_messages,
    get_messages,
    get_subjects,
    change_limits,
    pull_durable,
    pull_ephemeral,
    push_ordered,
    push_durable,
    leave_consumers,
)


async def consumer_of_base(load: Load, client: Client, chance: random.Random) -> None:
    """A consumer of the stream that stays: of all its subjects, of an eighth of them, or of the last of each."""
    js = jetstream(client)
    config = ConsumerConfig(
        durable_name="visitor" if chance.random() < 0.5 else None,
        deliver_policy=chance.choice([DeliverPolicy.ALL, DeliverPolicy.NEW, DeliverPolicy.LAST_PER_SUBJECT]),
        filter_subject=chance.choice(["base.>", f"base.{chance.randrange(8)}.*", "base.*.*"]),
        ack_policy=chance.choice([AckPolicy.EXPLICIT, AckPolicy.NONE, AckPolicy.ALL]),
        inactive_threshold=VISIT_S_MAX if chance.random() < 0.5 else None,
    )
    info = await js.add_consumer(BASE, config)
    try:
        pull = await js.pull_subscribe_bind(info.name, BASE)
        for message in await fetch(pull, 100, 0.5):
            if config.ack_policy != AckPolicy.NONE and chance.random() < 0.8:
                await message.ack()
        await pull.unsubscribe()
    finally:
        await js.delete_consumer(BASE, info.name)


# Connections and subscriptions.


async def nats_connection(load: Load, client: Client, chance: random.Random) -> None:
    """Connects, subscribes, hears itself, and goes cleanly."""
    visitor = await load.client("visitor")
    try:
        subject = f"visit.{chance.randrange(10**9)}"
        found = await visitor.subscribe(subject)
        await visitor.publish(subject, b"hello")
        check((await found.next_msg(timeout=WAIT_S)).data == b"hello", "it did not hear itself")
        if chance.random() < 0.5:
            await visitor.drain()
    finally:
        if not visitor.is_closed:
            await visitor.close()


async def raw_connection(load: Load, client: Client, chance: random.Random) -> None:
    """Connects and disconnects in one of the ways in which clients do."""
    await chance.choice((_go_with_subscriptions, _go_within_a_payload, _say_nothing, _say_nonsense, _go_while_pulling))(
        load, chance
    )


async def _go_with_subscriptions(load: Load, chance: random.Random) -> None:
    wire = await load.wire()
    try:
        wire.send(b"".join(b"SUB gone.%d.> %d\r\n" % (chance.randrange(10**9), n) for n in range(50)))
        await wire.ping()
    finally:
        wire.abort()


async def _go_within_a_payload(load: Load, chance: random.Random) -> None:
    wire = await load.wire()
    wire.send(b"SUB gone.half 1\r\nPUB gone.half 5000\r\nhalf of it")
    await wire.flush()
    wire.abort()


async def _say_nothing(load: Load, chance: random.Random) -> None:
    wire = await Wire.connect(load.port, hello=b"")
    if chance.random() < 0.5:
        wire.abort()
    else:
        await wire.close()


async def _say_nonsense(load: Load, chance: random.Random) -> None:
    wire = await load.wire()
    wire.send(b"NONSENSE\r\n")
    told = await wire.error()
    check("Unknown Protocol Operation" in told, told)
    await wire.close()


async def _go_while_pulling(load: Load, chance: random.Random) -> None:
    """An ephemeral consumer whose client goes while its pull request waits, and with messages not acknowledged."""
    name = f"gone{chance.randrange(10**9)}"
    wanted = {
        "name": name,
        "ack_policy": "explicit",
        "deliver_policy": "new",
        "inactive_threshold": int(INACTIVE_S * 1e9),
    }
    wire = await load.wire()
    try:
        create = f"$JS.API.CONSUMER.CREATE.{BASE}.{name}"
        (answer,) = await wire.ask([Out(create, json.dumps({"stream_name": BASE, "config": wanted}).encode())])
        check("error" not in answer, f"no consumer: {answer}")
        pull = Out(f"$JS.API.CONSUMER.MSG.NEXT.{BASE}.{name}", b'{"batch":1000,"expires":60000000000}')
        wire.send(b"SUB _INBOX.gone 1\r\n" + pull.frame("_INBOX.gone"))
        check((await wire.frame()).subject.startswith("base."), "it got something else")
    finally:
        wire.abort()


async def subscriptions(load: Load, wire: Wire, chance: random.Random) -> None:
    """On a connection that stays: many come, hear one message each, and go, half of them by themselves."""
    names = [f"sub.{chance.randrange(10**9)}.{n}" for n in range(SUBSCRIPTIONS)]
    lines = [b"SUB %s %d\r\n" % (name.encode(), 100 + n) for n, name in enumerate(names)]
    lines += [b"UNSUB %d 1\r\n" % (100 + n) for n in range(0, SUBSCRIPTIONS, 2)]
    wire.send(b"".join(lines) + b"".join(Out(name, b"x").frame() for name in names))
    heard = await wire.ping()
    check([frame.subject for frame in heard] == names, f"{len(heard)} of {SUBSCRIPTIONS} messages came")
    wire.send(b"".join(b"UNSUB %d\r\n" % (100 + n) for n in range(1, SUBSCRIPTIONS, 2)))
    wire.send(b"".join(Out(name, b"x").frame() for name in names))
    heard = await wire.ping()
    check(not heard, f"{len(heard)} messages came to subscriptions that had gone")


# Buckets.


async def bucket(load: Load, client: Client, chance: random.Random, n: int) -> None:
    """A bucket with a watcher that receives each change."""
    js, name = jetstream(client), f"B{n % NAMES}"
    storage = chance.choice([StorageType.FILE, StorageType.MEMORY])
    kv = await js.create_key_value(
        bucket=name, history=chance.randint(1, 5), storage=storage, ttl=chance.choice([None, 30])
    )
    try:
        watcher = await kv.watchall()
        check(await watcher.updates(timeout=WAIT_S) is None, "a new bucket has something")
        count = chance.randint(*KEYS)
        for at in range(count):
            await kv.put(f"k.{at % 20}", chance.randbytes(50))
        await kv.create("once", b"1")
        with refused(KeyWrongLastSequenceError):
            await kv.create("once", b"2")
        await kv.delete("once")
        with refused(KeyNotFoundError):
            await kv.get("once")
        await kv.purge("k.0")
        for _ in range(count + 3):
            check(await watcher.updates(timeout=WAIT_S) is not None, "the watcher heard of nothing")
        await watcher.stop()
        check(len(await kv.keys()) == min(count, 20) - 1, "other keys than were put")
        await kv.history("k.1")
        load.did("puts", count)
    finally:
        await js.delete_key_value(name)


async def object_store(load: Load, client: Client, chance: random.Random, n: int) -> None:
    js, name = jetstream(client), f"O{n % NAMES}"
    store = await js.create_object_store(bucket=name, storage=chance.choice([StorageType.FILE, StorageType.MEMORY]))
    try:
        watcher = await store.watch()
        for at in range(chance.randint(1, 3)):
            data = chance.randbytes(chance.randint(*OBJECT_SIZE))
            await store.put(f"o{at}", data)
            check(bytes((await store.get(f"o{at}")).data or b"") == data, "another object came back")
        await store.put("o0", b"anew")
        await store.list()
        await store.delete("o0")
        await watcher.stop()
    finally:
        await js.delete_object_store(name)


# All of it.


def _streams(client: Client, slot: int, storage: StorageType) -> Cycle:
    """Lives of streams, one after the other; their names come again."""

    async def cycle(load: Load, chance: random.Random, n: int) -> None:
        await stream_life(load, client, chance, f"S{slot}-{n % NAMES}", storage)

    return cycle


async def burst(load: Load) -> None:
    """Many streams at once, each with everything that can be done with it, and one of all else."""
    client, chance = await load.client("burst"), random.Random(f"{load.seed} burst")
    js = jetstream(client)

    async def live(n: int) -> None:
        storage = StorageType.FILE if n % 3 else StorageType.MEMORY
        async with await load.wire() as wire:
            life = Life(load, chance, js, wire, f"ONCE-{n}")
            await js.add_stream(_stream_config(chance, life.name, storage))
            for act in ACTS[n % 3 :: 3]:
                await act(life)
            await js.delete_stream(life.name)

    try:
        async with asyncio.TaskGroup() as group:
            for n in range(AT_ONCE):
                group.create_task(live(n))
        await bucket(load, client, chance, 0)
        await object_store(load, client, chance, 0)
        await consumer_of_base(load, client, chance)
    finally:
        await client.close()


async def run(load: Load) -> None:
    """Everything that comes and goes, until the load is over."""
    client = await load.client("churn")
    try:
        async with await load.wire() as wire, asyncio.TaskGroup() as group:
            for slot in range(FILE_STREAMS + MEMORY_STREAMS):
                storage = StorageType.FILE if slot < FILE_STREAMS else StorageType.MEMORY
                group.create_task(load.repeat(f"stream {slot}", _streams(client, slot, storage), 0.5))
            for name, cycle, every_s in (
                ("consumers of base", lambda load, chance, n: consumer_of_base(load, client, chance), 1.0),
                ("connections", lambda load, chance, n: nats_connection(load, client, chance), 0.5),
                ("raw connections", lambda load, chance, n: raw_connection(load, client, chance), 0.2),
                ("subscriptions", lambda load, chance, n: subscriptions(load, wire, chance), 0.5),
                ("buckets", lambda load, chance, n: bucket(load, client, chance, n), 1.0),
                ("object stores", lambda load, chance, n: object_store(load, client, chance, n), 1.5),
            ):
                group.create_task(load.repeat(name, cycle, every_s))
    finally:
        await client.close()
