"""Staged blocks: what tasks write beside a stream is added in one step, exactly once, or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.disk import Disk
from penstock.db.adopt import adopt, root_of
from penstock.db.stage import Stage, StagedMessageRefused, discard_job
from penstock.errors import CorruptBlock, MaxMsgsExceeded, StoreError
from penstock.format.checked_file import write_checked
from penstock.store.open.adopt_plan import read_batches
from penstock.store.open.adoption import BadStage
from penstock.store.write.batch import Batch
from penstock.testing import FakeClock

LARGE = 4000  # bytes of a payload: a few of them fill a block of these streams


def make(root: Path, **config: Any) -> None:
    with penstock.open(root, durability="os") as db:
        db.stream("S", **({"subjects": ["a.>"]} | config)).publish("a.first", b"before")


def stage(
    root: Path, task: str, items: list[Any], job: str = "job", *, start_seq: int = 1, has_times: bool = False
) -> dict[str, Any]:
    one = Stage(root_of(root, "S"), job, task, start_seq=start_seq, has_times=has_times)
    one.append(Batch.raw(items) if has_times else Batch.of(items))
    return one.finish()


def many(task: int, count: int, size: int = LARGE) -> list[tuple[str, bytes]]:
    return [(f"a.{task}.{n % 7}", b"%d-%d " % (task, n) + bytes(size)) for n in range(count)]


def contents(root: Path) -> list[tuple[int, str, bytes]]:
    with penstock.open(root, read_only=True) as db:
        return [(msg.seq, msg.subject, msg.data) for msg in db.get_stream("S").read()]


def test_tasks_come_in_order_with_one_sequence_after_the_other(root: Path) -> None:
    make(root)
    parts = [many(0, 3000), many(1, 50), many(2, 2500)]
    infos = [stage(root, f"t{n}", part) for n, part in enumerate(parts)]
    found = adopt(root, "S", "job", infos)
    assert (found.first_seq, found.last_seq, found.messages) == (2, 5551, 5550)
    expected = [("a.first", b"before"), *parts[0], *parts[1], *parts[2]]
    assert contents(root) == [(seq, *item) for seq, item in enumerate(expected, 1)]
    assert not os.path.exists(os.path.join(root_of(root, "S"), "staging"))
    with penstock.open(root) as db:
        stream = db.get_stream("S")
        assert stream.publish("a.last", b"after").seq == 5552
        assert stream.subjects("a.1.*") == {f"a.1.{n}": 8 if n == 0 else 7 for n in range(7)}
        assert stream.get(3000).data.startswith(b"0-2998 ")
        assert not stream.findings


def test_a_small_batch_goes_into_the_active_block(root: Path) -> None:
    make(root)
    adopt(root, "S", "job", [stage(root, "t0", many(0, 20, 10)), stage(root, "t1", many(1, 20, 10))])
    assert len(contents(root)) == 41
    assert len(list(Path(root_of(root, "S"), "blocks").glob("*.blk"))) == 1


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_batch_of_a_query_is_written_once(root: Path, size: int) -> None:
    make(root)
    for attempt in range(3):
        infos = [stage(root, f"t{attempt}", many(0, 1000, size), "q-7")]
        found = adopt(root, "S", "q-7", infos, query="q", batch=7)
        assert (found.first_seq, found.last_seq, found.was_known) == (2, 1001, attempt > 0)
    assert adopt(root, "S", "q-6", [stage(root, "t", many(0, 5), "q-6")], query="q", batch=6).was_known
    assert not adopt(root, "S", "q-8", [stage(root, "t", many(0, 5), "q-8")], query="q", batch=8).was_known
    assert not adopt(root, "S", "r-0", [stage(root, "t", many(0, 5), "r-0")], query="r", batch=0).was_known
    assert len(contents(root)) == 1011
    with penstock.open(root) as db:
        store = db.get_stream("S").store
        assert {query: one["batch"] for query, one in read_batches(store.disk, store.paths).items()} == {"q": 8, "r": 0}


def test_the_process_that_writes_adopts_for_others(root: Path) -> None:
    make(root)
    info = stage(root, "t0", many(0, 3000))
    with penstock.open(root) as db:
        stream = db.get_stream("S")
        followed = stream.follow("a.>", start_seq=2, timeout=30)
        code = (
            "import sys, json; from penstock.db.adopt import adopt; "
            "print(adopt(sys.argv[1], 'S', 'job', json.loads(sys.argv[2])))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(root), json.dumps([info])], capture_output=True, text=True, check=False
        )
        assert "last_seq=3001" in done.stdout, done.stderr
        assert next(iter(followed)).seq == 2
        assert stream.publish("a.x", b"").seq == 3002
        bad = subprocess.run(
            [sys.executable, "-c", code, str(root), json.dumps([info])], capture_output=True, text=True, check=False
        )
        assert "is gone" in bad.stderr


def test_message_ids_are_remembered_and_dropped_when_known(root: Path) -> None:
    make(root)
    with penstock.open(root) as db:
        db.get_stream("S").publish("a.x", b"here", headers={"Nats-Msg-Id": "here"})
    ids = [("a.x", b"%d" % n, {"Nats-Msg-Id": str(n)}) for n in range(10)]
    again = [*ids[:3], ("a.x", b"here", {"Nats-Msg-Id": "here"}), ("a.y", b"plain")]
    found = adopt(root, "S", "job", [stage(root, "t0", ids), stage(root, "t1", again)])
    assert (found.messages, found.duplicates) == (11, 4)
    assert [data for _, _, data in contents(root)[2:]] == [*(b"%d" % n for n in range(10)), b"plain"]
    with penstock.open(root) as db:
        ack = db.get_stream("S").publish("a.x", b"again", headers={"Nats-Msg-Id": "5"})
        assert (ack.seq, ack.duplicate) == (8, True)


def test_limits_hold_for_the_whole(root: Path) -> None:
    make(root, max_msgs=100, max_msgs_per_subject=3)
    adopt(root, "S", "job", [stage(root, "t0", many(0, 600))])
    found = contents(root)
    assert [seq for seq, *_ in found] == [1, *range(581, 602)]
    with penstock.open(root / ".." / "new", durability="os") as db:
        db.stream("S", subjects=["a.>"], max_msgs=100, discard="new").publish("a.x", b"")
    other = root / ".." / "new"
    with pytest.raises(MaxMsgsExceeded):
        adopt(other, "S", "job", [stage(other, "t0", many(0, 100))])
    assert len(contents(other)) == 1
    adopt(other, "S", "more", [stage(other, "t0", many(0, 99), "more")])
    assert len(contents(other)) == 100


def test_sequences_and_times_are_kept_when_given(root: Path) -> None:
    with penstock.open(root, durability="os") as db:
        db.stream("S", subjects=["a.>"])
    first = Stage(root_of(root, "S"), "job", "t0", start_seq=1, has_times=True)
    first.append(Batch.raw([(0, 1000 + n, "a.x", None, b"%d" % n) for n in range(5)]))
    second = Stage(root_of(root, "S"), "job", "t1", start_seq=6, has_times=True)
    second.skip_to(10)
    second.append(Batch.raw([(0, 2000 + n, "a.y", None, bytes(LARGE)) for n in range(5)]))
    second.skip_to(20)
    second.append(Batch.raw([(0, 3000, "a.y", None, b"end")]))
    found = adopt(root, "S", "job", [first.finish(), second.finish()])
    assert (found.first_seq, found.last_seq, found.messages) == (1, 20, 11)
    with penstock.open(root) as db:
        stream = db.get_stream("S")
        times = {msg.seq: msg.time_ns for msg in stream.read()}
        assert times == {**{n + 1: 1000 + n for n in range(5)}, **{n + 10: 2000 + n for n in range(5)}, 20: 3000}
        assert not stream.state().lost
        assert not stream.findings


def test_the_time_is_that_of_the_adoption(root: Path, clock: FakeClock) -> None:
    with penstock.open(root, clock=clock) as db:
        stream = db.stream("S", subjects=["a.>"], allow_msg_ttl=True)
        clock.advance(10**9)
        items = [("a.x", bytes(LARGE), {"Nats-TTL": "60s"}), *many(1, 900)]
        now = clock.now_ns()
        stream.adopt("job", [stage(root, "t0", items)])
        assert {msg.time_ns for msg in stream.read()} == {now}
        clock.advance(61 * 10**9)
        assert stream.state().messages == 900


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (("b.x", b""), "message #1 on 'b.x' for S: "),
        (("a.*", b""), "message #1 on 'a.*' for S: "),
        (("a.x", bytes(300)), "exceeds"),
        (("a.x", b"", {"Nats-Rollup": "sub"}), "has the header Nats-Rollup"),
        (("a.x", b"", {"Nats-Expected-Last-Sequence": "1"}), "has the header Nats-Expected-Last-Sequence"),
    ],
)
def test_a_message_that_the_stream_would_refuse_is_refused_in_its_task(root: Path, item: Any, text: str) -> None:
    make(root, max_msg_size=200, allow_rollup_hdrs=True)
    one = Stage(root_of(root, "S"), "job", "t0")
    with pytest.raises(StagedMessageRefused, match=text.replace("*", r"\*")):
        one.append(Batch.of([("a.ok", b""), item]))
    one.discard()
    assert os.listdir(os.path.join(root_of(root, "S"), "staging", "job")) == []
    discard_job(root_of(root, "S"), "job")
    assert not os.path.exists(os.path.join(root_of(root, "S"), "staging"))


def test_a_changed_configuration_asks_for_the_batch_again(root: Path) -> None:
    make(root)
    info = stage(root, "t0", many(0, 10))
    with penstock.open(root) as db:
        db.stream("S", subjects=["a.>", "b.>"])
    with pytest.raises(BadStage, match="configuration of S was changed"):
        adopt(root, "S", "job", [info])


def test_names_of_jobs_stay_in_the_folder(root: Path) -> None:
    make(root)
    for name in ("../x", "a/b", "", "..", "x" * 300):
        with pytest.raises(StoreError, match="is no name for a stage"):
            Stage(root_of(root, "S"), name, "t")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"task": ".."}, "is no name for a stage"),
        ({"task": "../../../outside"}, "is no name for a stage"),
        ({"task": "/tmp"}, "is no name for a stage"),
        ({"task": "a\0b"}, "is no name for a stage"),
        ({"task": ""}, "is no name for a stage"),
        ({"task": 7}, "task #0 of job is not what Stage.finish gave: Expected `str`, got `int`"),
        ({"messages": "10"}, "Expected `int`, got `str`"),
        ({"messages": -1}, "Expected `int` >= 0"),
        ({"start_seq": 2**70}, "Expected `int`"),
        ({"has_times": None}, "Expected `bool`, got `null`"),
        ({"revision": []}, "Expected `int`, got `array`"),
    ],
)
def test_what_is_said_of_a_task_is_judged_before_it_becomes_a_path(
    root: Path, change: dict[str, Any], text: str
) -> None:
    """`stage` refused such names, but `adopt` did not: it read blocks from whatever path it was given."""
    make(root)
    info = stage(root, "t0", many(0, 10))
    with penstock.open(root) as db:
        stream = db.get_stream("S")
        with pytest.raises(StoreError, match=text):
            stream.adopt("job", [info | change])
        for job in ("..", "../S", "/tmp", "", "a\0b"):
            with pytest.raises(StoreError, match="is no name for a stage"):
                stream.adopt(job, [info])
        assert stream.adopt("job", [info]).messages == 10


def test_deleting_the_stream_takes_what_is_staged_with_it(root: Path) -> None:
    make(root)
    stage(root, "t0", many(0, 10))
    with penstock.open(root) as db:
        db.delete_stream("S")
        assert os.listdir(os.path.join(root, "$G")) == []


def test_jobs_that_commit_at_the_same_time_all_come_in(root: Path) -> None:
    """Each takes the lock for a moment, or is served by the process that holds it."""
    make(root)
    jobs = {f"job{n}": [stage(root, "t", many(n, 40), f"job{n}")] for n in range(8)}
    code = (
        "import sys, json; from penstock.db.adopt import adopt; "
        "print(adopt(sys.argv[1], 'S', sys.argv[2], json.loads(sys.argv[3])))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(root), job, json.dumps(infos)], stderr=subprocess.PIPE)
        for job, infos in jobs.items()
    ]
    assert [one.communicate(timeout=120)[1] for one in running] == [b""] * len(jobs)
    found = contents(root)
    assert [seq for seq, *_ in found] == list(range(1, 322))
    assert {data for _, _, data in found[1:]} == {data for n in range(8) for _, data in many(n, 40)}


@pytest.mark.parametrize("count", [3, 3000])
def test_a_staged_record_that_does_not_hold_fails_its_batch_and_nothing_else(root: Path, count: int) -> None:
    """It was once found only after the batch was decided: the stream then accepted no write until it was opened
    again.
    """
    make(root)
    info = stage(root, "t0", many(0, count))
    *_, block = sorted(Path(root_of(root, "S"), "staging").rglob("*.blk"))
    data = bytearray(block.read_bytes())
    data[-100] ^= 1
    block.write_bytes(data)
    with penstock.open(root) as db:
        stream = db.get_stream("S")
        with pytest.raises(CorruptBlock, match="run the batch again"):
            stream.adopt("job", [info])
        assert stream.publish("a.x", b"goes on").seq == 2
    discard_job(root_of(root, "S"), "job")
    assert [seq for seq, *_ in contents(root)] == [1, 2]
    assert adopt(root, "S", "job", [stage(root, "t1", many(0, count))]).last_seq == count + 2


@pytest.mark.parametrize("mode", ["append", "blocks"])
@pytest.mark.parametrize("damage", ["plan", "record", "gone"])
def test_an_unfinished_batch_that_is_damaged_does_not_keep_the_store_shut(root: Path, mode: str, damage: str) -> None:
    """The process died with the batch decided, and then a bit flipped or a file was lost."""
    make(root)
    stage(root, "t0", many(0, 5))
    stream_root = Path(root_of(root, "S"))
    (block,) = stream_root.rglob("staging/**/*.blk")
    name = str(block.relative_to(stream_root))
    plan: dict[str, Any] = {"query": "q", "batch": 0, "first_seq": 2, "has_times": False, "mode": mode}
    plan |= {"count": 5, "blocks": [name]} if mode == "append" else {"moves": [[name, 2, 100]], "last_seq": 6}
    write_checked(Disk(), str(stream_root / "ADOPT"), plan)
    if damage == "gone":
        block.unlink()
    else:
        path = block if damage == "record" else stream_root / "ADOPT"
        data = bytearray(path.read_bytes())
        data[-100 if damage == "record" else 10] ^= 1
        path.write_bytes(data)
    with penstock.open(root) as db:
        stream = db.get_stream("S")
        assert stream.findings
        assert stream.get(1).data == b"before"
        assert stream.publish("a.x", b"goes on").seq
    assert not (stream_root / "ADOPT").exists()
