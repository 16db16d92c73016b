"""penstock repair: what is readable stays, what is not is set aside and recorded."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

import penstock
from support.cli_cases import Run, block, flip

Messages = dict[int, tuple[int, str, bytes | None, bytes]]


def messages(root: Path, stream: str) -> Messages:
    with penstock.open(root, read_only=True) as db:
        return {one.seq: (one.time_ns, one.subject, one.raw_headers, one.data) for one in db.stream(stream).read()}


def lost(root: Path, stream: str) -> set[int]:
    with penstock.open(root, read_only=True) as db:
        return {seq for first, last in db.stream(stream).state().lost for seq in range(first, last + 1)}


def test_nothing_to_repair(run: Run, root: Path) -> None:
    done = run("repair", root)
    assert done.code == 0 and "nothing to repair" in done.text


def test_a_damaged_record_costs_itself_alone(run: Run, root: Path) -> None:
    before = messages(root, "BIG")
    at = flip(block(root, "BIG"), b"message 020")
    damaged = block(root, "BIG").read_bytes()
    done = run("repair", root)
    assert done.code == 0
    assert "BIG: 1 message: 20" in done.text
    after = messages(root, "BIG")
    assert after == {seq: one for seq, one in before.items() if seq != 20}
    assert lost(root, "BIG") == {20}
    (aside,) = block(root, "BIG").parent.glob("000001.blk.*.damaged")
    offset = int(aside.name.split(".")[2])
    kept = aside.read_bytes()
    assert damaged[offset : offset + len(kept)] == kept and offset <= at < offset + len(kept)
    done = run("verify", root)
    assert done.code == 0 and "known damage" in done.text
    assert run("verify", root, "--json").json["known"] == 1
    assert "nothing to repair" in run("repair", root).text, "told once"


def test_a_dry_run_writes_nothing(run: Run, root: Path) -> None:
    flip(block(root, "BIG"), b"message 020")
    (root / "$G" / "BIG" / "config.json").write_text("{}")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    done = run("repair", root, "--dry-run")
    assert done.code == 1
    assert "nothing was written" in done.text and "record 20 as lost" in done.text
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    found = run("repair", root, "--dry-run", "--json").json
    assert found["dry_run"] and found["lost"] == {"BIG": [[20, 20]]} and found["after"] is None


@pytest.mark.parametrize("damage", ["first", "second", "both", "both and summary"])
def test_header_copies_are_written_again(run: Run, root: Path, damage: str) -> None:
    """From the other copy, from the summary, and from the checkpoint."""
    before = messages(root, "BIG")
    path = block(root, "BIG")
    good = path.read_bytes()
    data = bytearray(good)
    if damage != "second":
        data[50] ^= 1
    if damage != "first":
        data[4096 + 50] ^= 1
    path.write_bytes(data)
    if "summary" in damage:
        path.with_suffix(".sum").unlink()
    done = run("repair", root)
    assert done.code == 0, done.text
    # The epoch of a block is the one thing that the checkpoint does not list block by block; here there was only one.
    assert path.read_bytes() == good
    assert messages(root, "BIG") == before and not lost(root, "BIG")
    assert run("verify", root).text.count("ok") == 1


def test_a_block_that_nobody_can_read_is_set_aside(run: Run, root: Path) -> None:
    path = block(root, "BIG")
    noise = random.Random(1).randbytes(len(path.read_bytes()))
    path.write_bytes(noise)
    path.with_suffix(".sum").unlink()
    (root / "$G" / "BIG" / "CHECKPOINT").unlink()
    done = run("repair", root, "--json")
    assert done.code == 0
    assert path.with_name("000001.blk.damaged").read_bytes() == noise
    assert set(messages(root, "BIG")) == set(range(42, 61))


@pytest.mark.parametrize("name", ["blocks/000001.sum", "CHECKPOINT", "HEAD", "config.json", "config.copy.json"])
def test_files_that_others_tell_are_made_anew(run: Run, root: Path, name: str) -> None:
    before = messages(root, "BIG")
    path = root / "$G" / "BIG" / name
    bad = bytearray(path.read_bytes())
    bad[33] ^= 1
    path.write_bytes(bad)
    done = run("repair", root)
    assert done.code == 0 and f"{path.name}.damaged" in done.text
    assert path.with_name(f"{path.name}.damaged").read_bytes() == bad
    assert messages(root, "BIG") == before
    found = run("verify", root, "--json").json
    assert found["ok"] and found["known"] == 0


def test_a_lost_configuration_is_made_from_the_blocks(run: Run, root: Path) -> None:
    before = messages(root, "ORDERS")
    for name in ("config.json", "config.copy.json"):
        (root / "$G" / "ORDERS" / name).unlink()
    assert run("verify", root).code == 1
    done = run("repair", root)
    assert done.code == 0 and "set them again" in done.text
    assert messages(root, "ORDERS") == before
    with penstock.open(root, read_only=True) as db:
        assert db.stream("ORDERS").config.subjects == ("orders.>",)


def test_a_damaged_marker(run: Run, root: Path) -> None:
    before = messages(root, "BIG")
    (root / "PENSTOCK").write_text("qenstock store, format 1\n")
    assert run("inspect", root).code == 0, "the streams say enough"
    assert "PENSTOCK" in run("verify", root).text
    assert run("repair", root).code == 0
    assert messages(root, "BIG") == before
    assert (root / "PENSTOCK.damaged").read_text() == "qenstock store, format 1\n"


def test_a_damaged_delete_record_does_not_bring_messages_back(run: Run, root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("ORDERS")
        stream.delete_many([30, 31, 32])
        stream.publish("orders.eu.1", b"the end")
    path = block(root, "ORDERS")
    data = bytearray(path.read_bytes())
    end = data.index(b"the end")
    data[end - 30] ^= 0xFF  # in the delete record just before, however long its times are
    path.write_bytes(data)
    before = messages(root, "ORDERS")
    assert {30, 31, 32} < set(before), "the record that took them is what was damaged"
    done = run("repair", root)
    assert done.code == 0
    after = messages(root, "ORDERS")
    assert set(before) - set(after) == {30, 31, 32}, "the checkpoint still knew"
    assert not lost(root, "ORDERS")


def test_a_missing_block_is_recorded_as_lost(run: Run, root: Path) -> None:
    block(root, "BIG").unlink()
    done = run("repair", root)
    assert done.code == 0 and "41 messages: 1-41" in done.text
    assert lost(root, "BIG") >= set(range(1, 42))
    with penstock.open(root) as db:
        assert db.stream("BIG").publish("big.a", b"on").seq == 61
    assert run("verify", root).code == 0


@pytest.mark.campaign
def test_any_damage_costs_only_what_it_touched(root: Path) -> None:
    """Flips, cuts, holes and missing files at random: nothing is wrong afterwards, what is gone is recorded as lost."""
    from penstock.check.repair import repair_store
    from penstock.check.store import check_store

    rng = random.Random(int(os.environ.get("SEED") or 11))
    before = messages(root, "BIG")
    for turn in range(int(os.environ.get("N") or 20)):
        work = root.parent / "work"
        shutil.copytree(root, work)
        files = [path for path in (work / "$G" / "BIG").rglob("*") if path.is_file()]
        path = rng.choice(files)
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data))
        kind = rng.choice(["flip", "flip", "cut", "hole", "gone"])
        if kind == "flip":
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "cut":
            del data[at:]
        else:
            data[at : at + 3000] = bytes(len(data[at : at + 3000]))
        path.unlink() if kind == "gone" else path.write_bytes(data)
        what = f"turn {turn}: {kind} at {at} of {path.relative_to(work)}"
        done = repair_store(str(work), None)
        assert done.after is not None and done.after.is_ok, (what, done.after.damage)
        after = messages(work, "BIG")
        assert all(before[seq] == one for seq, one in after.items()), what
        assert set(before) - set(after) <= lost(work, "BIG"), what
        with penstock.open(work) as db:
            assert db.stream("BIG").publish("big.a", b"on").seq > 60, what
        assert check_store(str(work)).is_ok, what
        shutil.rmtree(work)
