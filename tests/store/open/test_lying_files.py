"""Files with valid checksums but wrong numbers, names or paths: they are ignored or set aside, and cost nothing."""

from __future__ import annotations

import json
import os
import resource
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import penstock
from penstock.base.disk import Disk
from penstock.base.xxh64 import xxh64_of
from penstock.check.blocks import UNCONFIRMED
from penstock.check.repair import repair_store
from penstock.check.store import check_store
from penstock.db.adopt import root_of
from penstock.db.stage import Stage
from penstock.errors import CorruptBlock, SequencesExhausted, StoreError
from penstock.format.constants import FLAGS
from penstock.format.consumer_log_record import NOTE, encode_record
from penstock.format.head import Head
from penstock.scan import scan
from penstock.scan.plan import plan as plan_parts
from penstock.scan.plan import read_part, view_at
from penstock.store.consumer_log.entries import read_entries
from penstock.store.file_store import FileStore
from penstock.store.index.ids_and_expiries import IdsAndExpiries, read_ids_and_expiries
from penstock.store.index.summary import decode_summary
from penstock.store.open.adoption import Adoption, remove_tree
from penstock.store.open.report import Report
from penstock.store.read.snapshot import Snapshot
from penstock.store.write.batch import Batch

SUMMARY_TABLE, CHECKPOINT_TABLE, CHECKPOINT_FIXED = 352, 112, 208


@pytest.fixture(autouse=True)
def small_blocks() -> Iterator[None]:
    with patch("penstock.stream.stream.block_size", lambda config: 4000):
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A stopped store of four blocks, and beside it a file that does not belong to it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious.txt").write_text("precious")
    with penstock.open(tmp_path / "store") as db:
        db.stream("T", subjects=["t"]).publish("t", b"another")
        stream = db.stream("S", subjects=["s.>"])
        for n in range(90):
            stream.publish(f"s.{n % 5}.{n % 3}", b"%d " % n + bytes(100))
        stream.delete(17)
        one = stream.consumer("one")
        one.fetch(3, timeout=0)[0].ack()
    return tmp_path / "store"


def at(root: Path, name: str) -> Path:
    return root / "$G" / "S" / name


def hashed(data: bytes, seed: int = 0) -> bytes:
    return struct.pack("<Q", xxh64_of(data, seed))


def checked(value: Any) -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return body + b"\n%016x\n" % xxh64_of(body)


def held(root: Path, pattern: str | None = None, **how: bool) -> list[int]:
    with penstock.open(root, **how) as db:  # type: ignore[arg-type]
        assert db.get_stream("T").get(1).data == b"another"
        return [message.seq for message in db.get_stream("S").read(pattern)]


def findings(root: Path) -> list[str]:
    with penstock.open(root) as db:
        return [f"{one.kind}: {one}" for one in db.get_stream("S").findings]


ALL = [seq for seq in range(1, 91) if seq != 17]


def lie_in_summary(path: Path, section: int, change: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    (salt,) = struct.unpack_from("<Q", data, 80)
    start, size = struct.unpack_from("<QQ", data, SUMMARY_TABLE + 16 * section)
    part = bytearray(data[start : start + size])
    change(part)
    assert len(part) == size
    data[start : start + size + 8] = part + hashed(bytes(part), salt)
    data[-8:] = hashed(bytes(data[:-8]), salt)
    path.write_bytes(data)


def lie_in_checkpoint(path: Path, offset: int, fmt: str, value: int, *, section: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    start = 0 if section is None else struct.unpack_from("<Q", data, CHECKPOINT_TABLE + 16 * section)[0]
    struct.pack_into(fmt, data, start + offset, value)
    data[-8:] = hashed(bytes(data[:-8]))
    path.write_bytes(data)


# ------------------------------------------------------------------------------------------------------------ summaries


@pytest.mark.parametrize("number", [0xFFFFFF00, 0x7FFFFFFE, 5000, 2])
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_subject_number_that_does_not_exist_is_read_from_the_block(
    root: Path, number: int, has_checkpoint: bool
) -> None:
    """A filtered read used it as an index, and the process crashed; verify reported no damage."""
    summary = at(root, "blocks/000002.sum")
    lie_in_summary(summary, 2, lambda part: struct.pack_into("<I", part, 40, number))
    if not has_checkpoint:
        at(root, "CHECKPOINT").unlink()
    found = check_store(str(root)).damage
    assert [problem.path for problem in found if problem.kind == "damaged file"] == [str(summary)]
    wanted = [seq for seq in ALL if (seq - 1) % 5 == 1]
    if number > 100:  # otherwise it is the number of another subject: only verify notices that
        assert held(root, "s.1.>", read_only=True) == held(root, "s.1.>") == wanted
        assert held(root) == ALL
    after = repair_store(str(root), None).after
    assert after is not None and after.is_ok and held(root, "s.1.>") == wanted


@pytest.mark.parametrize("value", [0, 8191, 2**32 - 1, 8300])
def test_offsets_that_lie_are_read_from_the_block(root: Path, value: int) -> None:
    lie_in_summary(at(root, "blocks/000001.sum"), 0, lambda part: struct.pack_into("<I", part, 20, value))
    assert not check_store(str(root)).is_ok
    assert held(root, read_only=True) == held(root) == ALL


def test_a_name_with_a_number_out_of_proportion_costs_no_memory(root: Path) -> None:
    """2^31 numbers would take a hundred gigabytes."""
    at(root, "CHECKPOINT").unlink()
    lie_in_summary(at(root, "blocks/000001.sum"), 4, lambda part: struct.pack_into("<I", part, 0, 60_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert held(root) == ALL
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def lie_in_fixed(path: Path, offset: int, value: int) -> None:
    """Change one number in the fixed part of a summary."""
    data = bytearray(path.read_bytes())
    (salt,) = struct.unpack_from("<Q", data, 80)
    struct.pack_into("<Q", data, offset, value)
    data[-8:] = hashed(bytes(data[:-8]), salt)
    path.write_bytes(data)


DATA_SIZE, LAST_SEQ = 264, 280


def repaired(root: Path) -> list[int]:
    after = repair_store(str(root), None).after
    assert after is not None and after.is_ok, after
    return held(root)


def test_a_summary_that_ends_in_the_middle_of_a_record_costs_it_nothing(root: Path) -> None:
    """The record was reported as damaged, and a repair recorded its message as lost, which deletes it."""
    summary = at(root, "blocks/000002.sum")
    (size,) = struct.unpack_from("<Q", summary.read_bytes(), DATA_SIZE)
    lie_in_fixed(summary, DATA_SIZE, size - 1)
    assert [problem.path for problem in check_store(str(root)).damage] == [str(summary)]
    assert repaired(root) == ALL


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_last_sequence_in_the_next_block_is_no_block_s(root: Path, has_checkpoint: bool) -> None:
    """Verify blamed the checkpoint, and a repair wrote one from the summary that no reader accepted."""
    summary = at(root, "blocks/000002.sum")
    lie_in_fixed(summary, LAST_SEQ, 2**39)
    if not has_checkpoint:
        at(root, "CHECKPOINT").unlink()
    assert [problem.path for problem in check_store(str(root)).damage] == [str(summary)]
    assert held(root, read_only=True) == ALL
    with penstock.open(root) as db:
        assert db.get_stream("S").state().last_seq == 90
    assert repaired(root) == ALL


def test_a_repair_makes_no_summary_from_a_checkpoint_that_lies_too(root: Path) -> None:
    """If the summary of a block is wrong, the checkpoint was not compared with the block: the new summary got its
    numbers.
    """
    lie_in_fixed(at(root, "blocks/000002.sum"), LAST_SEQ, 2**39)
    lie_in_checkpoint(at(root, "CHECKPOINT"), 144 + 64, "<Q", 10**6, section=0)  # message bytes of the second block
    assert repaired(root) == ALL


def test_a_subject_that_a_summary_gives_another_number_can_be_trimmed(tmp_path: Path) -> None:
    """No subject had the number of these messages; removing them decremented its count below zero, and the limit of
    messages per subject then met a subject without a name: the stream did not open.
    """
    with penstock.open(tmp_path) as db:
        stream = db.stream("S", subjects=["s.>"], max_msgs_per_subject=40)
        for n in range(90):
            stream.publish(f"s.{n % 5}", b"%d " % n + bytes(100))
        stream.delete_many(range(1, 20))
    at(tmp_path, "CHECKPOINT").unlink()
    lie_in_summary(at(tmp_path, "blocks/000001.sum"), 4, lambda part: struct.pack_into("<I", part, 0, 256))
    with penstock.open(tmp_path) as db:
        found = [message.seq for message in db.get_stream("S").read()]
    assert found == list(range(20, 91))


def test_an_expiry_beyond_all_times_is_never() -> None:
    """A repair of a block with wrong times ended with an OverflowError."""
    headers = b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n"
    rows = [(0, 1, 2**63 - 10, FLAGS["ttl"], headers)]
    assert list(IdsAndExpiries(read_ids_and_expiries(rows))) == [(1, 2**63 - 10, None, 2**63 - 1)]


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_the_last_sequence_of_all_is_given_to_no_message(tmp_path: Path, storage: str) -> None:
    """The end of a half-open range that holds it is no valid sequence: once it was assigned, the stream did
    not open.
    """
    with penstock.open(tmp_path) as db:
        stream = db.stream("S", subjects=["s"], storage=storage, first_seq=2**63 - 3)
        assert [stream.publish("s", b"x").seq for _ in range(2)] == [2**63 - 3, 2**63 - 2]
        for _ in range(2):
            with pytest.raises(SequencesExhausted, match="no sequence is left"):
                stream.publish("s", b"x")
    if storage == "file":
        for _ in range(2):
            with penstock.open(tmp_path) as db:
                assert [message.seq for message in db.get_stream("S").read()] == [2**63 - 3, 2**63 - 2]


# ---------------------------------------------------------------------------------------------------- checkpoint, HEAD


@pytest.mark.parametrize("number", range(3))
def test_a_scan_finds_a_block_whose_salt_the_checkpoint_does_not_know(root: Path, number: int) -> None:
    """A scan trusted the checkpoint's list, and reported every record of the block as damaged; verify
    reported nothing.
    """
    lie_in_checkpoint(at(root, "CHECKPOINT"), 144 * number + 48, "<Q", 7, section=0)
    view = view_at(str(at(root, "")), from_checkpoint=True)
    found = scan(view, columns=["seq"])
    assert [row["seq"] for batch in found for row in batch.to_pylist()] == ALL and not found.damage
    parts = plan_parts(view)
    assert [seq for part in parts for batch in read_part(part) for seq in batch["seq"].to_pylist()] == ALL


HEAD_FIELDS = {"block_id": 56, "offset": 64, "committed_seq": 72, "assigned_seq": 80, "synced_seq": 88, "state": 96}


def lie_in_head(path: Path, **values: int) -> None:
    data = bytearray(path.read_bytes())
    for start in [start for start in (0, 2048) if any(data[start : start + 8])]:
        for name, value in values.items():
            struct.pack_into("<Q", data, start + HEAD_FIELDS[name], value)
        data[start + 120 : start + 128] = hashed(bytes(data[start : start + 120]))
    path.write_bytes(data)


def head_of(root: Path) -> Head:
    with penstock.open(root, read_only=True) as db:
        store = db.get_stream("S").store
        assert isinstance(store, Snapshot) and store.head is not None
        return store.head


def test_a_head_that_ends_in_the_middle_of_a_record_costs_it_nothing(root: Path) -> None:
    lie_in_head(at(root, "HEAD"), offset=head_of(root).offset - 1, state=1)
    assert [problem.path for problem in check_store(str(root)).damage] == [str(at(root, "HEAD"))]
    assert repaired(root) == ALL


def test_verify_tells_of_whole_blocks_after_the_one_that_head_names(root: Path) -> None:
    """An older HEAD is valid, and a reader beside a writer stops there: verify reported nothing about the blocks behind
    it.
    """
    second = decode_summary(at(root, "blocks/000002.sum").read_bytes(), "")
    assert second is not None
    last = second.last_seq
    where = {"block_id": 2, "offset": second.data_size, "committed_seq": last, "assigned_seq": last}
    lie_in_head(at(root, "HEAD"), **where, synced_seq=last, state=1)
    at(root, "CHECKPOINT").unlink()
    found = check_store(str(root))
    assert found.is_ok
    notes = [note for one in found.streams for note in one.notes if UNCONFIRMED in note]
    assert len(notes) == 1 and "(block 2)" in notes[0]
    assert held(root, read_only=True) == list(range(1, last + 1))  # it holds the later deletes
    assert held(root) == ALL


@pytest.mark.parametrize(
    ("offset", "fmt", "value", "section"),
    [
        (24, "<Q", 2**64 - 1, None),  # epoch
        (32, "<Q", 9, None),  # block_id: the last block would be looked for elsewhere
        (56, "<Q", 2**63, None),  # last_seq
        (56, "<Q", 2**62, None),
        (64, "<q", 2**40, None),  # num_subjects: memory was allocated for them before any was read
        (64, "<q", -1, None),
        (80, "<Q", 5, None),  # messages
        (104, "<Q", 60, None),  # floor: messages below it would be gone
        (0, "<Q", 2**64 - 1, 0),  # of the first block: id, generation, first_seq, size, rows, live
        (8, "<Q", 7, 0),
        (16, "<Q", 2**63, 0),
        (56, "<Q", 2**40, 0),
        (128, "<I", 2**32 - 1, 0),
        (132, "<I", 1, 0),
        (0, "<I", 2**31 - 2, 2),  # a subject's number, total
        (6, "<Q", 2**63, 2),
    ],
)
def test_a_checkpoint_that_lies_is_not_used(root: Path, offset: int, fmt: str, value: int, section: int | None) -> None:
    lie_in_checkpoint(at(root, "CHECKPOINT"), offset, fmt, value, section=section)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert held(root, read_only=True) == ALL
    assert any(str(at(root, "CHECKPOINT")) in one for one in findings(root))
    assert held(root) == ALL
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_a_first_message_that_lies_is_told_by_verify_alone(root: Path) -> None:
    """An open trusts it, within bounds: it has not read the blocks."""
    lie_in_checkpoint(at(root, "CHECKPOINT"), 14, "<Q", 80, section=2)
    found = check_store(str(root)).damage
    assert [problem.path for problem in found] == [str(at(root, "CHECKPOINT"))] and "first message" in found[0].text
    after = repair_store(str(root), None).after
    assert after is not None and after.is_ok and held(root, "s.0.0") == [seq for seq in ALL if (seq - 1) % 15 == 0]


@pytest.mark.parametrize("field", range(6, 13))
@pytest.mark.parametrize("value", [0, 2**62, 2**63, 2**64 - 1])
def test_a_head_that_lies_costs_nothing(root: Path, field: int, value: int) -> None:
    data = bytearray(at(root, "HEAD").read_bytes())
    for start in (0, 2048):
        struct.pack_into("<Q", data, start + 8 * field, value)
        data[start + 120 : start + 128] = hashed(bytes(data[start : start + 120]))
    at(root, "HEAD").write_bytes(data)
    assert set(held(root, read_only=True)) >= set(ALL)
    with penstock.open(root) as db:
        stream = db.get_stream("S")
        assert [message.seq for message in stream.read()] == ALL
        assert stream.publish("s.9", b"").seq < 2**41
    assert check_store(str(root)).is_ok


# --------------------------------------------------------------------------------------------------------------- plans


def plan(moves: list[Any], mode: str = "blocks", **more: Any) -> dict[str, Any]:
    blocks = [move[0] for move in moves]
    return {"query": "q", "batch": 1, "first_seq": 91, "has_times": False, "mode": mode, "moves": moves, "last_seq": 91,
            "blocks": blocks, "count": 1} | more  # fmt: skip


@pytest.mark.parametrize("mode", ["blocks", "append"])
@pytest.mark.parametrize(
    "path",
    [
        "../../../outside/precious.txt",
        "/OUTSIDE/precious.txt",
        "staging/../../../../outside/precious.txt",
        "staging/../blocks/000001.blk",
        "staging/..",
        "staging/a/b/blocks/precious.txt",
        "staging/a/../blocks/000001.blk",
        "staging/link/b/blocks/000001.blk",
        "blocks/000001.blk",
        "",
        "\0",
    ],
)
def test_a_plan_of_an_adoption_leads_nowhere_else(root: Path, path: str, mode: str) -> None:
    """It once moved a foreign file into the stream, and removed the stream's own folder."""
    outside = root.parent / "outside"
    path = path.replace("/OUTSIDE", str(outside))
    (outside / "b" / "blocks").mkdir(parents=True)
    (outside / "b" / "blocks" / "000001.blk").write_bytes(b"mine")
    at(root, "staging/a/b/blocks").mkdir(parents=True)
    at(root, "staging/link").symlink_to(outside)
    at(root, "ADOPT").write_bytes(checked(plan([[path, 9, 8192]], mode)))
    assert not check_store(str(root)).is_ok
    assert any("ADOPT" in one and one.startswith("set aside") for one in findings(root))
    assert held(root) == ALL and at(root, "ADOPT.damaged").exists()
    assert (outside / "precious.txt").read_text() == "precious"
    assert (outside / "b" / "blocks" / "000001.blk").read_bytes() == b"mine"


def test_a_plan_does_not_take_the_place_of_a_block(root: Path) -> None:
    """Both files belong to the store: the existing one stays."""
    staged = Stage(root_of(root, "S"), "q-1", "task")
    staged.append(Batch.of([("s.1.x", bytes(90))] * 60))
    info = staged.finish()

    def stop(*args: object) -> None:
        raise StoreError("stopped here")

    db = penstock.open(root)
    with patch.object(Adoption, "move", stop), pytest.raises(StoreError):
        db.get_stream("S").adopt("q-1", [info], query="q", batch=1)
    stream = db.get_stream("S")
    assert isinstance(stream.store, FileStore)
    stream.store.abandon()
    stream.consumers.abandon()
    db._streams.clear()
    db.close()
    found = json.loads(at(root, "ADOPT").read_bytes().split(b"\n")[0])
    found["moves"][0][1] = 2
    before = at(root, "blocks/000002.blk").read_bytes()
    at(root, "ADOPT").write_bytes(checked(found))
    assert held(root) == ALL and at(root, "blocks/000002.blk").read_bytes() == before


@pytest.mark.parametrize("body", [b"[" * 100_000, b"null", b"[]", b"{}", b"9" * 5000, b'{"moves":1}', b"\xff"])
@pytest.mark.parametrize("name", ["ADOPT", "TRUNCATE", "DELETES"])
def test_a_plan_that_is_none_is_set_aside(root: Path, name: str, body: bytes) -> None:
    at(root, name).write_bytes(checked(body))
    assert not check_store(str(root)).is_ok
    assert any(f"{name}: " in one and one.startswith("set aside") for one in findings(root))
    assert held(root) == ALL


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 40, "keeps": 60},
        {"seq": 2**62},
        {"seq": -1},
        {"floor": 2**63},
        {"epoch": 2**64},
        {"dead": "01"},
        {"skips": [[5, 3]]},
        {"skips": [[1, 2**63 - 1]]},
    ],
    ids=str,
)
def test_a_truncation_that_does_not_fit_the_stream_cuts_nothing(root: Path, change: dict[str, Any]) -> None:
    whole = {"seq": 50, "floor": 1, "epoch": 1, "dead": "01" + "1101", "skips": [], "keeps": 49}
    at(root, "TRUNCATE").write_bytes(checked(whole | change))
    assert any("TRUNCATE" in one and one.startswith("set aside") for one in findings(root))
    assert held(root) == ALL
    at(root, "TRUNCATE").write_bytes(checked(whole))
    assert held(root) == [seq for seq in ALL if seq <= 50]


def test_of_a_link_only_the_link_is_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    remove_tree(Disk(), str(tmp_path / "link"))
    assert not os.path.lexists(tmp_path / "link") and (tmp_path / "mine" / "file").exists()


# ------------------------------------------------------------------------------------------------ configuration, blocks


def lie_in_config(root: Path, change: Callable[[dict[str, Any]], object], *names: str) -> None:
    for name in names:
        value = json.loads(at(root, name).read_bytes().rpartition(b"\nxxh64 ")[0])
        change(value)
        body = json.dumps(value).encode()
        at(root, name).write_bytes(body + b"\nxxh64 %016x\n" % xxh64_of(body))


CONFIG_LIES: list[Callable[[dict[str, Any]], object]] = [
    lambda value: value["config"].update(name="../T"),
    lambda value: value["config"].update(max_msgs="many"),
    lambda value: value["config"].update(max_msgs=2**70),
    lambda value: value["config"].update(retention="never"),
    lambda value: value["config"].update(subjects=["a..b"]),
    lambda value: value["config"].update(first_seq=2**64 - 1),
    lambda value: value["config"].update(storage="memory"),
    lambda value: value.update(revision=10**30),
    lambda value: value.update(stream_id="xyz"),
    lambda value: value.update(created_ns=[]),
    lambda value: value.pop("config"),
    lambda value: value.update(config=[[]]),
]


def test_verify_tells_of_two_configurations_of_the_same_age(root: Path) -> None:
    """Nothing tells which of them is wrong: an open takes the first one, whose limits may remove messages."""
    lie_in_config(root, lambda found: found["config"].update(max_msgs=3), "config.json")
    assert [problem.path for problem in check_store(str(root)).damage] == [str(at(root, "config.copy.json"))]


@pytest.mark.parametrize("lie", range(len(CONFIG_LIES)))
def test_a_configuration_that_cannot_be_is_as_a_damaged_one(root: Path, lie: int) -> None:
    """If one copy is impossible, the other is used. If both are, the stream is refused with an error that names the
    file, and other streams open.
    """
    good = at(root, "config.json").read_bytes()
    lie_in_config(root, CONFIG_LIES[lie], "config.json")
    assert not check_store(str(root)).is_ok
    assert held(root, read_only=True) == held(root) == ALL
    assert at(root, "config.json").read_bytes() == good and at(root, "config.json.damaged").exists()
    lie_in_config(root, CONFIG_LIES[lie], "config.json", "config.copy.json")
    with penstock.open(root) as db:
        with pytest.raises(CorruptBlock, match=r"config\.json.*restore"):
            db.get_stream("S")
        assert db.get_stream("T").get(1).data == b"another"
    assert not check_store(str(root)).is_ok


def test_json_that_is_nested_without_end_is_no_configuration(root: Path) -> None:
    body = b'{"format":1,"revision":9,"config":' + b'{"a":' * 100_000
    at(root, "config.json").write_bytes(body + b"\nxxh64 %016x\n" % xxh64_of(body))
    assert held(root) == ALL


@pytest.mark.parametrize(
    "name", ["99999999999999999999999.blk", "4611686018427387904.blk", "0000007.blk", "000001.0.blk"]
)
def test_a_name_that_no_writer_gives_a_block_is_a_foreign_file(root: Path, name: str) -> None:
    at(root, f"blocks/{name}").write_bytes(b"foreign")
    with penstock.open(root) as db:
        for _ in range(60):
            db.get_stream("S").publish("s.1.1", bytes(100))
    assert held(root)[:89] == ALL and at(root, f"blocks/{name}").read_bytes() == b"foreign"


# ------------------------------------------------------------------------------------------------------------ consumers


@pytest.mark.parametrize("number", [2**62, 2**63, 2**64 - 1])
def test_a_consumer_with_a_number_beyond_all_is_damage(root: Path, number: int) -> None:
    """Adding one to it would have overflowed."""
    path = next(at(root, "consumers").iterdir())
    data = path.read_bytes()
    (salt,) = struct.unpack_from("<Q", data, 40)
    path.write_bytes(data.rstrip(b"\0") + encode_record(NOTE, number, number, b"\x04", salt))
    with penstock.open(root) as db:
        stream = db.get_stream("S")
        assert stream.consumers() == ["one"]
        stream.consumer("two")
    with penstock.open(root) as db:
        assert db.get_stream("S").consumers() == ["one", "two"]


def test_a_consumer_whose_state_cannot_be_begins_anew_once(root: Path) -> None:
    """The next open finds its later progress, and reports nothing."""
    with penstock.open(root) as db:
        stream_id = db.get_stream("S").identity.stream_id
    path = next(at(root, "consumers").iterdir())
    data = path.read_bytes()
    (salt,) = struct.unpack_from("<Q", data, 40)
    (entry,) = read_entries(Disk(), str(at(root, "consumers")), stream_id, Report()).values()
    path.write_bytes(data.rstrip(b"\0") + encode_record(NOTE, 1, entry.count + 1, b"\xff\xff", salt))
    for wanted in ([1, 2], [3, 4]):
        with penstock.open(root) as db:
            got = db.get_stream("S").consumer("one").fetch(2, timeout=0)
            assert [message.seq for message in got] == wanted
            for message in got:
                message.ack()
    with penstock.open(root) as db:
        assert db.get_stream("S").consumer("one").info().ack_floor.stream_seq == 4
        assert not [one for one in db.get_stream("S").findings if "cannot be read" in one.text]


def test_a_repair_takes_no_message_for_lost_that_a_block_holds(root: Path) -> None:
    """The checkpoint named another generation of a block: the repair recorded its messages as lost, which
    deleted them.
    """
    lie_in_checkpoint(at(root, "CHECKPOINT"), 8, "<Q", 1 << 63 | 7, section=0)
    found = check_store(str(root)).damage
    assert {problem.path for problem in found} == {str(at(root, "CHECKPOINT"))}
    after = repair_store(str(root), None).after
    assert after is not None and after.is_ok and held(root) == ALL
    at(root, "CHECKPOINT").unlink()
    assert held(root) == ALL
