"""Object stores: the clients' layout, chunks and digests, links, watching; through the library and through a server."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import threading
from base64 import urlsafe_b64decode
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import nats
import nats.js
import pytest

import penstock
import penstock.aio
from penstock import errors
from penstock.db.buckets.objects import ObjectStore


@pytest.fixture
def db(root: Path) -> Iterator[penstock.Database]:
    with penstock.open(root, durability="os") as database:
        yield database


@pytest.fixture
def files(db: penstock.Database) -> ObjectStore:
    return db.object_store("files")


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


def noise(size: int) -> bytes:
    return os.urandom(size)


# Put and get.


def test_an_object_lies_as_the_clients_write_it(db: penstock.Database, files: ObjectStore) -> None:
    data = noise(1000)
    info = files.put("dir/näme.bin", data, description="a file", headers={"A": "1", "B": ["2", "3"]}, chunk_size=300)
    assert (info.size, info.chunks, info.bucket, len(info.nuid)) == (1000, 4, "files", 22)
    stream = db.stream("OBJ_files")
    assert stream.config.subjects == ("$O.files.C.>", "$O.files.M.>")
    assert (stream.config.discard, stream.config.allow_rollup_hdrs, stream.config.allow_direct) == ("new", True, True)
    assert b"".join(msg.data for msg in stream.read(f"$O.files.C.{info.nuid}")) == data
    meta = stream.last("$O.files.M.>")
    assert meta.subject == "$O.files.M.ZGlyL27DpG1lLmJpbg==" and meta.headers.get("Nats-Rollup") == "sub"
    told = json.loads(meta.data)
    assert list(told) == [
        "name",
        "description",
        "headers",
        "options",
        "bucket",
        "nuid",
        "size",
        "mtime",
        "chunks",
        "digest",
    ]
    assert told["headers"] == {"A": ["1"], "B": ["2", "3"]} and told["options"] == {"max_chunk_size": 300}
    assert told["digest"].startswith("SHA-256=")
    assert urlsafe_b64decode(told["digest"][8:]) == hashlib.sha256(data).digest()
    result = files.get("dir/näme.bin")
    assert result.data == data and result.info == info == files.info("dir/näme.bin")
    assert info.modified.tzinfo is not None and "näme" in repr(result) and "files" in repr(files)


@pytest.mark.parametrize("size", [0, 1, 299, 300, 301, 10_000_000])
def test_any_size_comes_back(files: ObjectStore, size: int) -> None:
    data = noise(size)
    assert files.put("x", data, chunk_size=300 if size < 1000 else 128 * 1024).size == size
    assert files.get("x").data == data


def test_an_object_is_put_from_a_file_or_a_path_and_read_as_a_file(files: ObjectStore, tmp_path: Path) -> None:
    data = noise(500_000)
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(data)
    files.put("path", source)
    files.put("text path", str(source))
    with source.open("rb") as file:
        files.put("file", file)
    files.put("buffer", io.BytesIO(data))
    files.put("view", memoryview(data))
    for name in ("path", "text path", "file", "buffer", "view"):
        with files.get(name) as result, target.open("wb") as out:
            shutil.copyfileobj(result, out)
        assert target.read_bytes() == data
    result = files.get("path")
    assert result.read(10) == data[:10] and b"".join(result.iter_chunks()) == data[10:] and result.read() == b""
    with pytest.raises(ValueError, match="read in part"):
        _ = result.data
    assert io.BufferedReader(files.get("path")).read(200_000) == data[:200_000]
    with pytest.raises(TypeError, match="binary mode"), io.StringIO("text") as text:
        files.put("text", text)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        files.put("number", 7)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        files.put("missing", tmp_path / "missing")
    with pytest.raises(ValueError, match="chunk_size"):
        files.put("x", b"", chunk_size=0)


def test_a_pipe_gives_whole_chunks(files: ObjectStore) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "wb", buffering=0) as sink:
        for part in (b"ab", b"cde", b"f"):
            sink.write(part)
        sink.close()
        info = files.put("x", source, chunk_size=4)
    assert info.chunks == 2 and files.get("x").data == b"abcdef"


def test_another_put_takes_the_place_of_the_first(files: ObjectStore) -> None:
    first = files.put("x", b"1" * 1000, chunk_size=100)
    second = files.put("x", b"2" * 10)
    assert files.get("x").data == b"2" * 10 and first.nuid != second.nuid
    assert files.stream.state().messages == 2  # one chunk, one meta


def test_what_was_not_put_whole_leaves_nothing(db: penstock.Database) -> None:
    small = db.object_store("small", max_bytes=10_000)
    small.put("x", b"kept")
    before = small.stream.state().messages
    with pytest.raises(errors.ApiError, match="maximum bytes"):
        small.put("x", noise(20_000), chunk_size=1000)
    assert small.stream.state().messages == before and small.get("x").data == b"kept"

    class Broken(io.RawIOBase):
        count = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            self.count += 1
            if self.count > 40:
                raise OSError("the cable is out")
            buffer[:] = bytes(len(buffer))
            return len(buffer)

    files = db.object_store("files")
    with pytest.raises(OSError, match="cable"):
        files.put("y", Broken())  # type: ignore[arg-type]
    assert files.stream.state().messages == 0 and files.list() == []


def test_damage_and_loss_are_noticed(db: penstock.Database, files: ObjectStore) -> None:
    info = files.put("x", noise(1000), chunk_size=100)
    files.stream.delete(3)
    with pytest.raises(errors.BadObject, match=r"900 of 1000 bytes are there \(9 of 10 chunks\)"):
        _ = files.get("x").data
    result = files.get("x")
    with pytest.raises(errors.BadObject):
        while result.read(1):
            pass
    files.stream.publish(f"$O.files.C.{info.nuid}", b"z" * 100)
    with pytest.raises(errors.BadObject, match="digest"):
        _ = files.get("x").data
    files.stream.publish("$O.files.M.eA==", b"{")
    with pytest.raises(errors.BadObject, match=r"object 'x' of object store files.*is not its meta"):
        files.info("x")
    files.stream.publish("$O.files.M.eA==", b'{"other":' + b"[" * 200_000)  # once a RecursionError
    with pytest.raises(errors.BadObject, match="is not its meta"):
        files.info("x")


def test_an_object_that_is_deleted_is_gone(files: ObjectStore) -> None:
    files.put("x", noise(1000))
    gone = files.delete("x")
    assert gone.is_deleted and (gone.size, gone.chunks, gone.digest) == (0, 0, "")
    for call in (lambda: files.get("x"), lambda: files.info("x"), lambda: files.delete("x")):
        with pytest.raises(errors.ObjectNotFound, match="has no object 'x': it was deleted"):
            call()
    with pytest.raises(errors.ObjectNotFound, match="has no object 'y'"):
        files.get("y")
    assert files.info("x", show_deleted=True).is_deleted and files.get("x", show_deleted=True).data == b""
    assert files.stream.state().messages == 1
    with pytest.raises(errors.BucketError, match="name"):
        files.put("", b"")


# Listing and metadata.


def test_objects_are_listed_and_watched(files: ObjectStore) -> None:
    assert files.list() == []
    for name in ("b", "a", "c"):
        files.put(name, b"1")
    files.delete("c")
    assert [info.name for info in files.list()] == ["a", "b"]
    assert [info.name for info in files.list(show_deleted=True)] == ["a", "b", "c"]
    with files.watch(timeout=0) as watcher:
        assert [info and (info.name, info.is_deleted) for info in watcher] == [
            ("b", False),
            ("a", False),
            ("c", True),
            None,
        ]
        files.put("d", b"1")
        files.delete("a")
        assert [info and (info.name, info.is_deleted) for info in watcher] == [("d", False), ("a", True)]
    assert [info and info.name for info in files.watch(ignore_deletes=True, timeout=0)] == ["b", "d", None]
    updates = files.watch(updates_only=True, timeout=0)
    files.put("e", b"1")
    assert [info and info.name for info in updates] == ["e"]
    with pytest.raises(ValueError, match="exclude"):
        files.watch(updates_only=True, include_history=True)


def test_what_is_said_of_an_object_can_be_changed(files: ObjectStore) -> None:
    files.put("x", b"data", description="old", headers={"A": "1"})
    changed = files.update_meta("x", description="new", metadata={"k": "v"})
    assert (changed.description, changed.headers, changed.metadata) == ("new", {"A": ["1"]}, {"k": "v"})
    files.put("taken", b"")
    with pytest.raises(errors.ObjectExists, match="'taken' already"):
        files.update_meta("x", new_name="taken")
    files.update_meta("x", new_name="y", headers={})
    assert files.get("y").data == b"data" and files.info("y").headers == {} and files.info("y").description == "new"
    with pytest.raises(errors.ObjectNotFound):
        files.info("x")


def test_links_lead_to_objects(db: penstock.Database, files: ObjectStore) -> None:
    other = db.object_store("other")
    info = other.put("real", b"data")
    files.add_link("link", info)
    assert files.get("link").data == b"data" and files.get("link").info == info
    assert files.info("link").link.bucket == "other" and files.info("link").link.name == "real"
    files.put("own", b"mine")
    files.add_link("link", "own")  # a link may be changed to another object
    assert files.get("link").data == b"mine"
    with pytest.raises(errors.BadLink, match="is a link itself"):
        files.add_link("chain", files.info("link"))
    with pytest.raises(errors.ObjectExists):
        files.add_link("own", info)
    files.add_bucket_link("all", other)
    with pytest.raises(errors.BadLink, match="a link to all of other"):
        files.get("all")
    with pytest.raises(errors.BadLink, match="was deleted"):
        files.add_link("x", other.delete("real"))
    files.add_link("lost", files.info("own"))
    files.delete("own")
    with pytest.raises(errors.ObjectNotFound, match="'own'"):
        files.get("lost")
    files.add_bucket_link("nowhere", "nowhere")
    files.delete("link")
    assert files.put("link", b"an object again").size == 15


@pytest.mark.parametrize(
    "meta",
    [
        # nats.js: a link has no nuid
        b'{"name":"x","bucket":"files","options":{"link":{"bucket":"files","name":"real"}}}',
        # nats.go: times that were never set
        b'{"name":"x","options":{"link":{"bucket":"files","name":"real"}},"bucket":"files",'
        b'"nuid":"BrX0LIDrUHaKnyMcNBTpJk","size":0,"mtime":"0001-01-01T00:00:00Z","chunks":0}',
        # nats-py: everything that is not None, and fields that a later version may have
        b'{"name": "x", "bucket": "files", "nuid": "N", "size": 0, "mtime": "", "chunks": 0, "digest": "", '
        b'"deleted": false, "headers": {"a": "b"}, "options": {"link": {"bucket": "files", "name": "real"}}, "new": 1}',
    ],
)
def test_metas_are_read_as_any_client_writes_them(files: ObjectStore, meta: bytes) -> None:
    files.put("real", b"data")
    files.stream.publish("$O.files.M.eA==", meta, {"Nats-Rollup": "sub"})
    assert files.get("x").data == b"data" and [info.name for info in files.list()] == ["real", "x"]
    assert files.info("x").time_ns > 0


def test_a_sealed_store_is_read_only(db: penstock.Database, files: ObjectStore) -> None:
    files.put("x", b"1")
    files.seal()
    assert files.status().is_sealed and files.status().size > 0 and files.status().ttl_ns == 0
    with pytest.raises(errors.StreamSealed):
        files.put("y", b"1")
    assert files.get("x").data == b"1"


def test_stores_are_listed_changed_and_deleted(db: penstock.Database, root: Path) -> None:
    db.object_store("one", description="first")
    db.object_store("one", ttl="1h")
    status = db.object_store("one").status()
    assert (status.description, status.ttl_ns) == ("first", 3600 * 10**9)
    db.object_store("two", storage="memory").put("x", b"1")
    assert db.object_stores() == ["one", "two"]
    db.delete_object_store("one")
    with pytest.raises(errors.BucketNotFound, match="no object store 'one'"):
        db.delete_object_store("one")
    with pytest.raises(errors.BadBucketName):
        db.object_store("a.b")
    with pytest.raises(errors.BucketError, match="no option"):
        db.object_store("x", history=3)  # type: ignore[call-arg]
    db.object_store("three").put("x", b"beside")
    with penstock.open(root, read_only=True) as beside:
        assert beside.object_store("three").get("x").data == b"beside"
        with pytest.raises(errors.BucketNotFound):
            beside.object_store("four")


# On an event loop, and through a server.


def test_the_async_face_does_the_same(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, durability="os") as db:
            files = await db.object_store("files")
            data = noise(300_000)
            info = await files.put("x", data, description="d")
            assert files.bucket == "files" and files.stream is await db.stream("OBJ_files")
            assert await (await files.get("x")).read() == data
            assert b"".join([chunk async for chunk in await files.get("x")]) == data
            assert await files.info("x") == info and (await files.get("x")).info == info
            await files.add_link("y", info)
            await files.add_bucket_link("z", files)
            assert (await files.update_meta("x", description="e")).description == "e"
            assert [info.name for info in await files.list()] == ["x", "y", "z"]
            async with files.watch(timeout=0.01) as watcher:
                assert [info and info.name async for info in watcher] == ["y", "z", "x", None]
            assert (await files.delete("x")).is_deleted
            await files.seal()
            assert (await files.status()).is_sealed
            await db.object_store("more")
            assert await db.object_stores() == ["files", "more"]
            await db.delete_object_store("more")
            assert await db.object_stores() == ["files"]

    run(work())


@pytest.mark.nats_py
def test_clients_and_the_library_see_the_same_objects(root: Path) -> None:
    async def work() -> None:
        data = noise(400_000)
        with penstock.open(root, durability="os") as db, penstock.Server(database=db) as server:
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            theirs = await js.create_object_store("theirs", config=nats.js.api.ObjectStoreConfig(description="d"))
            await theirs.put("dir/x", data, meta=nats.js.api.ObjectMeta(description="said", headers={"a": "b"}))
            ours = db.object_store("theirs")
            result = ours.get("dir/x")
            assert result.data == data and result.info.description == "said" and result.info.headers == {"a": ["b"]}
            assert result.info.chunks == 4 and ours.status().description == "d"
            await theirs.put("gone", b"1")
            await theirs.delete("gone")
            assert ours.info("gone", show_deleted=True).is_deleted and [one.name for one in ours.list()] == ["dir/x"]

            files = db.object_store("ours")
            put = files.put("x", data, description="said")
            files.put("gone", b"1")
            files.delete("gone")
            seen = await js.object_store("ours")
            info = await seen.get_info("x")
            assert (info.size, info.chunks, info.digest, info.nuid) == (put.size, put.chunks, put.digest, put.nuid)
            assert (info.description, info.options.max_chunk_size) == ("said", 128 * 1024)
            assert (await seen.get_info("gone", show_deleted=True)).deleted
            await nc.close()

    run(work())


def test_two_that_put_the_same_name_at_once_leave_the_chunks_of_one(files: ObjectStore) -> None:
    start = threading.Barrier(4)

    def put(number: int) -> None:
        start.wait(30)
        for _ in range(10):
            files.put("x", bytes([number]) * 1000, chunk_size=100)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(files.get("x").data)) == 1 and files.stream.state().messages == 11
