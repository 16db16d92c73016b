"""Key-value buckets: the clients' layout, revisions, markers, watching; through the library and through a server."""

from __future__ import annotations

import asyncio
import pickle
import random
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import nats
import nats.js.errors
import pytest

import penstock
import penstock.aio
from penstock import errors
from penstock.db.buckets.kv import KeyValue
from penstock.testing import FakeClock


@pytest.fixture
def db(root: Path) -> Iterator[penstock.Database]:
    with penstock.open(root, durability="os") as database:
        yield database


@pytest.fixture
def kv(db: penstock.Database) -> KeyValue:
    return db.key_value("settings", history=3)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


def short(entries: Any) -> list[tuple[str, bytes, str] | None]:
    return [entry and (entry.key, entry.value, entry.operation) for entry in entries]


# One key.


def test_a_put_is_a_message_of_the_clients_layout(db: penstock.Database, kv: KeyValue) -> None:
    assert kv.put("a.b", b"1") == 1 and kv.put("a.b", b"2") == 2
    entry = kv.get("a.b")
    assert (entry.bucket, entry.key, entry.value, entry.revision, entry.operation) == (
        "settings",
        "a.b",
        b"2",
        2,
        "PUT",
    )
    assert entry.created.tzinfo is not None and not entry.is_deleted and entry.delta == 0
    assert kv.get("a.b", 1).value == b"1"
    config = db.stream("KV_settings").config
    assert config.subjects == ("$KV.settings.>",) and config.max_msgs_per_subject == 3
    assert (config.discard, config.deny_delete, config.allow_rollup_hdrs, config.allow_direct) == (
        "new",
        True,
        True,
        True,
    )
    assert db.stream("KV_settings").last("$KV.settings.a.b").data == b"2"
    assert kv.stream is db.stream("KV_settings") and kv.bucket == "settings" and "settings" in repr(kv)


def test_a_key_without_a_value_is_named(kv: KeyValue) -> None:
    with pytest.raises(errors.KeyNotFound, match="bucket settings has no key 'a'"):
        kv.get("a")
    kv.put("a", b"1")
    with pytest.raises(errors.KeyNotFound, match="revision 1: that is an entry of key 'a'"):
        kv.get("b", 1)
    with pytest.raises(errors.KeyNotFound, match="at revision 7: sequence 7 is past the end"):
        kv.get("a", 7)
    kv.delete("a")
    with pytest.raises(errors.KeyDeleted, match="it was deleted") as caught:
        kv.get("a")
    assert caught.value.operation == "DEL" and caught.value.revision == 2
    assert isinstance(caught.value, penstock.PenstockError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value) and copy.revision == 2
    kv.purge("a")
    with pytest.raises(errors.KeyDeleted, match="it was purged"):
        kv.get("a")


def test_create_takes_only_a_key_without_a_value(kv: KeyValue) -> None:
    assert kv.create("a", b"1") == 1
    with pytest.raises(errors.KeyExists, match="has key 'a' already, at revision 1") as caught:
        kv.create("a", b"2")
    assert caught.value.actual == 1
    kv.delete("a")
    assert kv.create("a", b"3") == 3
    kv.purge("a")
    assert kv.create("a", b"4") == 5 and kv.get("a").value == b"4"


def test_update_takes_only_the_newest_revision(kv: KeyValue) -> None:
    first = kv.update("a", b"1", 0)
    second = kv.update("a", b"2", first)
    with pytest.raises(errors.RevisionMismatch, match="is at revision 2, not 1") as caught:
        kv.update("a", b"3", first)
    assert (caught.value.wanted, caught.value.actual) == (first, second)
    with pytest.raises(errors.RevisionMismatch):
        kv.delete("a", revision=first)
    with pytest.raises(errors.RevisionMismatch):
        kv.purge("a", revision=first)
    kv.purge("a", revision=second)
    assert short(kv.history("a")) == [("a", b"", "PURGE")]


def test_a_hundred_threads_count_without_losing_one(kv: KeyValue) -> None:
    kv.put("n", b"0")

    def count() -> None:
        for _ in range(20):
            while True:
                entry = kv.get("n")
                try:
                    kv.update("n", b"%d" % (int(entry.value) + 1), entry.revision)
                    break
                except errors.RevisionMismatch:
                    continue

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert kv.get("n").value == b"160"


@pytest.mark.parametrize("key", ["", ".a", "a.", "a..b", "a b", "a*", "a.>", "ä", "a\n", None, 7])
def test_keys_are_those_of_the_clients(kv: KeyValue, key: Any) -> None:
    for call in (lambda: kv.get(key), lambda: kv.put(key, b""), lambda: kv.create(key, b""), lambda: kv.delete(key)):
        with pytest.raises(errors.BadKey):
            call()


def test_wildcards_are_for_looking_only(kv: KeyValue) -> None:
    for bad in ("a.*b", "a.>.b", "", ".", "a.", "**"):
        with pytest.raises(errors.BadKey):
            kv.watch(bad)
    for good in ("a", "*", ">", "a.*", "*.a", "a.*.b.>", ["a", "b.>"]):
        kv.watch(good).close()


def test_what_is_no_bytes_is_refused(kv: KeyValue) -> None:
    with pytest.raises(TypeError):
        kv.put("a", "text")  # type: ignore[arg-type]


# Many keys.


def test_keys_are_those_with_a_value(kv: KeyValue) -> None:
    assert kv.keys() == []
    for key in ("b", "a.x", "a.y", "c"):
        kv.put(key, b"")
    kv.delete("c")
    assert kv.keys() == ["a.x", "a.y", "b"]
    assert kv.keys("a.*") == ["a.x", "a.y"] and kv.keys(["b", "a.y"]) == ["a.y", "b"] and kv.keys("z") == []


def test_history_keeps_as_many_as_it_says(kv: KeyValue) -> None:
    for n in range(5):
        kv.put("a", b"%d" % n)
    kv.delete("a")
    assert short(kv.history("a")) == [("a", b"3", "PUT"), ("a", b"4", "PUT"), ("a", b"", "DEL")]
    assert [entry.delta for entry in kv.history("a")] == [2, 1, 0]
    assert kv.history("nothing") == []


def test_a_watch_gives_what_there_is_then_none_then_what_comes(kv: KeyValue) -> None:
    kv.put("a", b"1")
    kv.put("b", b"1")
    kv.put("a", b"2")
    kv.delete("b")
    with kv.watch(timeout=0.01) as watcher:
        assert short(watcher) == [("a", b"2", "PUT"), ("b", b"", "DEL"), None]
        kv.put("c", b"3")
        kv.purge("a")
        assert short(watcher) == [("c", b"3", "PUT"), ("a", b"", "PURGE")]
    with pytest.raises(StopIteration):
        next(watcher)
    assert kv.stream.listeners == []


def test_a_watch_that_is_let_go_of_listens_no_more(kv: KeyValue) -> None:
    watcher = kv.watch()
    assert next(watcher) is None and len(kv.stream.listeners) == 1
    del watcher
    assert kv.stream.listeners == []


def test_a_watch_of_some_keys_has_its_options(kv: KeyValue) -> None:
    for n in range(3):
        kv.put("a.x", b"%d" % n)
    kv.put("b", b"")
    kv.delete("a.y")
    assert short(kv.watch("a.>", timeout=0)) == [("a.x", b"2", "PUT"), ("a.y", b"", "DEL"), None]
    assert short(kv.watch("a.>", ignore_deletes=True, timeout=0)) == [("a.x", b"2", "PUT"), None]
    assert short(kv.watch("a.x", meta_only=True, timeout=0)) == [("a.x", b"", "PUT"), None]
    assert short(kv.watch("a.x", include_history=True, timeout=0)) == [("a.x", b"%d" % n, "PUT") for n in range(3)] + [
        None
    ]
    assert short(kv.watch(resume_from=3, timeout=0)) == [
        ("a.x", b"2", "PUT"),
        ("b", b"", "PUT"),
        ("a.y", b"", "DEL"),
        None,
    ]
    assert short(kv.watch(["a.x", "b"], timeout=0)) == [("a.x", b"2", "PUT"), ("b", b"", "PUT"), None]
    updates = kv.watch(updates_only=True, timeout=0)
    assert short(updates) == []
    kv.put("b", b"1")
    assert short(updates) == [("b", b"1", "PUT")]
    with pytest.raises(ValueError, match="exclude each other"):
        kv.watch(updates_only=True, include_history=True)


def test_a_watch_waits_for_another_thread_and_can_be_closed_by_one(kv: KeyValue) -> None:
    watcher = kv.watch("n")
    seen: list[bytes] = []
    is_idle, is_done = threading.Event(), threading.Event()

    def watch() -> None:
        for entry in watcher:
            if entry is None:
                is_idle.set()
            else:
                seen.append(entry.value)
                if entry.value == b"9":
                    is_done.set()

    thread = threading.Thread(target=watch)
    thread.start()
    assert is_idle.wait(30)
    for n in range(10):
        kv.put("n", b"%d" % n)
    assert is_done.wait(30)
    watcher.close()
    thread.join(30)
    assert not thread.is_alive() and seen[-1] == b"9"


def test_many_keys_come_once_each_while_others_write(db: penstock.Database) -> None:
    kv = db.key_value("many")
    kv.stream.publish_many([(f"$KV.many.k{n}", b"old") for n in range(2000)])
    watcher = kv.watch(timeout=0)
    first = [next(watcher) for _ in range(300)]
    for n in range(0, 2000, 2):
        kv.put(f"k{n}", b"new")  # the old entries are removed: history is 1
    values = {entry.key: entry.value for entry in [*first, *watcher] if entry is not None}
    assert values == {f"k{n}": b"old" if n % 2 else b"new" for n in range(2000)}


def test_markers_go_where_they_are_old(root: Path, clock: FakeClock) -> None:
    with penstock.open(root, durability="os", clock=clock) as db:
        kv = db.key_value("b", history=5)
        for key in ("old", "young", "alive"):
            kv.put(key, b"1")
        kv.delete("old")
        clock.advance(40 * 60 * 10**9)
        kv.delete("young")
        assert kv.purge_deletes() == 1
        assert short(kv.history(">")) == [("alive", b"1", "PUT"), ("young", b"", "DEL")]
        assert kv.purge_deletes(0) == 1
        assert kv.keys() == ["alive"] and kv.status().values == 1


def test_entries_expire(root: Path, clock: FakeClock) -> None:
    with penstock.open(root, durability="os", clock=clock) as db:
        kv = db.key_value("b", ttl="10s", limit_marker_ttl="5s")
        kv.put("a", b"1")
        assert kv.status().ttl_ns == 10 * 10**9 and kv.status().limit_marker_ttl_ns == 5 * 10**9
        clock.advance(3 * 10**9)
        kv.create("b", b"2", ttl="2s")
        clock.advance(5 * 10**9)
        with pytest.raises(errors.KeyNotFound):
            kv.get("b")
        assert kv.get("a").value == b"1"
        assert kv.create("b", b"3") > 2


# Buckets.


def test_a_bucket_is_opened_changed_listed_and_deleted(db: penstock.Database) -> None:
    kv = db.key_value("one", description="first")
    assert kv.status().history == 1 and kv.status().config.description == "first"
    db.key_value("one", history=7, ttl="1h")
    assert (kv.status().history, kv.status().ttl_ns, kv.status().config.description) == (7, 3600 * 10**9, "first")
    db.key_value("one")
    assert kv.status().history == 7 and kv.status().bytes == 0
    db.key_value("two", storage="memory", max_value_size=10)
    with pytest.raises(errors.MessageTooLarge):
        db.key_value("two").put("a", b"x" * 1000)
    assert db.key_values() == ["one", "two"]
    db.delete_key_value("one")
    assert db.key_values() == ["two"]
    with pytest.raises(errors.BucketNotFound, match=r"no key-value bucket 'one'.*there are: two"):
        db.delete_key_value("one")
    for bad in ("", "a.b", "a b", "ä", "a\n"):
        with pytest.raises(errors.BadBucketName):
            db.key_value(bad)
    with pytest.raises(errors.BucketError, match="history 65"):
        db.key_value("three", history=65)
    with pytest.raises(errors.BucketError, match="no option 'tll'"):
        db.key_value("three", tll="1h")  # type: ignore[call-arg]
    db.stream("KV_plain", subjects=["plain"])
    with pytest.raises(errors.NotABucket, match="KV_plain"):
        db.key_value("plain", ttl="1h")
    assert db.stream("KV_plain").config.max_age == 0


def test_a_reader_beside_the_writer_sees_the_bucket(root: Path) -> None:
    with penstock.open(root, durability="os") as db:
        kv = db.key_value("settings")
        kv.put("a", b"1")
        with penstock.open(root, read_only=True) as beside:
            seen = beside.key_value("settings")
            assert seen.get("a").value == b"1" and seen.keys() == ["a"]
            with seen.watch(timeout=30) as watcher:
                assert short([next(watcher), next(watcher)]) == [("a", b"1", "PUT"), None]
                kv.put("a", b"2")
                assert short([next(watcher)]) == [("a", b"2", "PUT")]
            with pytest.raises(errors.ReadOnlyStore):
                seen.put("a", b"3")
            with pytest.raises(errors.BucketNotFound, match="there are: settings"):
                beside.key_value("other")


def test_a_bucket_of_a_closed_database_says_so(root: Path) -> None:
    with penstock.open(root) as db:
        kv = db.key_value("settings")
        watcher = kv.watch()
        assert next(watcher) is None
    with pytest.raises(errors.StoreClosed):
        kv.get("a")
    assert list(watcher) == []
    with pytest.raises(errors.StoreClosed):
        kv.watch()


# On an event loop.


def test_the_async_face_does_the_same(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, durability="os") as db:
            kv = await db.key_value("settings", history=2)
            assert kv.bucket == "settings" and kv.stream is await db.stream("KV_settings")
            assert await kv.put("a", b"1") == 1 and (await kv.get("a")).value == b"1"
            with pytest.raises(errors.KeyExists):
                await kv.create("a", b"2")
            assert await kv.create("b", b"1", ttl="10m") == 2
            with pytest.raises(errors.RevisionMismatch):
                await kv.update("a", b"2", 7)
            assert await kv.update("a", b"2", 1) == 3
            await kv.delete("b")
            assert await kv.create("b", b"2") == 5
            await kv.purge("b")
            assert await kv.keys() == ["a"] and short(await kv.history("a")) == [("a", b"1", "PUT"), ("a", b"2", "PUT")]
            watcher = kv.watch(ignore_deletes=True, timeout=0.01)
            assert short([entry async for entry in watcher]) == [("a", b"2", "PUT"), None]
            updates = kv.watch("c.>", updates_only=True)
            await kv.put("c.d", b"3")
            async for entry in updates:
                assert entry.key == "c.d"
                updates.close()
            waiting = asyncio.create_task(anext(watcher))
            assert (await waiting).key == "c.d"
            watcher.close()
            assert await kv.purge_deletes(0) == 1 and (await kv.status()).values == 3
            assert await db.key_values() == ["settings"]
            await db.delete_key_value("settings")
            assert await db.key_values() == []

    run(work())


def test_an_async_watch_can_be_closed_by_another_task(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, durability="os") as db:
            kv = await db.key_value("settings")
            async with kv.watch() as watcher:
                assert await anext(watcher) is None
                waiting = asyncio.create_task(anext(watcher, "end"))
                await asyncio.sleep(0)
                watcher.close()
                assert await waiting == "end"

    run(work())


# Random operations.


@pytest.mark.parametrize("seed", range(5))
def test_a_bucket_is_what_a_plain_model_says(db: penstock.Database, seed: int) -> None:
    rng = random.Random(seed)
    depth = rng.randint(1, 4)
    kv = db.key_value("b", history=depth)
    model: dict[str, list[tuple[bytes, str, int]]] = {}  # the entries of each key, oldest first
    watcher = kv.watch(timeout=0)
    seen: dict[str, tuple[bytes, str, int]] = {}

    def follow() -> None:
        for entry in watcher:
            if entry is not None:
                seen[entry.key] = (entry.value, entry.operation, entry.revision)

    for n in range(400):
        key = rng.choice(["a", "b.c", "b.d", "e/f=g"])
        entries = model.setdefault(key, [])
        newest = entries[-1] if entries else None
        value, revision = b"%d" % n, 0
        choice = rng.choice(["put", "create", "update", "stale", "delete", "purge", "look"])
        if choice == "put":
            revision = kv.put(key, value)
        elif choice == "create" and newest is not None and newest[1] == "PUT":
            with pytest.raises(errors.KeyExists):
                kv.create(key, value)
        elif choice == "create":
            revision = kv.create(key, value)
        elif choice == "update":
            revision = kv.update(key, value, newest[2] if newest else 0)
        elif choice == "stale":
            with pytest.raises(errors.RevisionMismatch):
                kv.update(key, value, (newest[2] if newest else 0) + 1)
        elif choice == "delete":
            kv.delete(key)
            entries.append((b"", "DEL", kv.history(key)[-1].revision))
        elif choice == "purge":
            kv.purge(key)
            entries[:] = [(b"", "PURGE", kv.history(key)[-1].revision)]
        else:
            follow()
        if revision:
            entries.append((value, "PUT", revision))
        del entries[:-depth]
        assert [(entry.value, entry.operation, entry.revision) for entry in kv.history(key)] == entries
    follow()
    assert seen == {key: entries[-1] for key, entries in model.items() if entries}
    assert kv.keys() == sorted(key for key, entries in model.items() if entries and entries[-1][1] == "PUT")


# Through a server.


@pytest.mark.nats_py
def test_clients_and_the_library_see_the_same_bucket(root: Path) -> None:
    """The library reads what a client writes and the other way round, in one process over one database."""

    async def work() -> None:
        with penstock.open(root, durability="os") as db, penstock.Server(database=db) as server:
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            theirs = await js.create_key_value(bucket="theirs", history=4, ttl=3600)
            assert await theirs.put("a.b", b"1") == 1
            await theirs.delete("a.c")
            ours = db.key_value("theirs")
            assert ours.get("a.b").value == b"1" and short(ours.history("a.c")) == [("a.c", b"", "DEL")]
            assert ours.status().history == 4 and ours.status().ttl_ns == 3600 * 10**9
            watcher = ours.watch("a.b", timeout=30)
            assert short([next(watcher), next(watcher)]) == [("a.b", b"1", "PUT"), None]
            await theirs.put("a.b", b"2")
            assert short([await asyncio.to_thread(next, watcher)]) == [("a.b", b"2", "PUT")]

            kv = db.key_value("ours", history=2)
            kv.put("x", b"1")
            kv.put("y", b"1")
            kv.purge("y")
            seen = await js.key_value("ours")
            assert (await seen.get("x")).value == b"1"
            with pytest.raises(nats.js.errors.KeyNotFoundError):
                await seen.get("y")
            await seen.update("x", b"2", last=1)
            assert kv.get("x").value == b"2"
            with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
                await seen.create("x", b"3")
            assert await seen.create("y", b"4") == kv.get("y").revision
            status = await seen.status()
            assert status.history == 2 and status.values == kv.status().values
            await nc.close()

    run(work())


def test_a_bucket_without_ttls_for_keys_says_how_to_have_them(db: penstock.Database) -> None:
    db.stream("KV_go", subjects=["$KV.go.>"], max_msgs_per_subject=1, allow_rollup_hdrs=True)  # as the Go client does
    kv = db.key_value("go")
    with pytest.raises(errors.BucketError, match="open it with limit_marker_ttl"):
        kv.create("a", b"", ttl="10s")
    db.key_value("go", limit_marker_ttl="1m")
    assert kv.create("a", b"", ttl="10s") == 1
