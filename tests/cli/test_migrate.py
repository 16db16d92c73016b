"""penstock migrate."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import penstock
from support.cli_cases import Run


def legacy(folder: Path, *seqs: int, subject: str = "orders.a", extra: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "messages.jsonl"
    lines = [
        json.dumps(
            {
                "sequence": seq,
                "subject": subject,
                "payloadBase64": base64.b64encode(b"m%d" % seq).decode(),
                "timestampUtc": f"2024-05-01T00:00:{seq % 60:02d}Z",
            }
        )
        for seq in seqs
    ]
    path.write_text("\n".join([*lines, extra]) + "\n")
    return path


def test_a_file_becomes_a_stream(run: Run, tmp_path: Path) -> None:
    path = legacy(tmp_path / "old" / "ORDERS", 1, 2, 5)
    before = path.read_bytes()
    done = run("migrate", tmp_path / "data", path)
    assert done.code == 0 and "ORDERS: 3 messages" in done.text
    assert path.read_bytes() == before, "the source stays"
    with penstock.open(tmp_path / "data", read_only=True) as db:
        found = [(one.seq, one.data, one.time_ns) for one in db.stream("ORDERS").read()]
    assert [one[:2] for one in found] == [(1, b"m1"), (2, b"m2"), (5, b"m5")]
    assert not list((tmp_path / "data").rglob("messages.jsonl*"))
    assert run("verify", tmp_path / "data").code == 0


def test_a_folder_of_folders_and_another_name(run: Run, tmp_path: Path) -> None:
    legacy(tmp_path / "old" / "A", 1, 2, subject="a.x")
    legacy(tmp_path / "old" / "B", 1, subject="b.x")
    found = run("migrate", tmp_path / "data", tmp_path / "old", "--json").json
    assert [(one["stream"], one["messages"]) for one in found["streams"]] == [("A", 2), ("B", 1)]
    assert run("migrate", tmp_path / "other", tmp_path / "old" / "A", "--stream", "C").code == 0
    with penstock.open(tmp_path / "other", read_only=True) as db:
        assert db.streams() == ["C"]


def test_bad_lines_are_kept_and_told(run: Run, tmp_path: Path) -> None:
    path = legacy(tmp_path / "ORDERS", 1, 2, extra="{broken")
    done = run("migrate", tmp_path / "data", path)
    assert done.code == 1 and "1 line could not be taken" in done.err
    (aside,) = (tmp_path / "data").rglob("*.damaged")
    assert b"{broken" in aside.read_bytes()


def test_a_stream_with_messages_is_not_touched(run: Run, tmp_path: Path) -> None:
    path = legacy(tmp_path / "ORDERS", 1, 2)
    assert run("migrate", tmp_path / "data", path).code == 0
    done = run("migrate", tmp_path / "data", path)
    assert done.code == 2 and "holds messages already" in done.err


def test_nothing_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source in ("absent", "empty"):
        done = run("migrate", tmp_path / "data", tmp_path / source)
        assert done.code == 2 and str(tmp_path / source) in done.err
