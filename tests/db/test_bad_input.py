"""Bad input to the library: every call raises a clear error, and nothing is lost."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.base.disk import Disk
from penstock.errors import (
    BadHeader,
    BadStreamName,
    BadSubject,
    CorruptBlock,
    DiskFull,
    FeatureMissing,
    ForkedHandle,
    HeadersTooLarge,
    InvalidConfig,
    MessageTooLarge,
    NewerFormat,
    NotAStore,
    ReadOnlyStore,
    RecordTooLarge,
    StoreClosed,
    StoreLocked,
)
from penstock.format.identity import read_identity, with_config, write_identity
from penstock.format.paths import StreamPaths
from penstock.testing import SPACE_KINDS, CrashDisk, FakeClock, crash_image

# Paths.


def test_a_path_that_is_a_file_is_no_store(root: Path) -> None:
    root.write_bytes(b"dear diary")
    for read_only in (False, True):
        with pytest.raises(NotAStore, match="it is a file"):
            penstock.open(root, read_only=read_only)
    with pytest.raises(NotAStore):
        penstock.open(root / "below")
    assert root.read_bytes() == b"dear diary"


def test_a_place_where_nothing_can_be_made_is_refused() -> None:
    """Not even root may create a directory below /proc, so this holds for every user."""
    with pytest.raises((NotAStore, ReadOnlyStore), match="/proc/penstock"):
        penstock.open("/proc/penstock")


def test_a_lock_that_cannot_be_written_says_that_reading_is_possible(root: Path) -> None:
    """Root may write anything; a directory in place of LOCK stops root too."""
    with penstock.open(root) as db:
        db.stream("S").publish("S", b"kept")
    (root / "LOCK").unlink()
    (root / "LOCK").mkdir()
    with pytest.raises(ReadOnlyStore, match="read_only=True"):
        penstock.open(root)
    with penstock.open(root, read_only=True) as db:
        assert db.stream("S").get(1).data == b"kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_told_that_it_has_no_permission(root: Path) -> None:
    with penstock.open(root) as db:
        db.stream("S").publish("S", b"kept")
    os.chmod(root.parent, 0o755)
    os.chmod(root, 0o700)
    script = f"""
import os, penstock.db.database
os.setuid(65534)
for path in ({str(root)!r}, {str(root.parent / "new")!r}):
    for read_only in (False, True):
        try:
            penstock.open(path, read_only=read_only)
        except penstock.StoreError as error:
            print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["NotAStore", "NotAStore", "ReadOnlyStore", "NotAStore"], done.stdout


def test_a_directory_with_other_files_is_left_alone(root: Path) -> None:
    root.mkdir()
    (root / "thesis.tex").write_text("chapter 1")
    with pytest.raises(NotAStore, match="holds other files"):
        penstock.open(root)
    assert [path.name for path in root.iterdir()] == ["thesis.tex"]


def test_reading_makes_nothing(root: Path) -> None:
    with pytest.raises(NotAStore, match="no such directory"):
        penstock.open(root, read_only=True)
    assert not root.exists()
    root.mkdir()
    with pytest.raises(NotAStore, match="no PENSTOCK file"):
        penstock.open(root, read_only=True)
    assert not list(root.iterdir())


def test_an_unknown_durability_is_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="one of disk, os, lazy"):
        penstock.open(root, durability="best")
    assert not root.exists()


# Names and subjects.

BAD_NAMES = ["", ".", "..", "a/b", "a\\b", "/etc", "../x", "a b", " ", "a\tb", "a\nb", "a\0b", "a.b", "*", ">", "\x7f"]
BAD_NAMES += ["x" * 256, "é" * 128, "\ud800"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_everywhere(root: Path, name: str) -> None:
    with penstock.open(root) as db:
        calls: list[Callable[[], object]] = [
            lambda: db.stream(name),
            lambda: db.get_stream(name),
            lambda: db.delete_stream(name),
        ]
        for call in calls:
            with pytest.raises((BadStreamName, InvalidConfig)):
                call()
        assert db.streams() == []
    assert sorted(path.name for path in root.parent.iterdir()) == ["data"]
    with pytest.raises(BadStreamName):
        penstock.open(root, account=name)


def test_names_may_be_long_and_in_any_script(root: Path) -> None:
    names = ["x" * 255, "é" * 127, "注文", "$G", "-rf", "~", "a:b"]
    with penstock.open(root) as db:
        for n, name in enumerate(names):
            db.stream(name, subjects=[f"s.{n}"]).publish(f"s.{n}", name.encode())
    with penstock.open(root) as db:
        assert db.streams() == sorted(names)
        assert all(db.get_stream(name).get(1).data == name.encode() for name in names)


@pytest.mark.parametrize(
    "subject",
    ["", " ", "s a", "s.\t", "s.\r\n", ".s", "s.", "s..a", "s.*", "s.>", "*", ">", "s.\0", "s." + "x" * 65_536],
)
def test_a_bad_subject_is_refused(root: Path, subject: str) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.>"])
        for given in (subject, subject.encode()):
            with pytest.raises(BadSubject):
                stream.publish(given, b"")
            with pytest.raises(BadSubject):
                stream.publish(given, b"", {"Nats-Msg-Id": "1"})
        assert stream.publish("s.good", b"", {"Nats-Msg-Id": "1"}).seq == 1


def test_a_subject_that_is_not_utf8_is_refused_or_kept_but_breaks_nothing(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.>"])
        try:
            stream.publish(b"s.\xff\xfe", b"x")
        except BadSubject:
            assert stream.state().messages == 0
        else:
            assert len(list(stream.read())) == len(stream.to_arrow()) == len(stream.subjects()) == 1
        with pytest.raises((BadSubject, UnicodeEncodeError)):
            stream.publish("s.\ud800", b"")
        stream.publish("s.ok", b"")
        assert stream.last().subject == "s.ok"


@pytest.mark.parametrize("wrong", ["a b", "", "a..b", ".", ">.a", "a.>.b", "a\0b" * 30_000])
def test_a_bad_filter_is_refused(root: Path, wrong: str) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.>"])
        stream.publish("s.1", b"")
        questions: list[Callable[[], object]] = [
            lambda: stream.read(wrong),
            lambda: stream.read(["s.1", wrong]),
            lambda: stream.follow(wrong),
            lambda: stream.last(wrong),
            lambda: stream.subjects(wrong),
            lambda: stream.pending(1, wrong),
            lambda: stream.to_arrow(wrong),
        ]
        for question in questions:
            with pytest.raises(ValueError):
                question()
        if wrong:
            with pytest.raises(ValueError):
                stream.purge(wrong)
        with pytest.raises(InvalidConfig):
            db.stream("T", subjects=[wrong])
        assert stream.state().messages == 1


# Payloads and headers.


@pytest.mark.parametrize("payload", ["text", 5, None, 1.5, ["a"], {}])
def test_a_payload_is_bytes(root: Path, payload: object) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        with pytest.raises(TypeError):
            stream.publish("S", payload)
        with pytest.raises(TypeError):
            stream.publish_many([("S", b""), ("S", payload)])
        assert stream.state().last_seq == 0, "a batch that cannot be read is refused whole"


@pytest.mark.parametrize("item", [("S",), ("S", b"", None, 1), "S", 5, None, (5, b""), (None, b"")])
def test_a_batch_is_made_of_tuples(root: Path, item: object) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        with pytest.raises((TypeError, ValueError)):
            stream.publish_many([("S", b""), item])
        assert stream.state().last_seq == 0


def test_a_payload_over_the_limit_is_refused(root: Path) -> None:
    with penstock.open(root, durability="os") as db:
        small = db.stream("SMALL", max_msg_size=10)
        assert small.publish("SMALL", b"x" * 10).seq == 1
        with pytest.raises(MessageTooLarge):
            small.publish("SMALL", b"x" * 11)
        with pytest.raises(MessageTooLarge):
            small.publish("SMALL", b"", {"Key": "Value"})
        stream = db.stream("S")
        huge = bytes((64 << 20) + 1)
        with pytest.raises(RecordTooLarge):
            stream.publish("S", huge)
        with pytest.raises(RecordTooLarge):
            stream.publish("S", huge, {"Nats-Msg-Id": "1"})
        large = bytes(20 << 20)
        assert stream.publish("S", large).seq == 1
        assert stream.get(1).data == large


def test_huge_headers_are_refused(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        with pytest.raises(HeadersTooLarge):
            stream.publish("S", b"", {"Key": "x" * 65_536})
        with pytest.raises(HeadersTooLarge):
            stream.publish("S", b"", {"Nats-Msg-Id": "x" * 65_536})
        assert stream.publish("S", b"", {"Key": "x" * 65_000}).seq == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"a:b": "1"},
        {"a\r\nb": "1"},
        {"a\nb": "1"},
        {"": "1"},
        {"a b": "1"},
        {"a": "1\r\n2"},
        {"a": "1\n"},
        {"a": 5},
        {"a": [1]},
        {5: "a"},
        "Key: Value",
        5,
    ],
)
def test_headers_that_would_break_the_block_are_refused(root: Path, headers: object) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        with pytest.raises((BadHeader, TypeError, AttributeError)):
            stream.publish("S", b"", headers)
        assert stream.state().last_seq == 0


def test_header_bytes_that_are_no_headers_are_kept_as_they_are(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        for raw in (b"\xff\xfe", b"no headers at all", b"NATS/1.0\r\nNats-Msg-Id", b"Nats-" * 10):
            seq = stream.publish("S", b"", raw).seq
            assert stream.get(seq).raw_headers == raw
        assert len(stream.to_arrow()) == 4


# Numbers.

WILD = [-1, -(2**63), -(2**70), 2**63, 2**64, 2**70]


@pytest.mark.parametrize("wild", WILD)
def test_numbers_out_of_range_are_refused_or_find_nothing(root: Path, wild: int) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        stream.publish_many([("S", b"%d" % n) for n in range(5)])
        with pytest.raises((penstock.EndOfStream, penstock.MessageNotFound)):
            stream.get(wild)
        assert stream.delete(wild) is False and stream.erase(wild) is False and stream.delete_many([wild]) == 0
        assert len(list(stream.read(start_seq=wild))) == (5 if wild < 0 else 0)
        assert len(list(stream.read(stop_seq=wild))) == (0 if wild < 0 else 5)
        assert stream.pending(wild) == stream.pending(wild, "S") == (5 if wild < 0 else 0)
        assert len(stream.to_arrow(start_seq=wild)) == (5 if wild < 0 else 0)
        for purge in ({"seq": wild}, {"keep": wild}, {"subject": "S", "seq": wild}, {"subject": "S", "keep": wild}):
            with pytest.raises(ValueError):
                stream.purge(**purge)
        assert stream.state().messages == 5
        fields = ["max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size", "first_seq", "max_consumers"]
        for n, field in enumerate(fields):
            if {"first_seq": 0, "max_msg_size": -(2**31)}.get(field, -(2**63)) <= wild < 0:
                assert getattr(db.stream(f"T{n}", **{field: wild}).config, field) == -1
                continue
            with pytest.raises(InvalidConfig):
                db.stream(f"T{n}", **{field: wild})


def test_sequences_end_below_two_to_the_63(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", first_seq=2**63 - 3)
        assert stream.publish("S", b"").seq == 2**63 - 3
        with pytest.raises(InvalidConfig):
            db.stream("T", first_seq=2**63)


@pytest.mark.parametrize("when", ["", "yesterday", "7d", "2026-13-01", "2026-11-01T25:00", 2**70, True, 1.5, [], b"x"])
def test_a_bad_time_is_refused(root: Path, when: object) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        stream.publish("S", b"")
        for question in (
            lambda: stream.read(since=when),
            lambda: stream.read(until=when),
            lambda: stream.follow(since=when),
            lambda: stream.to_arrow(since=when),
            lambda: stream.seq_at(when),
        ):
            with pytest.raises(ValueError, match=r"not a time|out of range"):
                question()


@pytest.mark.parametrize(
    "span", ["", "soon", "7 days", "5", "1e9s", "999999w", -5, float("nan"), True, [], "-1s", "1ns"]
)
def test_a_bad_duration_is_refused(root: Path, span: object) -> None:
    with penstock.open(root) as db:
        for field in ("max_age", "duplicate_window"):
            with pytest.raises(InvalidConfig):
                db.stream("S", **{field: span})
        assert db.streams() == []


# Configuration.


def test_an_unknown_field_names_the_near_one(root: Path) -> None:
    with penstock.open(root) as db:
        with pytest.raises(InvalidConfig, match="no field 'max_mgs'; did you mean 'max_msgs'"):
            db.stream("S", max_mgs=5)
        with pytest.raises(InvalidConfig, match=r"no field 'colour'$"):
            db.stream("S", colour="red")
        db.stream("S")
        with pytest.raises(InvalidConfig, match="did you mean 'subjects'"):
            db.stream("S", subject="x")


@pytest.mark.parametrize(
    "fields",
    [
        {"mirror": {"name": "X"}},
        {"sources": [{"name": "X"}]},
        {"allow_msg_counter": True},
        {"allow_atomic": True},
        {"allow_msg_schedules": True},
        {"allow_batched": True},
    ],
)
def test_what_comes_later_is_refused_by_name(root: Path, fields: dict[str, object]) -> None:
    with penstock.open(root) as db:
        with pytest.raises(FeatureMissing, match="does not have") as caught:
            db.stream("S", **fields)
        assert caught.value.field in fields and db.streams() == []


@pytest.mark.parametrize(
    "fields",
    [{"subjects": 5}, {"subjects": [5]}, {"max_msgs": "many"}, {"storage": "tape"}, {"discard": 1}, {"sealed": True}],
)
def test_a_field_of_another_type_is_refused(root: Path, fields: dict[str, object]) -> None:
    with penstock.open(root) as db:
        with pytest.raises(InvalidConfig):
            db.stream("S", **fields)
        assert db.streams() == []


# Handles.


def uses(db: penstock.Database, stream: penstock.Stream) -> dict[str, Callable[[], object]]:
    """Call every method on a stream with messages, max_age and a filter."""
    return {
        "publish": lambda: stream.publish("S", b""),
        "publish with rules": lambda: stream.publish("S", b"", {"Nats-Msg-Id": "1", "Nats-Expected-Last-Msg-Id": "x"}),
        "publish_many": lambda: stream.publish_many([("S", b"")]),
        "publish none": lambda: stream.publish_many([]),
        "get": lambda: stream.get(1),
        "get none": lambda: stream.get(99),
        "last": lambda: stream.last(),
        "last none": lambda: stream.last("none"),
        "read": lambda: list(stream.read()),
        "read since": lambda: list(stream.read(since="-1h")),
        "read until": lambda: list(stream.read("S", until="now")),
        "follow": lambda: list(stream.follow(start_seq=1, timeout=0)),
        "follow since": lambda: list(stream.follow(since="-1h", timeout=0)),
        "state": stream.state,
        "subjects": stream.subjects,
        "subjects_state": stream.subjects_state,
        "pending": lambda: stream.pending(1),
        "seq_at": lambda: stream.seq_at("-1h"),
        "delete": lambda: stream.delete(1),
        "delete_many": lambda: stream.delete_many([1]),
        "erase": lambda: stream.erase(1),
        "purge": stream.purge,
        "purge subject": lambda: stream.purge("S", keep=1),
        "view": stream.view,
        "scan": lambda: list(stream.scan()),
        "to_arrow": stream.to_arrow,
        "sync": stream.sync,
        "update": lambda: stream.update(max_msgs=5),
        "db.stream": lambda: db.stream("S"),
        "db.stream new": lambda: db.stream("T"),
        "db.get_stream": lambda: db.get_stream("S"),
        "db.create_stream": lambda: db.create_stream(stream.config),
        "db.update_stream": lambda: db.update_stream(stream.config),
        "db.streams": db.streams,
        "db.delete_stream": lambda: db.delete_stream("S"),
        "iter(db)": lambda: list(db),
        "in db": lambda: "S" in db,
    }


@pytest.mark.parametrize("kind", ["file", "memory", "read-only"])
def test_every_use_after_close_is_refused(root: Path, clock: FakeClock, kind: str) -> None:
    """A read by time from a closed stream once accessed freed memory."""
    with penstock.open(root, clock=clock) as db:
        db.stream("S", max_age="1h", storage="memory" if kind == "memory" else "file")
        db.stream("S").publish_many([("S", b"%d" % n) for n in range(100)])
        if kind == "memory":
            stream = db.stream("S")
    if kind != "memory":
        db = penstock.open(root, clock=clock, read_only=kind == "read-only")
        stream = db.stream("S")
        begun, waiting = stream.read(), stream.follow(start_seq=1)
        assert next(begun).seq == next(waiting).seq == 1
        db.close()
        with pytest.raises(StoreClosed):
            list(begun)
        assert list(waiting) == [], "who follows has heard all that there will be"
    db.close()
    clock.advance(2 * 3600 * 10**9)  # everything is due to expire
    for name, use in uses(db, stream).items():
        with pytest.raises(StoreClosed):
            pytest.fail(f"{name} gave {use()!r}")
    db.close()
    assert stream.name == "S" and stream.config.max_age and "closed" in repr(db)
    if kind == "file":
        with penstock.open(root) as db:
            assert db.stream("S").state().last_seq == 100


def in_child(work: Callable[[], str]) -> str:
    """The result of `work` in a forked child."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 - reported to the parent
            answer = f"{type(error).__name__}: {error}"
        os.write(write_end, answer.encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0
    return answer


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork with threads, from Python 3.12 on
@pytest.mark.parametrize("kind", ["file", "memory", "read-only"])
@pytest.mark.parametrize("durability", ["disk", "lazy"])
def test_a_forked_child_cannot_use_the_handle_and_does_not_harm_the_parent(
    root: Path, clock: FakeClock, kind: str, durability: str
) -> None:
    with penstock.open(root) as db:
        db.stream("S", max_age="1h").publish("S", b"0") if kind == "read-only" else None
    with penstock.open(root, clock=clock, durability=durability, read_only=kind == "read-only") as db:
        stream = db.stream("S", **({} if kind == "read-only" else {"max_age": "1h", "storage": kind}))
        if kind != "read-only":
            stream.publish_many([("S", b"%d" % n) for n in range(100)])
        begun = stream.read()

        def try_all() -> str:
            clock.advance(2 * 3600 * 10**9)
            wrong = []
            for name, use in {**uses(db, stream), "begun": lambda: list(begun)}.items():
                try:
                    wrong.append(f"{name} gave {use()!r}")
                except ForkedHandle:
                    pass
                except Exception as error:  # noqa: BLE001 - part of the result
                    wrong.append(f"{name} raised {error!r}")
            db.close()
            return "; ".join(wrong) or "all refused"

        assert in_child(try_all) == "all refused"
        if kind != "read-only":
            assert stream.publish("S", b"after").seq == 101 and len(list(stream.read())) == 101
    if kind == "file":
        with penstock.open(root, clock=clock) as db:
            assert db.stream("S").state().messages == 101


def test_a_child_that_runs_on_does_not_keep_the_lock(root: Path) -> None:
    """An flock belongs to every process that inherited it: a worker forked once kept the store locked forever."""
    db = penstock.open(root)
    db.stream("S")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)  # until the parent is done
        os._exit(0)
    try:
        db.close()
        penstock.open(root).close()
    finally:
        os.close(write_end)
        os.close(read_end)
        os.waitpid(child, 0)


@pytest.mark.parametrize("durability", ["disk", "lazy"])
def test_a_forked_child_that_ends_in_good_order_ends(root: Path, durability: str) -> None:
    """The commit threads belong to the parent: a child that waited for them would wait forever."""
    script = f"""
import os, sys, penstock
db = penstock.open({str(root)!r}, durability={durability!r})
stream = db.stream("S")
stream.publish_many([("S", b"x" * 100)] * 1000)
child = os.fork()
if child == 0:
    del db, stream
    sys.exit(7)
_, status = os.waitpid(child, 0)
stream.publish("S", b"after")
print(os.waitstatus_to_exitcode(status), stream.state().messages)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["7", "1001"], done.stderr
    with penstock.open(root) as db:
        assert db.stream("S").state().messages == 1001


def test_a_store_is_open_for_writing_once_also_in_one_process(root: Path) -> None:
    with penstock.open(root) as db:
        db.stream("S").publish("S", b"")
        with pytest.raises(StoreLocked, match="in this process already"):
            penstock.open(root)
        with penstock.open(root, read_only=True) as beside, penstock.open(root, read_only=True):
            assert beside.stream("S").state().messages == 1
        db.stream("S").publish("S", b"")
    penstock.open(root).close()


# A full disk.


def test_a_full_disk_refuses_a_stream_and_its_update_until_there_is_room(root: Path) -> None:
    root.mkdir()
    disk = CrashDisk(root)
    with penstock.open(root, disk=disk) as db:
        disk.fail_at(1, errno.ENOSPC, kinds=SPACE_KINDS, persistent=True)
        with pytest.raises(DiskFull, match="No space left"):
            db.stream("S")
        disk.clear_faults()
        stream = db.stream("S")
        stream.publish("S", b"kept")
        disk.fail_at(1, errno.ENOSPC, kinds=SPACE_KINDS, persistent=True)
        for write in (lambda: db.stream("S", max_msgs=5), lambda: stream.delete(1), lambda: stream.publish("S", b"")):
            with pytest.raises(DiskFull):
                write()
        assert stream.config.max_msgs == -1 and stream.get(1).data == b"kept"
        disk.clear_faults()
        assert db.stream("S", max_msgs=5).publish("S", b"").seq == 2
    with penstock.open(root) as db:
        assert db.stream("S").config.max_msgs == 5 and db.stream("S").state().messages == 2


# Damage.


def configs(root: Path) -> tuple[Path, Path]:
    place = root / "$G" / "S"
    return place / "config.json", place / "config.copy.json"


@pytest.fixture
def store(root: Path) -> Path:
    with penstock.open(root) as db:
        db.stream("S", subjects=["s.>"], max_msgs=1000).publish_many([(f"s.{n}", b"%d" % n) for n in range(10)])
    return root


DAMAGES: list[Callable[[Path], object]] = [
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"{}"),
    lambda path: path.write_bytes(os.urandom(300)),
    lambda path: path.write_bytes(path.read_bytes()[:-5]),
    lambda path: path.write_bytes(path.read_bytes().replace(b"1000", b"1001")),
    lambda path: path.unlink(),
]


@pytest.mark.parametrize("damage", range(len(DAMAGES)))
@pytest.mark.parametrize("which", [0, 1])
def test_a_damaged_config_is_mended_from_its_copy(store: Path, damage: int, which: int) -> None:
    good = configs(store)[0].read_bytes()
    DAMAGES[damage](configs(store)[which])
    with penstock.open(store, read_only=True) as db:
        assert db.stream("S").config.max_msgs == 1000 and db.stream("S").state().messages == 10
    with penstock.open(store) as db:
        assert db.stream("S").config.max_msgs == 1000 and db.stream("S").state().messages == 10
        assert [path.read_bytes() for path in configs(store)] == [good, good]


@pytest.mark.parametrize("damage", range(len(DAMAGES) - 1))
def test_with_both_copies_damaged_the_stream_is_refused_and_the_others_work(store: Path, damage: int) -> None:
    with penstock.open(store) as db:
        db.stream("OTHER").publish("OTHER", b"")
    good = configs(store)[0].read_bytes()
    for path in configs(store):
        DAMAGES[damage](path)
    before = {path: path.read_bytes() for path in (store / "$G" / "S").rglob("*") if path.is_file()}
    for read_only in (False, True):
        with penstock.open(store, read_only=read_only) as db:
            with pytest.raises(CorruptBlock, match=r"config\.json.*neither it nor its copy"):
                db.stream("S")
            assert db.stream("OTHER").state().messages == 1
    assert before == {path: path.read_bytes() for path in (store / "$G" / "S").rglob("*") if path.is_file()}
    configs(store)[1].write_bytes(good)
    with penstock.open(store) as db:
        assert db.stream("S").state().messages == 10


def test_without_both_copies_no_stream_is_made_over_the_blocks(store: Path) -> None:
    """The blocks of a stream without a configuration are user data: nothing may be created over them."""
    good = configs(store)[0].read_bytes()
    for path in configs(store):
        path.unlink()
    blocks = {path.name: path.read_bytes() for path in (store / "$G" / "S" / "blocks").iterdir()}
    with penstock.open(store) as db, pytest.raises(penstock.StoreError, match=r"config\.json"):
        db.stream("S", subjects=["s.>"])
    assert blocks == {path.name: path.read_bytes() for path in (store / "$G" / "S" / "blocks").iterdir()}
    configs(store)[0].write_bytes(good)
    with penstock.open(store) as db:
        assert db.stream("S").state().messages == 10


def test_a_newer_config_is_left_alone(store: Path) -> None:
    from penstock.base.xxh64 import xxh64_of

    for path in configs(store):
        body = path.read_bytes().rpartition(b"\nxxh64 ")[0].replace(b'"format": 1', b'"format": 2')
        path.write_bytes(body + b"\nxxh64 %016x\n" % xxh64_of(body))
    with penstock.open(store) as db, pytest.raises(NewerFormat, match="format version 2"):
        db.stream("S")


def test_a_stream_whose_blocks_are_gone_opens_and_tells_what_is_lost(store: Path) -> None:
    shutil.rmtree(store / "$G" / "S" / "blocks")
    with penstock.open(store, read_only=True) as db:
        assert list(db.stream("S").read()) == []
    with penstock.open(store) as db:
        stream = db.stream("S")
        assert list(stream.read()) == [] and stream.findings
        assert stream.publish("s.new", b"").seq == 11, "a sequence is never used twice"
        assert stream.state().messages == 1
    with penstock.open(store) as db:
        assert db.stream("S").get(11).subject == "s.new"


def test_a_folder_without_a_config_is_no_stream(store: Path) -> None:
    (store / "$G" / "EMPTY").mkdir()
    (store / "$G" / "notes.txt").write_text("x")
    with penstock.open(store) as db:
        assert db.streams() == ["S"] and "EMPTY" not in db
        assert db.stream("EMPTY").publish("EMPTY", b"").seq == 1


def test_a_power_cut_does_not_take_a_new_store_away(root: Path) -> None:
    """The directory entry of the new folder was once not synced when its first message was acknowledged."""
    root.mkdir()
    disk = CrashDisk(root)
    with penstock.open(root / "deep" / "store", disk=disk) as db:
        db.stream("S", subjects=["a"]).publish("a", b"kept")
        disk.mark("acknowledged")
    image = crash_image(disk, root / "image", cut=disk.marks[0][0], mode="none")
    with penstock.open(image.path / "deep" / "store") as db:
        assert db.get_stream("S").get(1).data == b"kept"


def test_an_empty_subject_in_a_large_batch_is_refused_and_named(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", durability="os") as db:
        stream = db.stream("S", subjects=["a.>"])
        for items in ([("", b"x")] * 100, [("a.b", b"x")] * 60 + [("", b"x")], [(b"", b"x")] * 40):
            with pytest.raises(penstock.PenstockError, match="subject"):
                stream.publish_many(items)
        mixed = [
            ("a.b", b"1"),
            ["a.c", b"2"],
            ("a.\u00e9", b"3"),
            (b"a.d", memoryview(b"4")),
            ("a.b", b"5", {"A": "b"}),
        ]
        acks = stream.publish_many(Rows(mixed * 20))
        assert [stream.get(ack.seq).data for ack in acks] == [b"1", b"2", b"3", b"4", b"5"] * 20
        assert [stream.get(ack.seq).subject for ack in acks][:3] == ["a.b", "a.c", "a.\u00e9"]


class Rows(list[object]):
    """A user's subclass of list."""


def test_a_stream_that_an_older_version_made_with_compression_opens_and_shows_what_is_so(root: Path) -> None:
    """Compression was once accepted and shown, while messages were stored uncompressed."""
    with penstock.open(root) as db:
        db.stream("S", max_msgs=5).publish("S", b"x")
        with pytest.raises(FeatureMissing, match="compression: this version of Penstock does not have compression"):
            db.stream("T", compression="s2")
        with pytest.raises(FeatureMissing, match="compression"):
            db.key_value("B", compression=True)
    paths, disk = StreamPaths(str(root / "$G" / "S")), Disk()
    identity = read_identity(disk, paths)
    write_identity(disk, paths, with_config(identity, identity.config | {"compression": "s2"}))
    for read_only in (False, True):
        with penstock.open(root, read_only=read_only) as db:
            stream = db.get_stream("S")
            assert stream.config.compression == "none" and stream.get(1).data == b"x"
            assert read_only or db.stream("S", max_msgs=6).config.max_msgs == 6
