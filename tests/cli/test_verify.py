"""penstock verify."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import penstock
from penstock.db.adopt import adopt, root_of
from penstock.db.stage import Stage
from penstock.store.write.batch import Batch
from support.cli_cases import Run, block, flip, writer


def test_a_sound_store(run: Run, root: Path) -> None:
    done = run("verify", root)
    assert done.code == 0 and done.err == ""
    assert "every checksum holds" in done.text
    found = run("verify", root, "--json").json
    assert found["ok"] and found["damage"] == found["known"] == 0
    assert [one["messages"] for one in found["streams"]] == [60, 100]


@pytest.mark.parametrize(
    "stream, needle, seq", [("BIG", b"message 020", 20), ("BIG", b"message 058", 58), ("ORDERS", b"order 33", 33)]
)
def test_a_flipped_bit_is_named_by_file_offset_and_sequence(
    run: Run, root: Path, stream: str, needle: bytes, seq: int
) -> None:
    """In a sealed block with a summary, in the last block, and among small records."""
    path = next(one for one in sorted((root / "$G" / stream / "blocks").glob("*.blk")) if needle in one.read_bytes())
    at = flip(path, needle)
    done = run("verify", root)
    assert done.code == 1
    assert f"{path.relative_to(root)} at byte" in done.text.replace("\n", " ") and f"message {seq}" in done.text
    (problem,) = next(one for one in run("verify", root, "--json").json["streams"] if one["name"] == stream)["problems"]
    assert problem["file"] == str(path) and problem["seqs"] == [[seq, seq]] and not problem["known"]
    assert problem["offset"] <= at < problem["offset"] + problem["size"]


@pytest.mark.parametrize("name, offset", [
    ("blocks/000001.blk", 20), ("blocks/000001.blk", 4096 + 30), ("blocks/000001.sum", 600), ("CHECKPOINT", 50),
    ("HEAD", 40), ("HEAD", 2048 + 40), ("config.json", 30), ("config.copy.json", 30),
])  # fmt: skip
def test_every_other_checksum_is_looked_at(run: Run, root: Path, name: str, offset: int) -> None:
    path = root / "$G" / "BIG" / name
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)
    done = run("verify", root, "--json")
    assert done.code == 1
    problems = [problem for stream in done.json["streams"] for problem in stream["problems"]]
    assert [problem["file"] for problem in problems] == [str(path)]
    assert problems[0]["seqs"] == [], "it costs no message"
    with penstock.open(root, read_only=True) as db:
        assert db.stream("BIG").state().messages == 60


def test_a_missing_block(run: Run, root: Path) -> None:
    for number, first, last in ((1, 1, 41), (2, 42, 60)):
        work = root.parent / f"work{number}"
        shutil.copytree(root, work)
        block(work, "BIG", number).unlink()
        done = run("verify", work, "--stream", "BIG", "--json")
        assert done.code == 1
        (stream,) = done.json["streams"]
        lost = sorted({tuple(span) for problem in stream["problems"] for span in problem["seqs"]})
        assert lost == [(first, last)]


def test_a_cut_block(run: Run, root: Path) -> None:
    path = block(root, "BIG")
    path.write_bytes(path.read_bytes()[:1_000_000])
    done = run("verify", root, "--stream", "BIG", "--json")
    assert done.code == 1
    problems = [problem for problem in done.json["streams"][0]["problems"] if problem["kind"] == "damaged records"]
    assert problems[0]["seqs"] == [[5, 41]] and "ends early" in problems[0]["text"]


def test_only_the_stream_that_was_asked_for(run: Run, root: Path) -> None:
    flip(block(root, "BIG"), b"message 003")
    assert run("verify", root, "--stream", "ORDERS").code == 0
    assert run("verify", root, "--stream", "BIG").code == 1


def test_beside_a_busy_writer_nothing_is_called_damage(run: Run, root: Path) -> None:
    """It erases all the time: half an erase looks like damage until it is read again."""
    with writer(root) as process:
        for _ in range(8):
            done = run("verify", root, "--stream", "ORDERS", "--json")
            assert done.code == 0, done.text
            assert done.json["writer"]["pid"] == process.pid
    assert run("verify", root).code == 0, "and after a kill -9 neither"


def test_a_store_without_its_marker(run: Run, root: Path) -> None:
    (root / "PENSTOCK").unlink()
    done = run("verify", root)
    assert done.code == 1 and "PENSTOCK" in done.text


def test_a_newer_block_is_refused(run: Run, root: Path) -> None:
    from penstock.base.xxh64 import xxh64_of

    path = block(root, "BIG", 2)
    data = bytearray(path.read_bytes())
    for at in (0, 4096):
        data[at + 8] = 9
        data[at + 248 : at + 256] = xxh64_of(bytes(data[at : at + 248])).to_bytes(8, "little")
    path.write_bytes(data)
    done = run("verify", root)
    assert done.code == 2 and str(path) in done.err and "upgrade" in done.err


@pytest.mark.parametrize("name", ["BATCHES", "BATCHES.copy"])
def test_what_was_adopted_is_looked_at_and_one_copy_is_enough(run: Run, root: Path, name: str) -> None:
    def bring(batch: int) -> bool:
        stage = Stage(root_of(root, "ORDERS"), f"q-{batch}", os.urandom(4).hex())
        stage.append(Batch.of([("orders.new", b"%d" % batch)]))
        return adopt(root, "ORDERS", f"q-{batch}", [stage.finish()], query="q", batch=batch).was_known

    assert not bring(1)
    path = root / "$G" / "ORDERS" / name
    data = bytearray(path.read_bytes())
    data[8] ^= 4
    path.write_bytes(data)
    done = run("verify", root)
    assert done.code == 1 and f"{name}" in done.text
    assert bring(1), "the other copy knows"
    assert not bring(2)
    assert run("verify", root).code == 0, "both are written anew"


def test_a_damaged_file_of_deletes_costs_no_message(run: Run, root: Path) -> None:
    with penstock.open(root) as db:
        db.get_stream("ORDERS").store.truncate(db.get_stream("ORDERS").store.index.last_seq - 1)  # writes it
    path = root / "$G" / "ORDERS" / "DELETES"
    assert run("verify", root).code == 0
    data = bytearray(path.read_bytes())
    data[8] ^= 4
    path.write_bytes(data)
    done = run("verify", root)
    assert done.code == 1 and "DELETES" in done.text and "it costs no message" in done.text
    assert run("repair", root).code == 0
    assert not path.exists() and path.with_name("DELETES.damaged").exists()
    assert run("verify", root).code == 0
