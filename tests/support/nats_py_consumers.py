"""How a nats-py user works with consumers, step by step: scenes as in nats_py_scenes.py.

A plain ack gets no answer, and the real nats-server processes acks concurrently with its API and with pull requests. So
where a step depends on an ack, the scene uses an ack that is answered (`ack_sync`, `say`): these are processed in
order.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api
from nats.js.client import JetStreamContext

from support.nats_py_scenes import Notes, plain

INBOX = "_INBOX."


def seen(message: Msg) -> Any:
    """A message as a consumer delivered it; the generated name of a nameless consumer is left out."""
    m = message.metadata
    name = m.consumer if len(m.consumer) < 8 else "RANDOM"
    seqs = (m.sequence.stream, m.sequence.consumer)
    return message.subject, message.data, message.headers, m.stream, name, seqs, m.num_delivered, m.num_pending


def all_seen(messages: list[Msg]) -> Any:
    return [seen(message) for message in messages]


def described(info: api.ConsumerInfo) -> Any:
    """The answer of INFO, without generated names and without the time that remains of a pause."""
    found = plain(info)
    if len(info.name) > 7:
        found["name"] = "RANDOM"
        for key in ("name", "durable_name"):
            found["config"][key] = found["config"][key] and "RANDOM"
    if (info.config.deliver_subject or "").startswith(INBOX):
        found["config"]["deliver_subject"] = "INBOX"
    found["config"]["pause_until"] = bool(info.config.pause_until)
    found["pause_remaining"] = bool(info.pause_remaining)
    return found


def counters(info: api.ConsumerInfo) -> Any:
    assert info.delivered is not None and info.ack_floor is not None
    delivered, floor = info.delivered, info.ack_floor
    return {
        "delivered": (delivered.consumer_seq, delivered.stream_seq),
        "floor": (floor.consumer_seq, floor.stream_seq),
        "left": (info.num_ack_pending, info.num_redelivered, info.num_pending),
    }


async def fill(js: JetStreamContext, name: str, count: int, **options: Any) -> None:
    """A stream with `count` messages over three subjects, every second one with a header."""
    await js.add_stream(name=name, subjects=[f"{name.lower()}.*"], **options)
    for n in range(count):
        await js.publish(f"{name.lower()}.{n % 3}", b"%d" % n, headers={"N": str(n)} if n % 2 else None)


async def fetch(sub: JetStreamContext.PullSubscription, batch: int, seconds: float) -> list[Msg]:
    """The messages that arrive in that time. nats-py reports an empty fetch in two ways, depending on which of two
    timers fires first.
    """
    try:
        return await sub.fetch(batch, timeout=seconds)
    except TimeoutError:
        return []


async def say(client: Client, message: Msg, what: bytes) -> Msg:
    """Send an ack of this kind, and wait until the server has processed it."""
    return await client.request(message.reply, what, timeout=5)


def in_seconds(seconds: float) -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)).isoformat()


async def consumer_management(client: Client, note: Notes) -> None:
    """Consumers: created, changed, listed, paused, reset, deleted; what is refused."""
    js = client.jetstream()
    await note("no stream", js.add_consumer("NONE", durable_name="d"))
    await fill(js, "M", 9)
    await note("none yet", js.consumers_info("M"), lambda found: len(found))
    await note("durable", js.add_consumer("M", durable_name="d", description="one", metadata={"a": "b"}), described)
    await note("the same", js.add_consumer("M", durable_name="d", description="one", metadata={"a": "b"}), described)
    await note("ephemeral", js.add_consumer("M"), described)
    full = api.ConsumerConfig(
        name="full",
        durable_name="full",
        deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=4,
        ack_wait=12.5,
        max_deliver=5,
        backoff=[1, 2.5],
        filter_subjects=["m.0", "m.1"],
        sample_freq="30%",
        max_waiting=7,
        max_ack_pending=20,
        headers_only=True,
        inactive_threshold=60,
        mem_storage=True,
        num_replicas=1,
    )
    await note("full", js.add_consumer("M", full), described)
    push = api.ConsumerConfig(
        name="push", deliver_subject="out", deliver_group="g", idle_heartbeat=5, flow_control=True, rate_limit_bps=8000
    )
    await note("push", js.add_consumer("M", push), described)
    await note("update", js.add_consumer("M", durable_name="d", max_deliver=3, filter_subject="m.1"), described)
    for name, options in {
        "a name with a dot": {"durable_name": "a.b"},
        "two names": {"name": "x", "durable_name": "y"},
        "a filter of nothing": {"durable_name": "z", "filter_subject": "other"},
        "filters that overlap": {"durable_name": "z", "filter_subjects": ["m.1", "m.*"]},
        "both filters": {"durable_name": "z", "filter_subject": "m.1", "filter_subjects": ["m.2"]},
        "a start without its policy": {"durable_name": "z", "opt_start_seq": 4},
        "a policy without its start": {"durable_name": "z", "deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE},
        "more pauses than deliveries": {"durable_name": "z", "max_deliver": 1, "backoff": [1, 2]},
        "flow control without a heartbeat": {"name": "z", "deliver_subject": "out2", "flow_control": True},
        "flow control of a pull": {"durable_name": "z", "flow_control": True, "idle_heartbeat": 5},
        "waiting requests of a push": {"name": "z", "deliver_subject": "out2", "max_waiting": 5},
        "a cycle": {"name": "z", "deliver_subject": "m.1"},
        "a push with a wildcard": {"name": "z", "deliver_subject": "out.*"},
        "another policy": {"durable_name": "d", "ack_policy": api.AckPolicy.ALL},
        "too many replicas": {"durable_name": "z", "num_replicas": 3},
        "a bad sample": {"durable_name": "z", "sample_freq": "many"},
    }.items():
        await note(name, js.add_consumer("M", **options), described)
    await note("info", js.consumer_info("M", "full"), described)
    await note("info of none", js.consumer_info("M", "none"))
    await note("list", js.consumers_info("M"), lambda found: sorted(i.name for i in found if len(i.name) < 8))
    await note("list from", js.consumers_info("M", offset=3), lambda found: len(found))
    await note("pause", js.pause_consumer("M", "d", in_seconds(60)), lambda p: (p.paused, bool(p.pause_remaining)))
    await note("paused", js.consumer_info("M", "d"), described)
    sub = await js.pull_subscribe_bind("d", "M")
    await note("fetch when paused", sub.fetch(1, timeout=0.1), all_seen)
    await note("resume", js.resume_consumer("M", "d"), lambda p: (p.paused, bool(p.pause_remaining)))
    await note("fetch when resumed", sub.fetch(1, timeout=5), all_seen)
    await note("a short pause", js.pause_consumer("M", "d", in_seconds(0.2)), lambda p: p.paused)
    await note("fetch over its end", sub.fetch(1, timeout=5), all_seen)
    await note("pause of none", js.pause_consumer("M", "none", in_seconds(60)))
    await note("reset", js.reset_consumer("M", "d"), lambda r: r.reset_seq)
    await note("fetch after the reset", sub.fetch(2, timeout=5), all_seen)
    await note("reset to", js.reset_consumer("M", "d", seq=8), lambda r: r.reset_seq)
    await note("fetch from there", sub.fetch(1, timeout=5), all_seen)
    await note("reset before its start", js.reset_consumer("M", "full", seq=2))
    await note("reset of none", js.reset_consumer("M", "none", timeout=0.2))
    await note("counters", js.consumer_info("M", "d"), counters)
    await note("stream", js.stream_info("M"), lambda i: i.state.consumer_count)
    await note("delete", js.delete_consumer("M", "d"))
    await note("delete again", js.delete_consumer("M", "d"))
    await note("fetch from the deleted", sub.fetch(1, timeout=0.3), all_seen)
    await js.delete_stream("M")


async def pull(client: Client, note: Notes) -> None:
    """Fetches of one and many, with and without messages; where a consumer begins; what its filter leaves out."""
    js = client.jetstream()
    await fill(js, "P", 20)
    sub = await js.pull_subscribe("p.*", durable="d")
    await note("info", sub.consumer_info(), described)
    one = await note("one", sub.fetch(1, timeout=5), all_seen)
    many = await note("many", sub.fetch(9, timeout=5), all_seen)
    await note("more than there is", fetch(sub, 50, 0.3), all_seen)
    await note("counters", sub.consumer_info(), counters)
    for message in (*one, *many):
        await message.ack_sync(timeout=5)
    await note("after ten acks", sub.consumer_info(), counters)
    await note("nothing", sub.fetch(1, timeout=0.1), all_seen)
    await note("nothing of many", fetch(sub, 5, 0.1), all_seen)
    await note("nothing, with heartbeats", sub.fetch(1, timeout=0.5, heartbeat=0.1), all_seen)
    waiting = asyncio.create_task(sub.fetch(1, timeout=5))
    while (await sub.consumer_info()).num_waiting == 0:
        pass  # the server has not received the request yet
    await js.publish("p.late", b"late")
    await note("a fetch that waited", waiting, all_seen)
    await js.publish("p.late", b"later")
    await note("one that did not", sub.fetch(1, timeout=5), all_seen)
    await note("no batch", sub.fetch(0))

    start = (await js.get_msg("P", 12, direct=False)).time
    for name, options in {
        "all": {},
        "last": {"deliver_policy": api.DeliverPolicy.LAST},
        "new": {"deliver_policy": api.DeliverPolicy.NEW},
        "from a sequence": {"deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 15},
        "from a time": {"deliver_policy": api.DeliverPolicy.BY_START_TIME, "opt_start_time": start},
        "last of each subject": {"deliver_policy": api.DeliverPolicy.LAST_PER_SUBJECT, "filter_subject": "p.*"},
        "filtered": {"filter_subject": "p.1"},
        "two filters": {"filter_subjects": ["p.1", "p.late"]},
        "headers only": {"headers_only": True},
        "ack all": {"ack_policy": api.AckPolicy.ALL},
        "no acks": {"ack_policy": api.AckPolicy.NONE},
    }.items():
        made = await js.add_consumer("P", **options)
        each = await js.pull_subscribe_bind(made.name, "P")
        await note(f"{name}: before", each.consumer_info(), counters)
        found = await note(f"{name}: fetch", fetch(each, 30, 0.2), all_seen)
        if found and made.config.ack_policy != api.AckPolicy.NONE:
            await found[-1].ack_sync(timeout=5)
        await note(f"{name}: after", each.consumer_info(), counters)
        await js.delete_consumer("P", made.name)
    await note("subscribe to nothing", js.pull_subscribe("nowhere", durable="n"))
    await js.delete_stream("P")


async def acks(client: Client, note: Notes) -> None:
    """Every kind of ack, and what is redelivered."""
    js = client.jetstream()
    await fill(js, "A", 12)
    config = api.ConsumerConfig(ack_wait=30, max_deliver=3)
    sub = await js.pull_subscribe("a.*", durable="d", config=config)
    first = (await note("first", sub.fetch(1, timeout=5), all_seen))[0]
    await note("double ack", first.ack_sync(timeout=5), lambda m: (m.data, m.headers))
    await note("ack it again", first.ack())
    await note("floor", sub.consumer_info(), counters)
    rest = await note("the rest", sub.fetch(11, timeout=5), all_seen)
    await note("nak", say(client, rest[0], b"-NAK"), lambda m: (m.data, m.headers))
    again = (await note("comes again", sub.fetch(1, timeout=5), all_seen))[0]
    await say(client, again, b'-NAK {"delay": 300000000}')
    await note("not yet", sub.fetch(1, timeout=0.1), all_seen)
    last = (await note("comes late", sub.fetch(1, timeout=5), all_seen))[0]
    await rest[1].in_progress()
    await note("in progress", say(client, rest[1], b"+WPI"), lambda m: m.data)
    await rest[1].term()
    await rest[2].ack_sync(timeout=5)
    await note("counters", sub.consumer_info(), counters)
    await say(client, last, b"-NAK")
    await note("given up", fetch(sub, 2, 0.2), all_seen)
    await note("counters after giving up", sub.consumer_info(), counters)
    await rest[4].nak()
    await note("by the client's own nak", sub.fetch(1, timeout=5), all_seen)
    await client.publish(first.reply, b"+NXT")
    await note("stale ack", client.request(first.reply, b"+ACK", timeout=5), lambda m: m.data)
    await note("a bad ack", client.request(rest[2].reply, b"-WHAT", timeout=0.2), lambda m: m.data)
    await note("no reply", Msg(client, data=b"").ack())
    await js.delete_consumer("A", "d")

    nexts = await js.pull_subscribe("a.*", durable="n")
    message = (await nexts.fetch(1, timeout=5))[0]
    for payload in (b"+NXT", b'+NXT {"batch": 2}', b"+NXT 1"):
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox)
        await client.publish(message.reply, payload, reply=inbox)
        count = 2 if b"2" in payload else 1
        received = await asyncio.gather(*(answers.next_msg(timeout=5) for _ in range(count)))
        await note(f"next: {payload.decode()}", asyncio.sleep(0, received), all_seen)
        message = received[-1]
        await answers.unsubscribe()

    quick = await js.pull_subscribe("a.2", durable="q", config=api.ConsumerConfig(ack_wait=0.2, max_deliver=2))
    await note("not acked", quick.fetch(4, timeout=5), all_seen)
    found = []
    while len(found) < 4:
        found += await quick.fetch(4, timeout=5)
    await note("come again", asyncio.sleep(0, found), lambda found: sorted(m[1:] for m in all_seen(found)))
    await found[0].ack_sync(timeout=5)
    await note("not a third time", quick.fetch(1, timeout=0.4), all_seen)
    await note("counters of the given up", quick.consumer_info(), counters)
    await js.delete_consumer("A", "q")

    backed = api.ConsumerConfig(backoff=[0.1, 0.3], max_deliver=3, deliver_policy=api.DeliverPolicy.LAST)
    slow = await js.pull_subscribe("a.1", durable="b", config=backed)
    await note("backoff", slow.consumer_info(), described)
    began = asyncio.get_running_loop().time()
    for n in range(3):
        await note(f"backoff: delivery {n}", slow.fetch(1, timeout=5), all_seen)
    assert 0.35 < asyncio.get_running_loop().time() - began < 2, "0.1 s after the first, 0.3 s after the second"
    await js.delete_consumer("A", "b")

    bounded = await js.pull_subscribe("a.*", durable="m", config=api.ConsumerConfig(max_ack_pending=3))
    held = await note("at most three", fetch(bounded, 10, 0.3), all_seen)
    await note("full", bounded.fetch(1, timeout=0.1), all_seen)
    await held[1].ack_sync(timeout=5)
    await note("one more", fetch(bounded, 2, 0.3), all_seen)
    await js.delete_consumer("A", "m")

    every = await js.pull_subscribe("a.*", durable="e", config=api.ConsumerConfig(ack_policy=api.AckPolicy.ALL))
    received = await every.fetch(7, timeout=5)
    await received[4].ack_sync(timeout=5)
    await note("ack all", every.consumer_info(), counters)
    await received[2].ack_sync(timeout=5)
    await note("ack all, behind the floor", every.consumer_info(), counters)
    await js.delete_stream("A")


async def push(client: Client, note: Notes) -> None:
    """Subscriptions to push consumers: by a callback and by hand, durable, queues, ordered, heartbeats."""
    js = client.jetstream()
    await fill(js, "U", 30)
    sub = await js.subscribe("u.*")
    await note("ephemeral", sub.consumer_info(), lambda i: described(i)["config"])
    received = [await sub.next_msg(timeout=5) for _ in range(30)]
    await note("thirty", asyncio.sleep(0, received), all_seen)
    for message in received[:20]:
        await message.ack_sync(timeout=5)
    await note("twenty acked", sub.consumer_info(), counters)
    await sub.unsubscribe()

    done = asyncio.Event()
    got: list[Msg] = []

    async def keep(message: Msg) -> None:
        got.append(message)
        if len(got) == 10:
            done.set()

    held = await js.subscribe("u.1", cb=keep, durable="d", manual_ack=True)
    await asyncio.wait_for(done.wait(), 5)
    await note("durable, by callback", asyncio.sleep(0, got), all_seen)
    await note("a second one", js.subscribe("u.1", durable="d"))
    await note("as a queue", js.subscribe("u.1", durable="d", queue="d"))
    await got[0].nak()
    while len(got) < 11:
        await asyncio.sleep(0.001)
    await note("again", asyncio.sleep(0, got[10]), seen)
    for message in got[1:]:
        await message.ack_sync(timeout=5)
    await note("all acked", held.consumer_info(), counters)
    await held.unsubscribe()
    while (await js.consumer_info("U", "d")).push_bound:
        pass  # the consumer has not noticed yet that its subscriber is gone
    await js.publish("u.1", b"while nobody listens")
    await note("unbound", js.consumer_info("U", "d"), described)
    back = await js.subscribe("u.1", durable="d")
    await note("back again", back.next_msg(timeout=5), seen)
    await back.unsubscribe()

    counts = [0, 0, 0]
    total = asyncio.Event()

    def worker(n: int) -> Any:
        async def count(_: Msg) -> None:
            counts[n] += 1
            if sum(counts) == 331:
                total.set()

        return count

    for n in range(3):
        await js.subscribe("u.*", queue="g", cb=worker(n))
    await client.flush()
    for n in range(300):
        await js.publish_async(f"u.{n % 3}")
    await asyncio.wait_for(total.wait(), 10)
    assert min(counts) > 30, counts
    await note("queue, another", js.subscribe("u.*", durable="g", queue="h"))
    await note("queue, none", js.subscribe("u.*", durable="g"))
    await note("queue", js.consumer_info("U", "g"), lambda i: (i.config.deliver_group, i.push_bound, i.num_pending))
    await js.delete_stream("U")


async def ordered(client: Client, note: Notes) -> None:
    """Ordered consumers: large, with gaps, deleted while reading; heartbeats and flow control."""
    js = client.jetstream()
    await js.add_stream(name="O", subjects=["o.*"])
    payload = b"x" * 1000
    sent = [await js.publish_async(f"o.{n % 5}", b"%d " % n + payload) for n in range(3000)]
    await asyncio.gather(*sent)
    await js.purge_stream("O", subject="o.3")
    sub = await js.subscribe("o.*", ordered_consumer=True, idle_heartbeat=0.3)
    await note("info", sub.consumer_info(), lambda i: described(i)["config"])
    received = [await sub.next_msg(timeout=10) for _ in range(2400)]
    assert [m.data[:-1001] for m in received] == [b"%d" % n for n in range(3000) if n % 5 != 3]
    assert [m.metadata.sequence.consumer for m in received] == list(range(1, 2401))
    await note("last", asyncio.sleep(0, received[-1].metadata.num_pending))
    await js.delete_consumer("O", (await sub.consumer_info()).name)
    await js.publish("o.1", b"after it was deleted")
    await note("made again by the client", sub.next_msg(timeout=10), lambda m: (m.data, m.metadata.sequence.stream))
    await sub.unsubscribe()
    limited = api.ConsumerConfig(deliver_policy=api.DeliverPolicy.LAST_PER_SUBJECT, headers_only=True)
    last = await js.subscribe("o.*", ordered_consumer=True, config=limited)
    found = [await last.next_msg(timeout=5) for _ in range(4)]
    await note("last of each", asyncio.sleep(0, found), all_seen)
    await last.unsubscribe()

    beats = client.new_inbox()
    answers = await client.subscribe(beats)
    await js.add_consumer("O", name="beats", deliver_subject=beats, idle_heartbeat=0.1, opt_start_seq=3001,
                          deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE)  # fmt: skip
    first = await answers.next_msg(timeout=5)
    await note("message", asyncio.sleep(0, first), seen)
    idle = await answers.next_msg(timeout=5)
    await note("heartbeat", asyncio.sleep(0, idle), lambda m: (m.data, m.headers, m.reply))
    await js.delete_stream("O")


async def retention(client: Client, note: Notes) -> None:
    """Work queue and interest retention: a message is removed once everyone who wants it has acknowledged it."""
    js = client.jetstream()
    await fill(js, "W", 12, retention=api.RetentionPolicy.WORK_QUEUE)
    state: Any = lambda i: (i.state.messages, i.state.first_seq, i.state.last_seq)  # noqa: E731
    sub = await js.pull_subscribe("w.0", durable="zero")
    await note("a second for the same", js.pull_subscribe("w.*", durable="all"))
    await note("acks are needed", js.add_consumer("W", durable_name="n", ack_policy=api.AckPolicy.NONE))
    await note("not from the middle", js.add_consumer("W", durable_name="n", deliver_policy=api.DeliverPolicy.NEW))
    other = await js.pull_subscribe("w.1", durable="one")
    for message in await sub.fetch(4, timeout=5):
        await message.ack_sync(timeout=5)
    await note("four gone", js.stream_info("W"), state)
    received = await other.fetch(4, timeout=5)
    await received[0].term()
    await received[1].nak()
    await received[2].ack_sync(timeout=5)
    await note("two more", js.stream_info("W"), state)
    await note("put back", other.fetch(1, timeout=5), all_seen)
    await js.delete_stream("W")

    await js.add_stream(name="I", subjects=["i.*"], retention=api.RetentionPolicy.INTEREST)
    await note("nobody wants it", js.publish("i.0", b"x"))
    await note("so it is gone", js.stream_info("I"), state)
    a = await js.pull_subscribe("i.*", durable="a")
    b = await js.pull_subscribe("i.1", durable="b")
    for n in range(6):
        await js.publish(f"i.{n % 2}", b"%d" % n)
    await note("kept", js.stream_info("I"), state)
    for message in await a.fetch(6, timeout=5):
        await message.ack_sync(timeout=5)
    await note("b has not", js.stream_info("I"), state)
    (await b.fetch(1, timeout=5))[0]
    await js.delete_consumer("I", "b")
    await note("b is gone", js.stream_info("I"), state)
    await js.delete_stream("I")


SCENES = [consumer_management, pull, acks, push, ordered, retention]
