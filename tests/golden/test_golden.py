"""Golden stores: files of each format version, read by the code of today. Made by tools/make_golden.py, kept for
good."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import MessageDeleted, MessageNotFound
from penstock.store.base import NEVER
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.testing.clock import FakeClock

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.glob("format-*") if path.is_dir())
WITHOUT = {
    "whole": [],
    "checkpoint": ["CHECKPOINT"],
    "summaries": ["*.sum"],
    "blocks-alone": ["CHECKPOINT", "*.sum", "HEAD"],
}


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of the files, and what must be read from them."""
    shutil.copytree(HERE / request.param, tmp_path / "golden")
    told = json.loads((tmp_path / "golden" / "manifest.json").read_text(encoding="utf-8"))
    return tmp_path / "golden" / "stream", told


def open_store(path: Path, told: dict[str, Any], now_ns: int | None = None) -> FileStore:
    return FileStore(
        path,
        bytes.fromhex(told["stream_id"]),
        limits=Limits(**told["limits"]),
        durability="os",
        clock=FakeClock(told["now_ns"] if now_ns is None else now_ns),
    )


def test_there_is_a_golden_store_of_every_version() -> None:
    assert VERSIONS == ["format-1"]
    assert sum(path.stat().st_size for path in HERE.rglob("*") if path.is_file()) < 100_000


@pytest.mark.parametrize("gone", WITHOUT)
def test_a_golden_store_is_read_whole(golden: tuple[Path, dict[str, Any]], gone: str) -> None:
    path, told = golden
    for pattern in WITHOUT[gone]:
        for file in path.rglob(pattern):
            file.unlink()
    store = open_store(path, told)
    try:
        assert store.report.is_clean, [str(one) for one in store.report.findings]
        state = store.state()
        assert {name: getattr(state, name) for name in told["state"]} == told["state"]
        assert state.deleted is not None
        assert [list(one) for one in state.deleted.ranges()] == told["deleted"]
        assert not store.lost
        assert [
            [m.seq, m.time_ns, m.subject, None if m.raw_headers is None else m.raw_headers.hex(), m.data.hex()]
            for m in store.read()
        ] == told["messages"]
        subjects = store.subjects_state()
        assert {name: [one.messages, one.first_seq, one.last_seq] for name, one in subjects.items()} == told["subjects"]
        live = {one[0] for one in told["messages"]}
        expiries = [*map(list, store.wheel.entries()), *([seq, NEVER] for seq in store.exempt)]
        assert sorted(one for one in expiries if one[0] in live) == [one for one in told["expiries"] if one[0] in live]
        ids = [[seq, time, hashed.hex()] for seq, time, hashed, _ in store.recent_ids_and_expiries(0) if hashed]
        assert [one for one in ids if one[0] in live] == [one for one in told["ids"] if one[0] in live]
    finally:
        store.abandon()


def test_what_was_deleted_skipped_and_erased_is_told_apart(golden: tuple[Path, dict[str, Any]]) -> None:
    path, told = golden
    store = open_store(path, told)
    skipped = {seq for first, last in told["skipped"] for seq in range(first, last + 1)}
    for first, last in told["deleted"]:
        for seq in range(first, last + 1):
            with pytest.raises(MessageNotFound if seq in skipped else MessageDeleted):
                store.load(seq)
    store.abandon()
    for file in path.rglob("*"):
        assert not file.is_file() or b"THE-ERASED" not in file.read_bytes()


def test_a_golden_store_goes_on(golden: tuple[Path, dict[str, Any]]) -> None:
    """It takes new messages, expires old ones, and is still whole after the next open."""
    path, told = golden
    later = told["now_ns"] + 2 * 3600 * 10**9
    store = open_store(path, told, later)
    expired = {seq for seq, expiry in told["expiries"] if expiry <= later}
    wanted = [one[0] for one in told["messages"] if one[0] not in expired]
    assert expired and [m.seq for m in store.read()] == wanted
    seq = store.store("new", b"x" * 500)
    assert seq == told["state"]["last_seq"] + 1
    store.stop()
    again = open_store(path, told, later)
    assert [m.seq for m in again.read()] == [*wanted, seq]
    assert again.report.is_clean
    again.abandon()
