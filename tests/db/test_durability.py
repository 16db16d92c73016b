"""A stream's own durability, in its metadata: it wins over the store's."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.errors import InvalidConfig
from penstock.store.file_store import FileStore


def test_a_stream_has_the_durability_that_its_metadata_name(tmp_path: Path) -> None:
    for _ in range(2):  # made, then opened
        with penstock.open(tmp_path / "data", durability="disk") as db:
            fast = db.stream("FAST", subjects=["fast.>"], metadata={"penstock.durability": "os"})
            safe = db.stream("SAFE", subjects=["safe.>"])
            assert isinstance(fast.store, FileStore) and isinstance(safe.store, FileStore)
            assert (fast.store.durability, safe.store.durability) == ("os", "disk")
            assert fast.publish("fast.a", b"x").seq == safe.publish("safe.a", b"x").seq


def test_a_durability_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db:
        with pytest.raises(InvalidConfig, match="'fast': one of disk, os, lazy"):
            db.stream("S", metadata={"penstock.durability": "fast"})
        with pytest.raises(InvalidConfig, match="in memory has none"):
            db.stream("S", storage="memory", metadata={"penstock.durability": "os"})


def test_a_streams_durability_is_for_good(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db:
        stream = db.stream("S", metadata={"penstock.durability": "os"})
        with pytest.raises(InvalidConfig, match=r"can not change penstock\.durability"):
            stream.update(metadata={})
