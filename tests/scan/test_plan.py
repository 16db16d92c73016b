"""Planning: parts that hold every message once, from a view that need not look at every block."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.base.disk import Disk
from penstock.db.adopt import adopt, root_of
from penstock.db.stage import Stage
from penstock.errors import CorruptBlock, NotAStore, StreamNotFound
from penstock.format.constants import RECORDS_START
from penstock.scan.checkpoint_view import view_from_checkpoint
from penstock.scan.part import StreamChanged, part_schema
from penstock.scan.plan import Part, open_views, plan, read_part, view_at
from penstock.store.read.view import StreamView
from penstock.store.write.batch import Batch
from penstock.testing.many_blocks import ROWS, multiply_blocks

BLOCK = 2000


@pytest.fixture(autouse=True)
def small_blocks() -> Iterator[None]:
    with patch("penstock.stream.stream.block_size", lambda config: BLOCK):
        yield


def fill(path: Path, count: int = 300, **config: Any) -> penstock.Database:
    db = penstock.open(path, durability="os")
    stream = db.stream("S", subjects=["s.>"], **config)
    stream.publish_many([(f"s.{n % 3}", b"payload %d" % n) for n in range(count)])
    return db


def seqs(parts: list[Part], **asked: Any) -> list[int]:
    """What the parts hold, read as another process would."""
    found: list[int] = []
    for part in parts:
        for batch in read_part(pickle.loads(pickle.dumps(part)), columns=["seq"], **asked):
            found += batch.column("seq").to_pylist()
    return found


class OpenedDisk(Disk):
    """A disk that remembers which files were opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, path: Any, mode: str = "r") -> int:
        self.opened.append(str(path))
        return super().open(path, mode)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StreamView, list[int]]]:
    path = tmp_path_factory.mktemp("stored") / "data"
    with patch("penstock.stream.stream.block_size", lambda config: BLOCK), fill(path) as db:
        stream = db.stream("S")
        stream.delete_many([7, 8, 9, 100, 250])
        stream.purge(seq=5)
        yield open_views(path)[0], [seq for seq in range(5, 301) if seq not in (7, 8, 9, 100, 250)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    max_bytes=st.integers(1, 40_000),
    min_parts=st.integers(1, 40),
    start=st.none() | st.integers(0, 310),
    length=st.none() | st.integers(0, 310),
)
def test_parts_hold_every_message_once_and_in_order(
    stored: tuple[StreamView, list[int]], max_bytes: int, min_parts: int, start: int | None, length: int | None
) -> None:
    view, there = stored
    stop = None if length is None else (start or 0) + length
    parts = plan(view, start_seq=start, stop_seq=stop, max_bytes=max_bytes, min_parts=min_parts)
    wanted = [seq for seq in there if (start or 0) <= seq and (stop is None or seq < stop)]
    assert seqs(parts) == wanted
    assert all(before.high <= after.low for before, after in pairwise(parts))
    if wanted:
        first, last = max(start or 0, 5), min(stop or 301, 301)
        assert len(parts) >= min(min_parts, last - first) * 0.5, "about as many as asked for"


def test_parts_are_about_equal(stored: tuple[StreamView, list[int]]) -> None:
    view, _ = stored
    sizes = [part.size for part in plan(view, min_parts=3)]
    assert len(sizes) == 3 and max(sizes) - min(sizes) <= 2 * BLOCK
    assert len(plan(view, max_bytes=1 << 20)) == 1


def test_blocks_that_cannot_hold_a_wanted_row_are_not_planned(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", durability="os") as db:
        stream = db.stream("S", subjects=["s.>"])
        for n in range(20):
            stream.publish_many([(f"s.{n}", b"x" * 90)] * 20)
    view = open_views(tmp_path / "data")[0]
    assert len(view.blocks) >= 20
    [part] = plan(view, subjects=["s.7"])
    assert len(part.blocks) <= 4
    assert seqs([part], subjects=["s.7"]) == list(range(141, 161))
    middle = view.blocks[10]
    [part] = plan(view, since=middle.time_min, until=middle.time_min + 1)
    assert len(part.blocks) <= 3
    assert sum(len(part.blocks) for part in plan(view, subjects=["other.*"])) == 1, (
        "only the last, which has no summary"
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("config", [{}, {"max_msgs": 120}, {"max_msgs_per_subject": 20}], ids=str)
def test_the_view_from_the_checkpoint_alone_is_the_whole_one(tmp_path: Path, config: dict[str, Any], seed: int) -> None:
    """Beside a writer that publishes, deletes, purges, makes checkpoints and is opened again."""
    choose = random.Random(seed)
    from_checkpoint = 0
    db = fill(tmp_path / "data", 50, **config)
    db.stream("S").rules.store.write_checkpoint()
    root, disk = str(tmp_path / "data" / "$G" / "S"), Disk()
    for _ in range(25):
        stream = db.stream("S")
        act = choose.random()
        last = stream.state().last_seq
        if act < 0.5:
            stream.publish_many([(f"s.{choose.randrange(9)}", b"x" * choose.randrange(200))] * choose.randrange(40))
        elif act < 0.7:
            stream.delete_many({choose.randrange(1, last + 1) for _ in range(5)})
        elif act < 0.76:
            stream.purge(seq=choose.randrange(1, last + 1))
        elif act < 0.8:
            stream.purge(f"s.{choose.randrange(9)}")
        elif act < 0.85:
            stream.rules.store.write_checkpoint()
        elif act < 0.92:
            adopt_some(tmp_path / "data", choose.randrange(1, 100))
        else:
            db.close()
            if choose.random() < 0.5:
                from_checkpoint += compare(root, disk)
            db = penstock.open(tmp_path / "data", durability="os")
        db.stream("S").rules.store.files.summaries.finish()  # else one that comes between the looks is seen by one
        from_checkpoint += compare(root, disk)
    db.close()
    assert compare(root, disk), "a closed stream needs no look at its blocks"
    assert from_checkpoint > 10, "mostly the checkpoint was enough"


def adopt_some(path: Path, count: int) -> None:
    """Blocks that were written elsewhere come into the stream whole."""
    staged = Stage(root_of(path, "S"), f"job{count}", "task")
    staged.append(Batch.of([(f"s.{n % 9}", b"y" * 100) for n in range(count)]))
    adopt(path, "S", f"job{count}", [staged.finish()])


def compare(root: str, disk: Disk) -> bool:
    full = view_at(root, disk, from_checkpoint=False)
    found = view_from_checkpoint(root, full.stream_id, "S", disk)
    if found is None:
        return False
    for name in [field.name for field in fields(StreamView) if field.name not in ("blocks", "dead")]:
        if full.messages or name not in ("first_seq",):
            assert getattr(found, name) == getattr(full, name), name
    low = full.first_seq
    dead = [(max(first, low), last) for first, last in (full.dead.ranges() if full.dead else []) if last >= low]
    assert [span for span in (found.dead.ranges() if found.dead else [])] == dead
    assert seqs(plan(found)) == seqs(plan(full))
    blocks = {block.block_id: block for block in full.blocks}
    for block in found.blocks:
        assert block == blocks[block.block_id]
    return True


def test_a_plan_opens_no_block_that_the_checkpoint_lists(tmp_path: Path) -> None:
    with patch("penstock.stream.stream.block_size", lambda config: 8 << 20), penstock.open(tmp_path / "one") as db:
        db.stream("S", subjects=["s.>"]).publish_many([("s.x", b"x")] * ROWS)
    root = str(tmp_path / "one" / "$G" / "S")
    multiply_blocks(root, 2000)
    disk = OpenedDisk()
    view = open_views(tmp_path / "one", disk=disk)[0]
    assert len(view.blocks) == 2001 and view.messages == 2001 * ROWS
    assert not [path for path in disk.opened if path.endswith((".blk", ".sum"))]
    assert len(plan(view, subjects=["many.77.1"])) <= 2
    slice_of = plan(view, since=view.blocks[500].time_min, until=view.blocks[600].time_min)
    assert sum(len(part.blocks) for part in slice_of) == 100


def test_a_block_that_the_writer_removed_is_planned_again(tmp_path: Path) -> None:
    with fill(tmp_path / "data") as db:
        parts = plan(open_views(tmp_path / "data")[0], min_parts=3)
        db.stream("S").purge(seq=200)
        for _ in range(3):  # the writer removes what is dead once it has synced, and looks at that when it syncs next
            db.stream("S").publish("s.1", b"one more")
            db.stream("S").sync()
    assert not Path(parts[0].blocks[0].path).exists()
    assert seqs(parts[:1]) == []
    assert seqs(parts) == list(range(200, 301))


def test_what_is_erased_after_the_plan_is_not_read(tmp_path: Path) -> None:
    with fill(tmp_path / "data") as db:
        parts = plan(open_views(tmp_path / "data")[0], min_parts=3)
        assert db.stream("S").erase(42)
        rows = [row for part in parts for batch in read_part(part) for row in batch.to_pylist()]
    assert [row["seq"] for row in rows] == [seq for seq in range(1, 301) if seq != 42]
    assert all(row["payload"] == b"payload %d" % (row["seq"] - 1) for row in rows)


def test_a_truncated_stream_fails_and_says_why(tmp_path: Path) -> None:
    with fill(tmp_path / "data") as db:
        parts = plan(open_views(tmp_path / "data")[0], min_parts=3)
        stream = db.stream("S")
        stream.rules.store.truncate(150)
        stream.publish_many([("s.new", b"new")] * 150)
        assert seqs(parts[:1]) == list(range(1, parts[0].high))
        for mode in ("fail", "skip", "quarantine"):
            with pytest.raises(StreamChanged, match=r"truncated, or recovered after a crash.*epoch 0, now 1.*again"):
                seqs(parts[1:], mode=mode)


def test_a_stream_that_was_made_anew_fails_and_says_why(tmp_path: Path) -> None:
    with fill(tmp_path / "data") as db:
        parts = plan(open_views(tmp_path / "data")[0])
        db.delete_stream("S")
        with pytest.raises(StreamChanged, match="was deleted while it was read"):
            seqs(parts)
        db.stream("S", subjects=["s.>"]).publish_many([("s.1", b"payload 1")] * 300)
        with pytest.raises(StreamChanged, match="was deleted and made anew"):
            seqs(parts)


def damaged(tmp_path: Path) -> tuple[Part, str]:
    """A part with one byte flipped in its second block."""
    with fill(tmp_path / "data"):
        pass
    [part] = plan(open_views(tmp_path / "data")[0])
    path = part.blocks[1].path
    data = bytearray(Path(path).read_bytes())
    data[RECORDS_START + 200] ^= 1
    Path(path).write_bytes(data)
    return part, path


def test_damage_fails_is_skipped_or_quarantined(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    part, path = damaged(tmp_path)
    with pytest.raises(CorruptBlock, match="checksum differs"):
        seqs([part])
    kept = seqs([part], mode="skip")
    [lost] = set(range(1, 301)) - set(kept)
    assert caplog.records[0].getMessage().startswith(f"stream S: {path} at byte ")
    assert f"may have held sequences {lost} to {lost}" in caplog.text
    assert caplog.records[-1].getMessage() == "stream S: 1 damaged places in messages 1 to 300"
    batches = list(read_part(part, mode="quarantine"))
    assert batches[0].schema == part_schema(None, "map", "quarantine")
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["seq"] for row in rows if row["damage"] is None] == kept
    [bad] = [row for row in rows if row["damage"] is not None]
    assert (bad["seq"], bad["subject"], bad["ts"]) == (lost, None, None)
    assert b"payload" in bad["payload"] and path in bad["damage"]


def test_a_block_that_is_missing_is_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that somebody else removed: no record says that its messages are gone."""
    with fill(tmp_path / "data"):
        pass
    [part] = plan(open_views(tmp_path / "data")[0])
    gone = part.blocks[2]
    Path(gone.path).unlink()
    with pytest.raises(CorruptBlock, match="the file is missing"):
        seqs([part])
    left = [seq for seq in range(1, 301) if not gone.first_seq <= seq < gone.stop_seq]
    assert seqs([part], mode="skip") == left
    assert (
        f"000003.blk at byte 0: the file is missing; 0 bytes, may have held sequences {gone.first_seq} to"
        in caplog.text
    )
    rows = [row for batch in read_part(part, mode="quarantine") for row in batch.to_pylist()]
    assert sorted(row["seq"] for row in rows) == sorted([*left, gone.first_seq])
    [bad] = [row for row in rows if row["damage"]]
    assert (bad["seq"], bad["payload"]) == (gone.first_seq, b"")


def test_headers_are_a_map_raw_or_left_out(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", durability="os") as db:
        db.stream("S", subjects=["s.>"]).publish("s.1", b"x", headers={"A": "1"})
        [part] = plan(open_views(tmp_path / "data")[0])
    [as_map] = read_part(part)
    [raw] = read_part(part, headers="raw")
    [none] = read_part(part, headers="none")
    assert as_map.column("headers").to_pylist() == [[("A", ["1"])]]
    assert raw.column("headers").to_pylist() == [b"NATS/1.0\r\nA: 1\r\n\r\n"]
    assert "headers" not in none.schema.names and none.num_columns == 6


def test_beside_a_writer_no_row_is_torn(tmp_path: Path) -> None:
    """Another process publishes in small batches; each look gives whole messages without a gap."""
    code = (
        "import sys, penstock\n"
        f"with penstock.open({str(tmp_path / 'data')!r}, durability='os') as db:\n"
        "    stream = db.stream('S', subjects=['s.>'])\n"
        "    stream.publish('s.0', b'payload 1'); print('go', flush=True)\n"
        "    for n in range(2, 60_000, 7):\n"
        "        stream.publish_many([(f's.{k % 3}', b'payload %d' % k) for k in range(n, n + 7)])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "go\n"
        looks, last = 0, 0
        while writer.poll() is None or looks == 0:
            view = open_views(tmp_path / "data")[0]
            for part in plan(view, min_parts=2, start_seq=last + 1):
                for batch in read_part(part, columns=["seq", "payload"]):
                    for seq, payload in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        assert seq == last + 1 and payload == b"payload %d" % seq
                        last = seq
            assert last == view.last_seq
            looks += 1
        assert writer.wait() == 0
    assert looks > 3


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="there is no such directory"):
        open_views(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAStore, match="there is no PENSTOCK file in it"):
        open_views(tmp_path / "empty")
    with fill(tmp_path / "data"):
        pass
    with pytest.raises(StreamNotFound, match=r"stream 'X' not found in .*; there are: S"):
        open_views(tmp_path / "data", ["X"])
    assert open_views(tmp_path / "data", []) == []
