"""How a nats-py user works with buckets and object stores, step by step: scenes as in nats_py_scenes.py."""

from __future__ import annotations

import asyncio
import hashlib
import io
from typing import Any

from nats.aio.client import Client
from nats.js import api

from support.nats_py_scenes import Notes


def entry(e: Any) -> Any:
    return e.bucket, e.key, e.value, e.revision, e.operation


async def key_value(client: Client, note: Notes) -> None:
    """A bucket: keys created, read, changed and deleted; conflicts."""
    js = client.jetstream()

    await note("no bucket", js.key_value("none"))
    kv = await js.create_key_value(bucket="B", history=3, description="a bucket", direct=True, limit_marker_ttl=60)
    await note("create", kv.create("a", b"1"))
    await note("create again", kv.create("a", b"1"))
    await note("put", kv.put("a", b"2"))
    await note("get", kv.get("a"), entry)
    await note("get none", kv.get("z"))
    await note("get a revision", kv.get("a", revision=1), entry)
    await note("update", kv.update("a", b"3", last=2))
    await note("update wrongly", kv.update("a", b"4", last=2))
    await note("delete wrongly", kv.delete("a", last=1))
    await note("delete", kv.delete("a", last=3))
    await note("get deleted", kv.get("a"))
    await note("create after delete", kv.create("a", b"5"))
    await note("purge", kv.purge("a"))
    await note("get purged", kv.get("a"))
    await note("create with a ttl", kv.create("t", b"6", msg_ttl=60))
    await note("purge with a ttl", kv.purge("t", msg_ttl=60))
    await note("a wrong key", kv.put("a b", b""))
    status = await kv.status()
    await note(
        "status", js.stream_info("KV_B"), lambda i: (status.bucket, status.values, status.history, status.ttl, i)
    )
    await note("delete bucket", js.delete_key_value("B"))
    await note("it is gone", js.key_value("B"))


async def watching(client: Client, note: Notes) -> None:
    """All forms of watchers, histories and key lists; what a bucket removes by itself."""
    js = client.jetstream()
    kv = await js.create_key_value(bucket="W", history=5)

    async def updates(watcher: Any, count: int) -> list[Any]:
        """The next `count` updates; None marks the end of the initial values."""
        found = [await watcher.updates(timeout=5) for _ in range(count)]
        return [each and (each.key, each.value, each.revision, each.delta, each.operation) for each in found]

    def news(found: list[Any]) -> Any:
        """The updates without their counts of pending ones, which are a race while others write."""
        return [(key, value, revision, operation) for key, value, revision, _, operation in found]

    def left(info: Any) -> Any:
        return info.state.messages, info.state.num_deleted, info.state.subjects

    empty = await kv.watchall()
    await note("an empty bucket", updates(empty, 1))
    await note("no keys", kv.keys())
    await note("no history", kv.history("a"))
    for n in range(4):
        await kv.put("a", b"%d" % n)
    await kv.put("b.c", b"x")
    await kv.put("b.d", b"y")
    await kv.delete("b.d")
    await kv.put("b.e.f", b"z")
    await kv.purge("b.e.f")
    await kv.put("e", b"")
    await note("live", updates(empty, 10), news)
    await empty.stop()
    for name, keys, options, count in (
        ("all", ">", {}, 6),
        ("one", "a", {}, 2),
        ("a pattern", "b.*", {}, 3),
        ("a deeper pattern", "b.>", {}, 4),
        ("history", "a", {"include_history": True}, 5),
        ("all history", ">", {"include_history": True}, 10),
        ("without deletes", "b.>", {"ignore_deletes": True}, 2),
        ("without values", ">", {"meta_only": True}, 6),
        ("nothing there", "none", {}, 1),
        ("forgotten soon", "a", {"inactive_threshold": 1.0}, 2),
    ):
        watcher = await kv.watch(keys, **options)
        await note(f"watch {name}", updates(watcher, count))
        await watcher.stop()
    both = [await kv.watch("b.*"), await kv.watch("b.c")]
    await note("two watchers", asyncio.gather(updates(both[0], 3), updates(both[1], 2)))
    await kv.put("b.c", b"2")
    await kv.delete("b.c")
    await note(
        "two watchers, live", asyncio.gather(updates(both[0], 2), updates(both[1], 2)), lambda b: [*map(news, b)]
    )
    for watcher in both:
        await watcher.stop()
    await note("keys", kv.keys())
    await note("keys, filtered", kv.keys(filters=["a", "e"]))
    for key in ("a", "b.c", "b.d", "none"):
        await note(f"history {key}", kv.history(key), lambda found: [entry(each) for each in found])
    await note("purge deletes, all young", kv.purge_deletes())
    await note("after that", js.stream_info("KV_W", subjects_filter=">"), left)
    await note("purge deletes, any", kv.purge_deletes(olderthan=0))
    await note("after that, too", js.stream_info("KV_W", subjects_filter=">"), left)
    for n in range(700):
        await js.publish_async(f"$KV.W.many.{n % 300}", b"%d" % n)
    await js.publish_async_completed()
    await note("many keys", kv.keys(), lambda found: (len(found), len(set(found))))
    await js.delete_key_value("W")

    short = await js.create_key_value(bucket="S", limit_marker_ttl=60)
    watcher = await short.watchall()
    await short.create("t", b"1", msg_ttl=1)
    await note("a value with a TTL, and its marker", updates(watcher, 3), lambda found: [found[1][:3], found[2][4]])
    await note("forgotten", short.get("t"))
    await watcher.stop()
    await js.delete_key_value("S")


def about(i: Any) -> Any:
    options = i.options and (i.options.max_chunk_size, i.options.link and vars(i.options.link))
    return i.name, i.bucket, i.size, i.chunks, i.digest, i.deleted, i.description, i.headers, options


async def objects(client: Client, note: Notes) -> None:
    """Object stores: put, read, describe, link, watch, list, delete, seal."""
    js = client.jetstream()

    def read(found: Any) -> Any:
        data = bytes(found.data)
        return about(found.info), len(data), hashlib.sha256(data).hexdigest()

    large = bytes(range(256)) * 12_000
    await note("no store", js.object_store("none"))
    store = await js.create_object_store(bucket="O", description="objects")
    await note("nothing to list", asyncio.wait_for(store.list(), 5))
    await note("put", store.put("a", b"x" * 300_000), about)
    await note("info", store.get_info("a"), about)
    await note("get", store.get("a"), read)
    await note("put again", store.put("a", b"y"), about)
    await note("get the new", store.get("a"), read)
    await note("empty", store.put("empty", b""), about)
    await note("get empty", store.get("empty"), lambda found: about(found.info))
    await note("large", store.put("large", large), about)
    await note("get large", store.get("large"), read)
    meta = api.ObjectMeta(
        name="m", description="small chunks", headers={"k": "v"}, options=api.ObjectMetaOptions(max_chunk_size=1000)
    )
    await note("many chunks", store.put("m", io.BytesIO(large[:250_500]), meta=meta), about)
    into = io.BytesIO()
    await note("get into a file", store.get("m", writeinto=into), lambda found: (found.info.chunks, into.tell()))
    assert into.getvalue() == large[:250_500]
    await note("no info", store.get_info("b"))
    await note("get none", store.get("b"))
    await note("a new description", store.update_meta("m", api.ObjectMeta(name="m", description="described")))
    await note("described", store.get_info("m"), about)
    await note("describe none", store.update_meta("z", api.ObjectMeta(name="z")))
    link = api.ObjectMeta(
        name="l", options=api.ObjectMetaOptions(link=api.ObjectLink(bucket="O", name="a"), max_chunk_size=10)
    )
    await note("link", store.put("l", b"", meta=link), about)
    await note("get by the link", store.get("l"), read)
    await note("list", store.list(), lambda found: sorted(about(each) for each in found))
    watcher = await store.watch()

    async def updates(watcher: Any, count: int) -> Any:
        found = [await watcher.updates(timeout=5) for _ in range(count)]
        return [each and about(each) for each in found]

    await note("watch", updates(watcher, 6))
    news = await store.watch(updates_only=True)
    await note("delete", store.delete("a"))
    await store.put("n", b"new")
    await note("watch, live", updates(watcher, 2))
    await note("watch for news", updates(news, 2))
    await watcher.stop()
    await news.stop()
    await note("info of deleted", store.get_info("a"))
    await note("info of deleted, shown", store.get_info("a", show_deleted=True), about)
    await note("get deleted", store.get("a"))
    await note("delete again", store.delete("a"))
    await note("list without deleted", store.list(ignore_deletes=True), lambda found: sorted(i.name for i in found))
    status = await store.status()
    await note(
        "state", js.stream_info("OBJ_O"), lambda i: (i.config, i.state.messages, i.state.last_seq, status.sealed)
    )
    await note("seal", store.seal())
    await note("put when sealed", store.put("c", b"z"))
    await note("get when sealed", store.get("large"), read)
    await note("delete when sealed", store.delete("n"))
    await note("sealed", store.status(), lambda s: (s.sealed, s.description, s.storage_type, s.replicas, s.ttl))
    await note("delete store", js.delete_object_store("O"))
    await note("it is gone", js.object_store("O"))


SCENES = [key_value, watching, objects]
