"""A server that starts after kill -9 on a disk that is full: what is there is served, and writing resumes by itself."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.xxh64 import xxh64_of
from penstock.format.constants import HEADER_SIZE, HEADER_STRIDE
from penstock.testing import SPACE_KINDS, CrashDisk
from support.attack import Client

WRITER = """
import os, sys, penstock
db = penstock.open(sys.argv[1])
for name in "AB":
    stream = db.stream(name, subjects=[name + ".>"])
    for n in range(50):
        stream.publish(name + ".x", b"%d" % n)
consumer = db.stream("A").consumer("c")
os._exit(9)
"""
NO_SPACE = "No space left on device"


def kill_a_writer(root: Path) -> None:
    """Streams A and B of a killed process; of A the last message is gone, which the open has to write down."""
    subprocess.run([sys.executable, "-c", WRITER, str(root)], check=False)
    path = root / "$G" / "A" / "blocks" / "000001.blk"
    data = path.read_bytes().rstrip(b"\0")
    os.truncate(path, len(data) - 5)


def until(look: Any) -> dict[str, Any]:
    """Ask until there is no error in the answer."""
    end = time.monotonic() + 20
    while "error" in (found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def check_full(client: Client) -> None:
    state = client.state("A")
    assert state["messages"] == 49 and state["last_seq"] == 50
    assert client.api("STREAM.MSG.GET.A", {"seq": 49})["message"]["seq"] == 49
    assert client.api("CONSUMER.INFO.A.c")["num_pending"] == 49
    for _ in range(3):
        refused = client.ask("A.x", b"refused")["error"]
        # The server's own limit, which follows the room on the disk, may be what refuses it first.
        assert refused["err_code"] == 10023 or (refused["err_code"] == 10077 and NO_SPACE in refused["description"])
    made = client.api("STREAM.CREATE.M", {"name": "M", "subjects": ["m"], "storage": "memory"})
    assert "error" not in made, made
    assert client.ask("m", b"taken")["seq"] == 1
    failed = client.api("STREAM.CREATE.F", {"name": "F", "subjects": ["f"], "storage": "file"})
    assert failed["error"]["err_code"] in (10047, 10049)
    assert client.api("STREAM.NAMES")["streams"] == ["A", "B", "M"]


def check_again(client: Client) -> None:
    assert until(lambda: client.ask("A.x", b"taken"))["seq"] == 51
    assert client.state("A")["messages"] == 50
    until(lambda: client.api("STREAM.CREATE.F", {"name": "F", "subjects": ["f"], "storage": "file"}))


def test_a_stream_is_served_and_takes_writes_again_once_there_is_room(tmp_path: Path) -> None:
    root = tmp_path / "data"
    kill_a_writer(root)
    disk = CrashDisk(root)
    disk.fail_at(1, errno.ENOSPC, kinds=SPACE_KINDS, persistent=True)
    with penstock.open(root, disk=disk) as db, penstock.Server(database=db) as server:
        client = Client(server.port)
        check_full(client)
        assert db.stream("A").store.has_deferred_writes
        disk.clear_faults()
        check_again(client)
    with penstock.open(root) as db:
        assert db.stream("A").findings == [] and db.stream("A").get(51).data == b"taken"


def test_it_resumes_without_anybody_who_publishes(tmp_path: Path) -> None:
    root = tmp_path / "data"
    kill_a_writer(root)
    disk = CrashDisk(root)
    disk.fail_at(1, errno.ENOSPC, kinds=SPACE_KINDS, persistent=True)
    with penstock.open(root, disk=disk) as db, penstock.Server(database=db):
        store = db.stream("A").store
        assert store.has_deferred_writes
        disk.clear_faults()
        end = time.monotonic() + 20
        while store.has_deferred_writes:
            assert time.monotonic() < end
            time.sleep(0.02)


def test_a_stream_that_cannot_be_opened_comes_back_and_can_be_deleted(tmp_path: Path) -> None:
    root = tmp_path / "data"
    kill_a_writer(root)
    blocks = {name: root / "$G" / name / "blocks" / "000001.blk" for name in "AB"}
    good = blocks["A"].read_bytes()
    for path in blocks.values():
        path.write_bytes(of_a_newer_version(path.read_bytes()))
    with penstock.open(root) as db, penstock.Server(database=db) as server:
        client = Client(server.port)
        assert client.api("STREAM.NAMES")["streams"] is None
        assert client.api("STREAM.DELETE.B")["success"] is True
        assert not (root / "$G" / "B").exists()
        blocks["A"].write_bytes(good)
        assert until(lambda: client.api("STREAM.INFO.A"))["state"]["messages"] == 49


def of_a_newer_version(data: bytes) -> bytes:
    body = data[:8] + struct.pack("<H", 2) + data[10 : HEADER_SIZE - 8]
    copy = body + struct.pack("<Q", xxh64_of(body))
    return copy + data[HEADER_SIZE:HEADER_STRIDE] + copy + data[HEADER_STRIDE + HEADER_SIZE :]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MB that a test can fill."""
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(path)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a full disk cannot be made here, only simulated: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False)


def test_the_same_on_a_disk_that_is_really_full(small_disk: Path) -> None:
    root, ballast = small_disk / "data", small_disk / "ballast"
    kill_a_writer(root)
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 512):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC
    with penstock.open(root) as db, penstock.Server(database=db) as server:
        client = Client(server.port)
        check_full(client)
        ballast.unlink()
        check_again(client)
    with penstock.open(root) as db:
        assert db.stream("A").get(51).data == b"taken"
