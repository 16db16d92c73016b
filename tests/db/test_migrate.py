"""The first generation's messages.jsonl becomes blocks on first open. Behaviours F11."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

import penstock
from penstock.base.disk import Disk
from penstock.testing import CrashDisk, FakeClock, crash_images


def line(seq: int, subject: str = "s.1", payload: bytes | None = None, **more: object) -> str:
    found = {
        "Sequence": seq,
        "Subject": subject,
        "PayloadBase64": base64.b64encode(b"payload %d" % seq if payload is None else payload).decode(),
        "TimestampUtc": f"2026-02-23T06:00:{seq % 60:02}.1234567Z",
    }
    return json.dumps(found | more)


def put(root: Path, lines: Iterable[str | bytes], name: str = "S") -> Path:
    """Write an old file for the stream NAME."""
    with penstock.open(root):
        pass
    path = root / "$G" / name / "messages.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join((one.encode() if isinstance(one, str) else one) + b"\n" for one in lines))
    return path


def test_the_line_of_the_page_becomes_a_message(root: Path) -> None:
    path = put(
        root,
        [
            '{"Sequence":1,"Subject":"orders.1","PayloadBase64":"aGk=","TimestampUtc":"2026-02-23T06:00:42.1234567Z"}',
            '{"sequence":2,"subject":"orders.2","payloadBase64":"","timestampUtc":"2026-02-23T06:00:42.1234568Z"}',
            '{"SEQUENCE":3,"SUBJECT":"orders.3","TIMESTAMPUTC":"2026-02-23T08:00:43+02:00"}',
        ],
    )
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["orders.*"])
        assert [(msg.seq, msg.subject, msg.data, msg.raw_headers) for msg in stream.read()] == [
            (1, "orders.1", b"hi", None),
            (2, "orders.2", b"", None),
            (3, "orders.3", b"", None),
        ]
        start = 1_771_826_442 * 10**9
        assert [msg.time_ns for msg in stream.read()] == [start + 123_456_700, start + 123_456_800, start + 10**9]
        assert not path.exists() and not stream.findings
        assert stream.publish("orders.4", b"").seq == 4
    with penstock.open(root) as db:
        assert db.stream("S").state().messages == 4


def test_headers_come_in_both_forms(root: Path) -> None:
    raw = b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n"
    put(
        root,
        [
            line(1, HeadersBase64=base64.b64encode(raw).decode()),
            line(2, Headers={"A": ["1", "2"], "B": "x"}),
            line(3, headers={}),
            line(4, headersBase64=None, headers=None),
        ],
    )
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.*"])
        assert stream.get(1).raw_headers == raw
        assert stream.get(2).headers == {"A": ["1", "2"], "B": ["x"]}
        assert stream.get(3).raw_headers is None and stream.get(4).raw_headers is None


def test_gaps_become_skipped_sequences(root: Path) -> None:
    put(root, [line(5), line(6), line(10), line(2**40)])
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.*"])
        assert [msg.seq for msg in stream.read()] == [5, 6, 10, 2**40]
        for seq in (1, 7, 11, 2**40 - 1):
            with pytest.raises(penstock.MessageNotFound):
                stream.get(seq)
        assert not stream.findings
    with penstock.open(root) as db:
        stream = db.stream("S")
        assert [msg.seq for msg in stream.read()] == [5, 6, 10, 2**40]
        assert stream.publish("s.1", b"").seq == 2**40 + 1


BAD_LINES: list[str | bytes] = [
    "not JSON",
    b"\xff\xfe\x00",
    "[]",
    "5",
    "{}",
    line(0),
    line(-1),
    line(2**63),
    line(9, Sequence="9"),
    line(9, Sequence=True),
    line(9, Sequence=1.5),
    line(9, Subject=5),
    line(9, Subject="a b"),
    line(9, Subject="s.*"),
    line(9, Subject=""),
    line(9, Subject="s.\ud800"),
    line(9, Subject="s." + "x" * 70_000),
    line(9, PayloadBase64="%%%"),
    line(9, PayloadBase64="aGk"),
    line(9, PayloadBase64=5),
    line(9, TimestampUtc="yesterday"),
    line(9, TimestampUtc=5),
    line(9, TimestampUtc="0001-01-01T00:00:00Z"),
    line(9, TimestampUtc="2026-02-23T06:00:42.12345678901Z"),
    line(9, HeadersBase64="%"),
    line(9, Headers=[1]),
    line(9, Headers={"a b": "1"}),
    line(9, Headers={"A": "x" * 66_000}),
    line(1),
    "[" * 100_000,
    '{"Sequence": ' + "9" * 5_000 + "}",
]


@pytest.mark.parametrize("number", range(len(BAD_LINES)))
def test_a_line_that_cannot_be_taken_is_set_aside_with_its_number(root: Path, number: int) -> None:
    """A refused subject once shifted the sequences behind it, and its payload was lost."""
    bad = BAD_LINES[number]
    raw = bad.encode() if isinstance(bad, str) else bad
    path = put(root, [line(1), bad, "", line(2), line(10)])
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.*"])
        assert [(msg.seq, msg.data) for msg in stream.read()] == [(n, b"payload %d" % n) for n in (1, 2, 10)]
        assert [finding.kind for finding in stream.findings] == ["set aside"]
        assert not path.exists()
        aside = path.with_name("messages.jsonl.damaged").read_bytes()
        assert aside.startswith(b"line 2: ") and aside.endswith(b"\n" + raw + b"\n")
    with penstock.open(root) as db:
        db.delete_stream("S")
        assert not path.parent.exists()


def test_what_the_stream_would_refuse_today_is_migrated_and_then_held_to_its_limits(
    root: Path, clock: FakeClock
) -> None:
    put(root, [line(n, subject=f"old.{n}", payload=b"x" * n) for n in range(1, 101)])
    with penstock.open(root, clock=clock) as db:
        stream = db.stream("S", subjects=["new.*"], max_msg_size=10, max_msgs=50)
        assert [msg.seq for msg in stream.read()] == list(range(51, 101)) and not stream.findings
    put(root, [line(n) for n in range(1, 11)], "AGED")
    with penstock.open(root, clock=clock) as db:
        stream = db.stream("AGED", subjects=["s.*"], max_age="1d")
        assert stream.state().messages == 0 and stream.publish("s.1", b"").seq == 11


def test_a_file_beside_other_messages_is_set_aside_where_it_differs(root: Path) -> None:
    """If the stream already used its sequences for other messages, the old messages once vanished."""
    with penstock.open(root) as db:
        db.stream("S", subjects=["s.*"]).publish_many([("s.new", b"new 1"), ("s.new", b"new 2")])
    path = put(root, [line(1), line(2), line(3)])
    with penstock.open(root) as db:
        stream = db.stream("S")
        assert [msg.data for msg in stream.read()] == [b"new 1", b"new 2", b"payload 3"]
    aside = path.with_name("messages.jsonl.damaged").read_text()
    assert line(1) in aside and line(2) in aside and line(3) not in aside
    put(root, ["garbage"])
    with penstock.open(root) as db:
        db.stream("S")
    assert path.with_name("messages.jsonl.damaged").read_text() == aside, "what was set aside before stays"
    assert "garbage" in path.with_name("messages.jsonl.2.damaged").read_text()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf" + line(1).encode(), line(1).encode() + b"\r\n"])
def test_odd_files_are_taken(root: Path, content: bytes) -> None:
    path = put(root, [])
    path.write_bytes(content)
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.*"])
        assert stream.state().messages == (1 if content.strip() else 0) and not stream.findings
        assert not path.exists()


def test_many_messages_and_small_blocks(root: Path) -> None:
    put(root, [line(n, payload=b"%d " % n * 20) for n in range(1, 5001)])
    with penstock.open(root, durability="os") as db:
        stream = db.stream("S", subjects=["s.*"], max_bytes=10**8)
        assert [msg.seq for msg in stream.read()] == list(range(1, 5001))
        assert stream.get(4999).data == b"4999 " * 20


def left_of(image: Path) -> tuple[set[int], set[int]]:
    """The sequences in the old file and those in the blocks of a crash image, read without changing it."""
    folder = image / "$G" / "S"
    old: set[int] = set()
    if (folder / "messages.jsonl").exists():
        for one in (folder / "messages.jsonl").read_bytes().splitlines():
            if one.startswith(b"{"):
                old.add(json.loads(one)["Sequence"])
    try:
        with penstock.open(image, read_only=True) as db:
            return old, {msg.seq for msg in db.stream("S").read()}
    except penstock.PenstockError:
        return old, set()  # the stream did not exist yet


@pytest.mark.parametrize("durability", ["disk", "lazy"])
def test_at_every_cut_the_file_and_the_blocks_together_have_everything(
    root: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    """Cut the power after each disk call of a migration: nothing is lost, and the next open finishes it."""
    monkeypatch.setattr("penstock.store.open.jsonl_migration.BATCH_MAX", 7)
    wanted = {*range(1, 21), *range(31, 41)}
    put(root, [line(n, payload=b"x" * 3000) for n in range(1, 21)] + ["bad"] + [line(n) for n in range(31, 41)])
    disk = CrashDisk(root)
    with penstock.open(root, disk=disk, durability=durability) as db:
        db.stream("S", subjects=["s.*"], max_bytes=100_000)
    count = 0
    images = root.parent / "images"
    images.mkdir()
    for image in crash_images(disk, images, count=disk.position + 150, seed=1):
        with monkeypatch.context() as patch:
            if image.is_power_cut:
                patch.setattr("penstock.store.read.snapshot.boot_id", lambda: b"after the reboot")
            old, new = left_of(image.path)
        assert old | new >= wanted, image.description
        with penstock.open(image.path, disk=Disk()) as db:
            stream = db.stream("S", subjects=["s.*"], max_bytes=100_000)
            found = {msg.seq: msg.data for msg in stream.read()}
            assert set(found) == wanted and found[31] == b"payload 31", image.description
            assert stream.publish("s.1", b"").seq == 41
        folder = image.path / "$G" / "S"
        assert not (folder / "messages.jsonl").exists()
        asides = sorted(folder.glob("messages.jsonl*.damaged"))
        assert [path.read_bytes().endswith(b"\nbad\n") for path in asides] == [True], image.description
        image.remove()
        count += 1
    assert count > 150


def test_a_failing_disk_leaves_the_file_and_a_later_open_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.store.open.jsonl_migration.BATCH_MAX", 3)
    path = put(root, [line(n) for n in range(1, 31)])
    with penstock.open(root) as db:
        db.stream("OTHER").publish("OTHER", b"")
    disk = CrashDisk(root)
    with penstock.open(root, disk=disk) as db:
        disk.fail_at(9, 28, kinds={"pwrite"}, persistent=True)
        with pytest.raises((penstock.StoreError, OSError)):
            db.stream("S", subjects=["s.*"])
        assert path.exists()
        disk.clear_faults()
        stream = db.stream("S", subjects=["s.*"])
        assert [msg.data for msg in stream.read()] == [b"payload %d" % n for n in range(1, 31)]
        assert not path.exists() and db.get_stream("OTHER").state().messages == 1
