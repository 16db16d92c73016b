"""penstock import: what export wrote comes back the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock
from support.cli_cases import Run, spawn


def line(seq: int = 1, stream: str = "S", subject: str = "s.a", time_ns: int = 10**18, **other: object) -> str:
    fields = {
        "stream": stream,
        "seq": seq,
        "time_ns": time_ns,
        "subject": subject,
        "headers_b64": None,
        "payload_b64": "aGk=",
    }
    return json.dumps(fields | other)


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{one}\n" for one in lines))
    return path


def test_export_import_export_is_the_same(root: Path, tmp_path: Path) -> None:
    """Sequences, times, headers and gaps, through a pipe."""
    first = spawn("export", root)
    done = spawn("import", tmp_path / "copy", stdin=first.out)
    assert done.code == 0 and "ORDERS: 98 messages imported into a new stream" in done.text
    second = spawn("export", tmp_path / "copy")
    assert first.out == second.out
    with penstock.open(root, read_only=True) as old, penstock.open(tmp_path / "copy") as new:
        assert new.stream("ORDERS").state().deleted == old.stream("ORDERS").state().deleted
        assert new.stream("ORDERS").config.subjects == ("orders.>",)
        assert new.stream("ORDERS").publish("orders.eu.9", b"next").seq == 101
    assert spawn("verify", tmp_path / "copy").code == 0


def test_message_ids_are_remembered(run: Run, root: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    run("export", root, "-s", "ORDERS", "-o", out)
    assert run("import", tmp_path / "copy", out).code == 0
    with penstock.open(tmp_path / "copy") as db:
        ack = db.stream("ORDERS").publish("orders.eu.1", b"again", headers={"Nats-Msg-Id": "100"})
        assert (ack.seq, ack.duplicate) == (100, True)


def test_a_stream_that_begins_late_and_has_gaps(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "f", line(1000), line(1001), line(5000), line(2**62))
    done = run("import", tmp_path / "data", file, "--json")
    assert done.code == 0 and done.json["messages"] == {"S": 4} and done.json["created"] == ["S"]
    with penstock.open(tmp_path / "data") as db:
        state = db.stream("S").state()
        assert (state.first_seq, state.last_seq, state.messages) == (1000, 2**62, 4)
        assert state.lost == []
    assert run("verify", tmp_path / "data").code == 0


def test_into_a_stream_that_is_there(run: Run, root: Path, tmp_path: Path) -> None:
    later = 4 * 10**18
    file = write(tmp_path / "f", line(101, "ORDERS", "orders.x", later), line(105, "ORDERS", "orders.y", later))
    done = run("import", root, file)
    assert done.code == 0 and "2 messages imported, 3 sequences skipped" in done.text
    done = run("import", root, file)
    assert done.code == 2 and "seq 101 is not above the last of the stream, 105" in done.err
    done = run("import", root, file, "--skip-existing")
    assert done.code == 0 and "2 were there already" in done.text


def test_subjects_come_from_the_lines_or_the_option(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "f", line(1, subject="a.b"), line(2, subject="c"), line(3, subject="a.c.d"))
    assert run("import", tmp_path / "one", file).code == 0
    assert run("import", tmp_path / "two", file, "--subjects", "a.>", "--subjects", "*").code == 0
    assert run("import", tmp_path / "three", file, "--stream", "OTHER").code == 0
    with penstock.open(tmp_path / "one", read_only=True) as db:
        assert db.stream("S").config.subjects == ("a.>", "c")
    with penstock.open(tmp_path / "two", read_only=True) as db:
        assert set(db.stream("S").config.subjects) == {"a.>", "*"}
    with penstock.open(tmp_path / "three", read_only=True) as db:
        assert db.streams() == ["OTHER"]


def test_new_subjects_far_down_widen_a_new_stream(run: Run, tmp_path: Path) -> None:
    lines = [line(n, subject="a.b") for n in range(1, 5001)] + [line(5001, subject="z.y")]
    assert run("import", tmp_path / "data", write(tmp_path / "f", *lines)).code == 0
    with penstock.open(tmp_path / "data", read_only=True) as db:
        assert db.stream("S").config.subjects == ("a.>", "z.>")
        assert db.stream("S").state().messages == 5001


@pytest.mark.parametrize(
    "bad, why",
    [
        ("not json", "JSON"),
        ("[1]", "object"),
        (line(4, payload_b64="***"), "base64"),
        (line(4, more=1), "more"),
        (line(4).replace('"seq"', '"seqq"'), "seqq"),
        (line(3), "seq 3 is not above the line before, 3"),
        (line(0), "seq 0 is no sequence"),
        (line(2**63), "seq"),
        (line(-1), "seq -1 is no sequence"),
        (line(4, subject="a..b"), "subject 'a..b'"),
        (line(4, subject="a..b"), "subject 'a..b'"),
        (line(4, time_ns=5), "time_ns 5 is before"),
        (line(4, time_ns=0), "time_ns 0 is no time"),
        (line(4, stream="a/b/c"), "b/c"),
        (line(4, stream="a./b"), "account name 'a.'"),
        (line(4, stream=".."), ".."),
    ],
)
def test_a_bad_line_is_named_and_nothing_of_its_batch_is_stored(run: Run, tmp_path: Path, bad: str, why: str) -> None:
    file = write(tmp_path / "f", line(1), line(2), line(3), bad)
    done = run("import", tmp_path / "data", file)
    assert done.code == 2
    assert f"{file} line 4: " in done.err and why in done.err and done.err.count("\n") == 1
    with penstock.open(tmp_path / "data", read_only=True) as db:
        assert all(db.stream(name).state().messages == 0 for name in db.streams())


def test_a_bad_line_far_down_says_how_to_go_on(run: Run, tmp_path: Path) -> None:
    lines = [line(n) for n in range(1, 5001)]
    done = run("import", tmp_path / "data", write(tmp_path / "f", *lines, "bad"))
    assert (
        done.code == 2 and "line 5001" in done.err and "S stands at 4096" in done.err and "--skip-existing" in done.err
    )
    done = run("import", tmp_path / "data", write(tmp_path / "f", *lines, line(5001)), "--skip-existing")
    assert done.code == 0 and "905 messages imported" in done.text


def test_a_line_outside_of_the_streams_subjects(run: Run, root: Path, tmp_path: Path) -> None:
    done = run("import", root, write(tmp_path / "f", line(101, "ORDERS", "other.x", 4 * 10**18)))
    assert done.code == 2 and "subject 'other.x' is not one of stream ORDERS's: orders.>" in done.err


def test_a_stream_that_would_overlap_another(run: Run, root: Path, tmp_path: Path) -> None:
    done = run("import", root, write(tmp_path / "f", line(1, "NEW", "orders.x")))
    assert done.code == 2 and "overlap" in done.err and "--subjects" in done.err


def test_a_limit_of_the_stream_is_told(run: Run, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db:
        db.stream("S", subjects=["s.>"], max_msgs=2, discard="new")
    done = run("import", tmp_path / "data", write(tmp_path / "f", line(1), line(2), line(3)))
    assert done.code == 2 and "line 3: refused: the stream has max_msgs messages" in done.err
    with penstock.open(tmp_path / "data", read_only=True) as db:
        assert db.stream("S").state().last_seq == 2


def test_nothing_and_a_missing_file(run: Run, tmp_path: Path) -> None:
    assert "nothing imported" in run("import", tmp_path / "data", write(tmp_path / "f")).text
    done = run("import", tmp_path / "data", tmp_path / "absent")
    assert done.code == 2 and str(tmp_path / "absent") in done.err
