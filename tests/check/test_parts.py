"""Planning a check: blocks in runs, sizes without a look at each of very many blocks."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.check import parts
from penstock.check.parts import BlockRun, StreamPart
from penstock.format.paths import StreamPaths
from penstock.store.open.stream_folders import StreamFolder

FOLDER = StreamFolder("$G", "S", "/nowhere", "S")


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 100))
def test_runs_hold_every_block_once_and_in_order(sizes: list[int], target: int) -> None:
    names = tuple(f"{n + 1:06d}.blk" for n in range(len(sizes)))
    runs = list(parts.cut(BlockRun(FOLDER, False, bytes(16), None, names), sizes, target))
    assert [name for run in runs for name in run.names] == list(names)
    for at, run in enumerate(runs):
        assert run.names
        assert run.next_name == (runs[at + 1].names[0] if at + 1 < len(runs) else "")
        last = names.index(run.names[-1])
        assert run.size - sizes[last] < target, "it would have been full before its last block"


def test_many_blocks_are_not_asked_for_their_size_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(parts, "size_of", lambda path: calls.append(path) or 100)  # type: ignore[func-returns-value]
    names = [f"{n:06d}.blk" for n in range(1, 100_001)]
    assert parts.sizes_of(StreamPaths(str(tmp_path)), names) == [100] * 100_000
    assert len(calls) < 300


def test_parts_can_be_pickled() -> None:
    for part in (StreamPart(FOLDER, True), BlockRun(FOLDER, True, bytes(16), None, ("000001.blk",))):
        assert pickle.loads(pickle.dumps(part)) == part
