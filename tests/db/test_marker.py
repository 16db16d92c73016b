"""PENSTOCK marks a directory as a store. If it is damaged, the streams are evidence enough: no user is locked out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import penstock
from penstock.base.xxh64 import xxh64_of
from penstock.errors import NewerFormat, NotAStore
from penstock.format.identity import decode_identity
from penstock.testing import SPACE_KINDS, CrashDisk

GOOD = b"penstock store, format 1\n"
DAMAGED = [b"", b"garbage", b"\xff\xfe\x00", GOOD[:-1], GOOD + GOOD, b"penstock store, format x\n", bytes(5000)]
DAMAGED += [b"penstock store, format 2\n", b"penstock store, format 99\n"]  # a newer one carries a checksum


def newer(version: int) -> bytes:
    line = b"penstock store, format %d\n" % version
    return line + b"xxh64 %016x\n" % xxh64_of(line)


def check_opens(root: Path, bad: bytes | None) -> None:
    """Readers open the store and write nothing; the next writer repairs the marker; each reports it once."""
    for read_only in (True, False):
        with penstock.open(root, read_only=read_only) as db:
            assert [message.data for message in db.stream("S").read()] == [b"kept"]
            (finding,) = db.findings
            assert finding.path == str(root / "PENSTOCK")
        if read_only and bad is not None:
            assert (root / "PENSTOCK").read_bytes() == bad
    assert (root / "PENSTOCK").read_bytes() == GOOD
    with penstock.open(root) as db:
        assert db.findings == []


@pytest.fixture
def store(root: Path) -> Path:
    with penstock.open(root) as db:
        db.stream("S").publish("S", b"kept")
    return root


def test_any_flipped_bit_is_told_and_mended(store: Path) -> None:
    for at in range(len(GOOD)):
        for bit in range(8):
            bad = bytearray(GOOD)
            bad[at] ^= 1 << bit
            (store / "PENSTOCK").write_bytes(bad)
            check_opens(store, bytes(bad))


@pytest.mark.parametrize("bad", DAMAGED)
def test_a_damaged_marker_is_kept_and_written_anew(store: Path, bad: bytes) -> None:
    (store / "PENSTOCK").write_bytes(bad)
    check_opens(store, bad)
    assert (store / "PENSTOCK.damaged").read_bytes() == bad


@pytest.mark.parametrize("how", ["missing", "directory", "link", "dead link", "pipe"])
def test_something_else_in_its_place(store: Path, how: str) -> None:
    path = store / "PENSTOCK"
    path.unlink()
    if how == "directory":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    elif how != "missing":
        path.symlink_to(store.parent / "elsewhere")
        if how == "link":
            (store.parent / "elsewhere").write_bytes(GOOD)
    check_opens(store, None)
    assert not path.is_symlink() and path.is_file()


def test_streams_of_another_account_say_as_much(root: Path) -> None:
    with penstock.open(root, account="APP") as db:
        db.stream("S").publish("S", b"kept")
    (root / "PENSTOCK").unlink()
    (root / "notes.txt").write_text("something that lies beside them")
    with penstock.open(root, account="APP") as db:
        assert db.stream("S").get(1).data == b"kept" and len(db.findings) == 1


def test_blocks_alone_say_as_much(store: Path) -> None:
    for name in ("config.json", "config.copy.json"):
        (store / "$G" / "S" / name).unlink()
    (store / "PENSTOCK").write_bytes(b"?")
    with penstock.open(store) as db:
        assert len(db.findings) == 1


def test_a_store_without_a_stream_is_not_lost_either(root: Path) -> None:
    penstock.open(root).close()
    (root / "PENSTOCK").write_bytes(b"penstock store, format 3\n")
    with penstock.open(root) as db:
        assert db.stream("S").publish("S").seq == 1


@pytest.mark.parametrize("marker", [newer(2), newer(99)])
def test_a_newer_store_is_refused_and_left_alone(store: Path, marker: bytes) -> None:
    (store / "PENSTOCK").write_bytes(marker)
    for read_only in (False, True):
        with pytest.raises(NewerFormat, match="upgrade"):
            penstock.open(store, read_only=read_only)
    assert (store / "PENSTOCK").read_bytes() == marker


def test_a_damaged_marker_over_a_newer_stream_is_refused(store: Path) -> None:
    """It is unknown what else that version has changed."""
    (store / "PENSTOCK").write_bytes(b"?")
    path = store / "$G" / "S" / "config.json"
    body = path.read_bytes().rpartition(b"\nxxh64 ")[0].replace(b'"format": 1', b'"format": 2')
    path.write_bytes(body + b"\nxxh64 %016x\n" % xxh64_of(body))
    with pytest.raises(NewerFormat):
        decode_identity(path.read_bytes(), str(path))
    with pytest.raises(NewerFormat):
        penstock.open(store)
    assert (store / "PENSTOCK").read_bytes() == b"?"


@pytest.mark.parametrize("marker", [None, b"", b"garbage"])
def test_what_is_no_store_is_left_alone(root: Path, marker: bytes | None) -> None:
    root.mkdir()
    (root / "thesis").mkdir()
    (root / "thesis" / "chapter").mkdir()
    if marker is not None:
        (root / "PENSTOCK").write_bytes(marker)
    for read_only in (False, True):
        with pytest.raises(NotAStore):
            penstock.open(root, read_only=read_only)
    assert not (root / "LOCK").exists()


def test_a_marker_that_cannot_be_written_waits(store: Path) -> None:
    (store / "PENSTOCK").unlink()
    disk = CrashDisk(store)
    disk.fail_at(1, 28, kinds=SPACE_KINDS, persistent=True)
    with penstock.open(store, disk=disk) as db:
        assert any("left for the next open" in str(one) for one in db.findings)
        disk.clear_faults()
    penstock.open(store).close()
    assert (store / "PENSTOCK").read_bytes() == GOOD
