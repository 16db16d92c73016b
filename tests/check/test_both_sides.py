"""The command line checks a store in one process, Spark in many parts: both find the same, in the same words."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

import penstock
from penstock.base.disk import Disk
from penstock.check import problem as check_problem
from penstock.check.parts import plan_parts
from penstock.check.problem import PartCheck, StreamCheck
from penstock.check.store import check_part, check_store, chosen_folders
from penstock.consumer.config import make_config
from penstock.consumer.rules import admit
from penstock.db.lock import holder_of
from penstock.format.checked_file import write_checked
from penstock.format.paths import StreamPaths
from penstock.scan.block_memory import BlockMemory

Facts = tuple[str, list[tuple[object, ...]], list[str], list[tuple[int, int]], tuple[int, ...]]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_problem, "PAUSE_S", 0.0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two streams; S has five small blocks, deletes, an erase, ids, TTLs and a consumer."""
    path = tmp_path_factory.mktemp("check") / "store"
    with patch("penstock.stream.stream.block_size", lambda config: 4000), penstock.open(path) as db:
        db.stream("T", subjects=["t"]).publish("t", b"another")
        stream = db.stream("S", subjects=["s.>"], allow_msg_ttl=True)
        stream.consumers.create(admit(make_config("one", ack_policy="explicit"), stream.config, {}))
        for n in range(1, 101):
            headers = {"Nats-Msg-Id": f"id {n}"} if n % 10 == 3 else {"Nats-TTL": "1000h"} if n % 10 == 4 else None
            stream.publish(f"s.{n % 5}", b"message %03d " % n + bytes(120), headers)
        stream.delete(17)
        stream.delete_many([40, 41, 42])
        stream.erase(60)
    assert len(list((path / "$G" / "S" / "blocks").glob("*.blk"))) >= 4
    return path


def flip(*places: tuple[str, int]) -> Callable[[Path], None]:
    def change(stream: Path) -> None:
        for name, at in places:
            data = bytearray((stream / name).read_bytes())
            data[at] ^= 4
            (stream / name).write_bytes(data)

    return change


def flip_text(name: str, text: bytes) -> Callable[[Path], None]:
    def change(stream: Path) -> None:
        path = stream / "blocks" / name
        path.write_bytes(path.read_bytes().replace(text, text[:-1] + b"?"))

    return change


def remove(*names: str) -> Callable[[Path], None]:
    def change(stream: Path) -> None:
        for name in names:
            (stream / name).unlink()

    return change


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda stream: (stream / name).write_bytes((stream / name).read_bytes()[:size]) and None


def write(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda stream: (stream / name).write_bytes(data) and None


def copy(source: str, target: str) -> Callable[[Path], None]:
    return lambda stream: shutil.copy(stream / source, stream / target) and None


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(stream: Path) -> None:
        for one in changes:
            one(stream)

    return change


def age_config(stream: Path) -> None:
    """A process ended between the two copies of a change."""
    old = (stream / "config.copy.json").read_bytes()
    with penstock.open(stream.parent.parent) as db:
        db.stream("S", subjects=["s.>"], max_msgs=1_000_000)
    (stream / "config.copy.json").write_bytes(old)


def damage_batches(stream: Path) -> None:
    write_checked(Disk(), StreamPaths(str(stream)).batches, {"query": {"batch": 1, "first_seq": 1, "last_seq": 2}})
    flip(("BATCHES", 3))(stream)


def grow_after_checkpoint(stream: Path) -> None:
    """A HEAD that lies: it ends before the last record of its block."""
    import struct

    from penstock.base.xxh64 import xxh64_of

    data = bytearray((stream / "HEAD").read_bytes())
    for start in (0, 2048):
        (committed,) = struct.unpack_from("<Q", data, start + 8 * 8)
        struct.pack_into("<Q", data, start + 8 * 8, committed - 1)
        data[start + 120 : start + 128] = struct.pack("<Q", xxh64_of(bytes(data[start : start + 120])))
    (stream / "HEAD").write_bytes(data)


FIRST, SECOND, THIRD = "blocks/000001.blk", "blocks/000002.blk", "blocks/000003.blk"
HEADERS = ((FIRST, 20), (FIRST, 4096 + 30))
DAMAGES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda stream: None,
    "a message": flip_text("000002.blk", b"message 030"),
    "messages of several blocks": both(
        flip_text("000001.blk", b"message 003"), flip_text("000003.blk", b"message 060")
    ),
    "a header copy": flip((SECOND, 20)),
    "both header copies": flip(*HEADERS),
    "both header copies and the summary": flip(*HEADERS, ("blocks/000001.sum", 600)),
    "a block that is noise": both(write(SECOND, b"?" * 9000), remove("blocks/000002.sum")),
    "two blocks that are noise": both(
        write(SECOND, b"?" * 9000), write(THIRD, b"?" * 9000), remove("blocks/000002.sum", "blocks/000003.sum")
    ),
    "a block of zeros": both(write(SECOND, bytes(8192)), remove("blocks/000002.sum")),
    "an empty block": write("blocks/000099.blk", b""),
    "another block's bytes": copy(FIRST, "blocks/000099.blk"),
    "another stream's block": copy("../T/blocks/000001.blk", SECOND),
    "a foreign file": write("blocks/notes.txt", b"milk"),
    "a missing block": remove(SECOND),
    "a missing first block and its summary": remove(FIRST, "blocks/000001.sum"),
    "a cut block": cut(SECOND, 9000),
    "a cut last block": cut("blocks/000004.blk", 8300),
    "a cut block without summary, and the next": both(
        cut(SECOND, 9000), remove("blocks/000002.sum"), write(THIRD, b"?" * 9000), remove("blocks/000003.sum")
    ),
    "a summary": flip(("blocks/000001.sum", 600)),
    "another block's summary": copy("blocks/000001.sum", "blocks/000002.sum"),
    "a summary without its block": copy("blocks/000001.sum", "blocks/000099.sum"),
    "a missing summary": remove("blocks/000002.sum"),
    "the checkpoint": flip(("CHECKPOINT", 50)),
    "a missing checkpoint": remove("CHECKPOINT"),
    "another stream's checkpoint": copy("../T/CHECKPOINT", "CHECKPOINT"),
    "a slot of HEAD": flip(("HEAD", 40)),
    "both slots of HEAD": flip(("HEAD", 40), ("HEAD", 2048 + 40)),
    "a missing HEAD": remove("HEAD"),
    "a HEAD that lies": grow_after_checkpoint,
    "one configuration": flip(("config.json", 30)),
    "both configurations": flip(("config.json", 30), ("config.copy.json", 30)),
    "configurations of different age": age_config,
    "what was adopted": damage_batches,
    "what is being adopted": write("ADOPT", b"nonsense"),
    "what is being cut off": write("TRUNCATE", b"nonsense"),
    "deletes": write("DELETES", b"nonsense"),
    "the consumers": flip(("consumers/000001.log", 8300)),
    "leftovers": both(write("blocks/000001.blk.tmp", b"x"), write("HEAD.damaged", b"x")),
    "a message, and the checkpoint with it": both(
        flip_text("000002.blk", b"message 030"), flip(("CHECKPOINT", 50), ("blocks/000002.sum", 600))
    ),
}


def facts_of(stream: StreamCheck) -> Facts:
    problems = [(one.kind, one.path, one.text, one.offset, one.size, one.seqs, one.is_known) for one in stream.problems]
    counts = stream.blocks, stream.messages, stream.controls, stream.bytes
    return stream.name, problems, sorted(stream.notes), stream.lost, counts


def check_in_parts(root: Path, size_max: int) -> list[Facts]:
    """As the pipeline does it: each part goes somewhere else, and is checked by itself."""
    folders = chosen_folders(str(root))
    parts: dict[str, list[PartCheck]] = {}
    planned = plan_parts(Disk(), folders, holder_of(str(root)) is not None, size_max)
    for part in reversed(planned):
        found = check_part(Disk(), pickle.loads(pickle.dumps(part)), BlockMemory())
        parts.setdefault(part.folder.root, []).append(found)
    return [facts_of(StreamCheck.of_parts(folder, parts[folder.root])) for folder in folders]


def in_one(root: Path) -> list[Facts]:
    return [facts_of(stream) for stream in check_store(str(root)).streams]


def without_sizes(found: list[Facts]) -> list[Facts]:
    return [(name, problems, notes, lost, counts[:3]) for name, problems, notes, lost, counts in found]


@pytest.mark.parametrize("damage", DAMAGES)
def test_parts_of_any_size_find_what_one_process_finds(sound: Path, tmp_path: Path, damage: str) -> None:
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    DAMAGES[damage](root / "$G" / "S")
    whole = in_one(root)
    for size_max in (1, 9000, 1 << 30):
        assert check_in_parts(root, size_max) == whole
    is_sound = all(not problems for _, problems, _, _, _ in whole)
    harmless = {
        "nothing", "an empty block", "a foreign file", "a summary without its block", "a missing summary",
        "a missing checkpoint", "configurations of different age", "leftovers",
    }  # fmt: skip
    assert is_sound == (damage in harmless), whole


def test_parts_beside_a_writer_find_what_one_process_finds(sound: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    with penstock.open(root) as db:
        db.get_stream("S").publish("s.1", b"later")
        whole = in_one(root)
        assert check_in_parts(root, 1) == whole and not whole[0][1] and whole[0][4][1] == 101
    assert os.path.exists(root / "$G" / "S" / "HEAD")
