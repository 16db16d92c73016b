"""A block that a crash left shorter than its header: nothing is in it, and nothing may be put there."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.kernel.constants import HEADER_SIZE, HEADER_STRIDE, RECORDS_START
from penstock.store.file_store import FileStore
from penstock.store.layout import BlockHeader


@pytest.mark.parametrize("size", [HEADER_SIZE, HEADER_STRIDE, RECORDS_START - 1, RECORDS_START])
def test_what_is_written_after_it_is_kept(tmp_path: Path, size: int) -> None:
    store = FileStore(tmp_path / "s", bytes(16))
    assert store.store("a", b"one") == 1
    store.core.seal_active()
    store.stop()
    front = BlockHeader(bytes(16), 2, store.epoch, 2, 2, 0, 5).encode_front()
    (tmp_path / "s" / "blocks" / "000002.blk").write_bytes(front[:size])
    (tmp_path / "s" / "HEAD").unlink()
    for _ in range(2):
        FileStore(tmp_path / "s", bytes(16)).stop()  # the second finds a clean stop, and goes on in the last block
    store = FileStore(tmp_path / "s", bytes(16))
    assert store.store("a", b"two") == 2
    store.stop()
    store = FileStore(tmp_path / "s", bytes(16))
    assert [one.data for one in store.read()] == [b"one", b"two"]
    assert store.report.is_clean
    store.stop()
