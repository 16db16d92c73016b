"""docs/format.md says what the constants and the code do: magics, offsets, kinds, flags, sections, the example."""

from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import xxhash

from penstock.base.disk import Disk
from penstock.consumer.ack_table import AckTable
from penstock.format import constants
from penstock.format import consumer_log_record as ledger_record
from penstock.format.block_header import BlockHeader, decode_header
from penstock.format.checked_file import write_checked
from penstock.format.head import decode_head
from penstock.format.identity import Identity, decode_identity, write_identity
from penstock.format.paths import StreamPaths
from penstock.format.record import encode_message
from penstock.store.consumer_log.entries import LogHeader, log_name
from penstock.store.file_store import FileStore
from penstock.store.index import checkpoint as checkpoint_module
from penstock.store.index.checkpoint import BlockRow, Checkpoint, decode_checkpoint
from penstock.store.index.summary import decode_summary
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.testing.clock import FakeClock
from twins import ack_table

PAGE = (Path(__file__).parent.parent / "docs" / "format.md").read_text(encoding="utf-8")
STREAM_ID = bytes(range(100, 116))
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8}


def part(title: str) -> str:
    """The text under a heading of the page."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found, f"no heading {title!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of the table rows in a text, without the rulers."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if not all(re.fullmatch(r"-*", cell) for cell in row)]


def layout(title: str) -> dict[str, tuple[int, int]]:
    """field -> (offset, size), from the table with offsets under a heading; a row of several fields is taken apart."""
    found: dict[str, tuple[int, int]] = {}
    for offset, names, kind, *_ in (row for row in rows(part(title)) if len(row) >= 3 and row[0].isdigit()):
        at = int(offset)
        for name in names.split(", "):
            size = SIZES.get(kind.split(" × ")[0]) or int((re.match(r"(\d+) bytes", kind) or [0, 0])[1])
            found[name] = at, size
            at += size
    return found


def field(data: bytes, where: tuple[int, int]) -> int:
    return int.from_bytes(data[where[0] : where[0] + where[1]], "little")


def check_fields(data: bytes, table: dict[str, tuple[int, int]], wanted: dict[str, int | bytes]) -> None:
    for name, value in wanted.items():
        at, size = table[name]
        found: int | bytes = data[at : at + size]
        if isinstance(value, int):
            found = int.from_bytes(data[at : at + size], "little", signed=value < 0)
        assert found == value, f"{name} at {at}"


def check_no_gaps(table: dict[str, tuple[int, int]]) -> None:
    """Field follows field."""
    at = 0
    for name, (offset, size) in table.items():
        assert offset == at, f"{name} stands at {offset} on the page; the fields before it end at {at}"
        at += size


# Constants.


@pytest.mark.parametrize(
    ("title", "magic"),
    [
        ("Block", constants.BLOCK_MAGIC),
        ("Summary (`.sum`)", constants.SUMMARY_MAGIC),
        ("HEAD", constants.HEAD_MAGIC),
        ("CHECKPOINT", constants.CHECKPOINT_MAGIC),
    ],
)
def test_the_magics_are_those_of_the_page(title: str, magic: bytes) -> None:
    shown = re.search(r"\| 0 \| magic \| 8 bytes \| `([^`]+)` \|", part(title))
    assert shown and shown[1].encode().decode("unicode_escape").encode("latin-1") == magic


def test_the_kinds_and_reasons_are_those_of_the_page() -> None:
    kinds: dict[int, str] = {}
    reasons: dict[int, str] = {}
    table = part("Record")[part("Record").index("| kind | | reason | |") :]
    for row in rows(table[: table.index("\n\n")])[1:]:
        for numbers, number, name in ((kinds, row[0], row[1]), (reasons, row[2], row[3]), (reasons, row[4], row[5])):
            if number:
                numbers[int(number)] = name
    assert kinds == dict(enumerate(constants.KINDS))
    assert reasons == dict(enumerate(constants.REASONS))


def test_the_flags_are_those_of_the_page() -> None:
    text = next(row[2] for row in rows(part("Record")) if row[0] == "flags")
    assert "bits 0-2 kind" in text and "bit 7 zero" in text
    names = {
        "headers": "headers follow",
        "erased": "erased",
        "ttl": "has a `Nats-TTL` header",
        "msg_id": "has a `Nats-Msg-Id` header",
    }
    for name, words in names.items():
        shown = re.search(rf"bit (\d) {re.escape(words)}", text)
        assert shown and constants.FLAGS[name] == 1 << int(shown[1])


def test_the_sizes_are_those_of_the_page() -> None:
    assert constants.FORMAT_VERSION == 1
    assert f"Records begin at byte {constants.RECORDS_START}" in PAGE
    assert f"at bytes 0 and {constants.HEADER_STRIDE}" in PAGE
    assert "A record is at most 64 MiB + 64 KiB" in PAGE and constants.RECORD_SIZE_MAX == (64 << 20) + (64 << 10)
    assert f"at most {constants.DELETE_RANGES_MAX:,} ranges" in PAGE
    assert f"{constants.HEAD_SIZE:,} bytes; two slots at 0 and {constants.HEAD_SLOT_STRIDE:,}" in PAGE
    assert f"{constants.SUMMARY_SECTIONS} × (offset u64, size u64)" in part("Summary (`.sum`)")
    assert f"{constants.CHECKPOINT_SECTIONS} × (offset u64, size u64)" in part("CHECKPOINT")
    assert f"| {constants.SUMMARY_FIXED_SIZE} | section bytes" in part("Summary (`.sum`)")
    assert f"| {constants.CHECKPOINT_FIXED_SIZE} | section bytes" in part("CHECKPOINT")
    assert f"| 96 | state | u64 | {constants.HEAD_OPEN} open, {constants.HEAD_STOPPED} stopped" in part("HEAD")
    assert layout("HEAD")["checksum"][0] + 8 == constants.HEAD_SLOT_SIZE
    assert layout("Block")["checksum"][0] + 8 == constants.HEADER_SIZE


def test_the_limit_of_a_block_is_that_of_the_page() -> None:
    assert "Limits: 8 MiB by default" in PAGE and Limits().block_size == 8 << 20


def test_the_files_are_called_as_on_the_page() -> None:
    paths = StreamPaths("/s")
    for path, name in (
        (paths.block(1), "blocks/000001.blk"),
        (paths.block(1, 2), "000001.2.blk"),
        (paths.summary(1), "blocks/000001.sum"),
        (f"{paths.consumers}/{log_name(1)}", "consumers/000001.log"),
        (paths.head, "HEAD"),
        (paths.checkpoint, "CHECKPOINT"),
        (paths.truncate, "TRUNCATE"),
        (paths.config, "config.json"),
        (paths.config_copy, "config.copy.json"),
    ):
        assert path.endswith(name) and name in PAGE


# Layouts, by packing something known and looking at the bytes.


def header(**changes: Any) -> BlockHeader:
    wanted: dict[str, Any] = {
        "stream_id": STREAM_ID, "block_id": 0x0101, "epoch": 0x0202, "base_seq": 0x0303, "first_seq": 0x0404,
        "base_time": -5, "salt": 0x0606, "generation": 0x0707,
    }  # fmt: skip
    return BlockHeader(**(wanted | changes))


def test_a_block_header_is_laid_out_as_the_page_says() -> None:
    data, table = header().encode(), layout("Block")
    check_no_gaps(table)
    assert len(data) == constants.HEADER_SIZE
    check_fields(
        data,
        table,
        {
            "magic": constants.BLOCK_MAGIC,
            "version": 1,
            "cipher": 0,
            "compression": 0,
            "generation": 0x0707,
            "stream_id": STREAM_ID,
            "block_id": 0x0101,
            "epoch": 0x0202,
            "base_seq": 0x0303,
            "first_seq": 0x0404,
            "base_time": -5,
            "salt": 0x0606,
            "key": bytes(80),
            "reserved": bytes(88),
            "checksum": xxhash.xxh64_intdigest(data[:248]),
        },
    )
    assert decode_header(data, "x") == header()


def test_the_header_stands_twice_and_either_copy_will_do() -> None:
    front = header().encode_front()
    assert len(front) == constants.RECORDS_START
    assert front[:256] == front[4096 : 4096 + 256] == header().encode()
    assert not front[256:4096].strip(b"\0") and not front[4096 + 256 :].strip(b"\0")


def test_the_worked_example_is_what_is_written() -> None:
    shown = re.search(r"<!-- example -->\n +([0-9a-f. ]+)\n", PAGE)
    assert shown
    cells = shown[1].split()
    data = encode_message(2, 1003, b"a.b", None, b"hi", base_seq=1, base_time=1000, salt=1)
    assert len(cells) == len(data)
    checksum = xxhash.xxh64_intdigest(data[:-8], 1).to_bytes(8, "little")
    for at, (cell, byte) in enumerate(zip(cells, data[:-8] + checksum, strict=True)):
        assert cell == ".." or int(cell, 16) == byte, f"byte {at}"
        assert byte == data[at]
    assert cells[: len(data) - 8].count("..") == 0, "only the checksum may be left open"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[StreamPaths, FileStore]:
    """A store of several blocks, stopped in good order."""
    root = tmp_path_factory.mktemp("format") / "stream"
    store = FileStore(root, STREAM_ID, limits=Limits(block_size=1000), durability="os", clock=FakeClock())
    for n in range(60):
        batch = Batch.one(f"a.{n % 5}", b"%d" % n, b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % n)
        batch.mark(0, False, True, False)
        store.append(batch)
        store.note_id_and_expiry(batch.seq(0), store.clock.now_ns(), bytes([n]) * 16, 0)
        if n == 3:
            store.skip(2)
    store.remove_many([2, 3, 50])
    store.stop()
    return store.paths, store


def test_a_summary_is_laid_out_as_the_page_says(stopped: tuple[StreamPaths, FileStore]) -> None:
    paths, _ = stopped
    data, table = Path(paths.summary(1)).read_bytes(), layout("Summary (`.sum`)")
    block = Path(paths.block(1)).read_bytes()
    summary = decode_summary(data, paths.summary(1))
    assert summary is not None
    check_fields(
        data,
        table,
        {
            "magic": constants.SUMMARY_MAGIC,
            "header": block[:256],
            "data_size": len(block),
            "first_seq": 1,
            "last_seq": summary.last_seq,
            "time_min": summary.time_min,
            "time_max": summary.time_max,
            "count": summary.count,
            "flags": 1 if summary.is_dense else 0,
            "seq_base": 1,
            "numbering": summary.numbering,
            "message_bytes": summary.message_bytes,
            "last_checksum": int.from_bytes(block[-8:], "little"),
            "reserved": bytes(8),
        },
    )
    assert not summary.is_dense, "the skip leaves a gap"
    salt = summary.header.salt
    assert int.from_bytes(data[-8:], "little") == xxhash.xxh64_intdigest(data[:-8], salt)
    assert table["last_seq"] == (280, 8) and table["time_max"] == (296, 8)
    spans = list(struct.iter_unpack("<QQ", data[352 : 352 + 160]))
    assert spans == list(summary.spans)
    for offset, size in spans:
        assert offset % 8 == 0
        assert field(data, (offset + size, 8)) == xxhash.xxh64_intdigest(data[offset : offset + size], salt)


def test_the_sections_of_a_summary_are_those_of_the_page(stopped: tuple[StreamPaths, FileStore]) -> None:
    from penstock.store.index import summary as module

    text = part("Summary (`.sum`)")
    shown = {row[1]: int(row[0]) for row in rows(text[text.index("| # |") :])[1:]}
    assert shown == {name: getattr(module, name.upper()) for name in shown}
    assert len(shown) == constants.SUMMARY_SECTIONS
    paths, _ = stopped
    summary = decode_summary(Path(paths.summary(1)).read_bytes(), "")
    assert summary is not None
    count, block = summary.count, Path(paths.block(1)).read_bytes()
    offsets = struct.unpack(f"<{count}I", summary.section(module.OFFSETS))
    assert offsets[0] == constants.RECORDS_START and list(offsets) == sorted(offsets)
    assert struct.unpack(f"<{count}I", summary.section(module.SEQS))[:6] == (0, 1, 2, 3, 6, 7)
    assert sum(struct.unpack(f"<{count}I", summary.section(module.SIZES))) == summary.message_bytes
    numbers = struct.unpack(f"<{count}I", summary.section(module.SUBJECTS))
    names, at, data = {}, 0, bytes(summary.section(module.NAMES))
    while at < len(data):
        number, messages, size = struct.unpack_from("<IIH", data, at)
        names[number] = data[at + 10 : at + 10 + size].decode()
        assert messages == numbers.count(number)
        at += 10 + size
    assert [names[number] for number in numbers[:5]] == ["a.0", "a.1", "a.2", "a.3", "a.4"]
    controls = bytes(summary.section(module.CONTROLS))
    assert controls and controls in block and controls[1] & 7 == constants.KINDS.index("skip")
    index, _, hashed = struct.unpack_from("<Iq16s", summary.section(module.IDS), 28)
    assert (index, hashed) == (1, b"\1" * 16)


def test_head_is_laid_out_as_the_page_says(stopped: tuple[StreamPaths, FileStore]) -> None:
    paths, store = stopped
    data, table = Path(paths.head).read_bytes(), layout("HEAD")
    check_no_gaps(table)
    assert len(data) == constants.HEAD_SIZE
    head = decode_head(data, STREAM_ID)
    assert head is not None and head.is_stopped
    slot = next(data[at : at + 128] for at in (0, 2048) if field(data[at:], table["counter"]) == head.counter)
    last = sorted(Path(paths.blocks).glob("*.blk"))[-1]
    check_fields(
        slot,
        table,
        {
            "magic": constants.HEAD_MAGIC,
            "counter": head.counter,
            "stream_id": STREAM_ID,
            "boot_id": store.boot_id,
            "epoch": store.epoch,
            "block_id": int(last.stem),
            "offset": last.stat().st_size,
            "committed_seq": 62,
            "assigned_seq": 62,
            "synced_seq": 62,
            "state": constants.HEAD_STOPPED,
            "reserved": bytes(16),
            "checksum": xxhash.xxh64_intdigest(slot[:120]),
        },
    )


def test_a_checkpoint_is_laid_out_as_the_page_says(stopped: tuple[StreamPaths, FileStore]) -> None:
    row = BlockRow(*range(1, 14), -14, -15, -16, 17, 18, is_dense=False, dead=b"D" * 8, subject_filter=b"F" * 3)
    fixed = (24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104)  # each field holds its own offset
    wanted = Checkpoint(STREAM_ID, *fixed, [row], b"S" * 5, [(1, -2)], [(3, 4), (5, 6)], [(7, 8)])
    data, table = wanted.encode(), layout("CHECKPOINT")
    names = [name for name in Checkpoint.__dataclass_fields__ if name in table]
    assert ["magic", *names] == [name for name in table if name not in ("sections", "section bytes")], (
        "the page's names, in the page's order"
    )
    check_fields(data, table, {"magic": constants.CHECKPOINT_MAGIC, "stream_id": STREAM_ID})
    for name in names[1:]:
        assert field(data, table[name]) == table[name][0] == getattr(wanted, name)
    assert field(data, (len(data) - 8, 8)) == xxhash.xxh64_intdigest(data[:-8])
    spans = list(struct.iter_unpack("<QQ", data[112:208]))
    found = [data[offset : offset + size] for offset, size in spans]
    listed = re.search(r"\| 112 \| sections \|[^|]*\| ([^|]*) \|", part("CHECKPOINT"))
    assert listed and listed[1] == "blocks, dead, subjects, expiries, filters, skips"
    assert found[0] == struct.pack("<13Q3q4I", *range(1, 14), -14, -15, -16, 17, 18, 8, 3)
    assert "per block 144 bytes" in part("CHECKPOINT") and len(found[0]) == 144
    assert found[1:4] == [b"D" * 8, b"S" * 5, struct.pack("<Qq", 1, -2)]
    assert found[4:] == [b"F" * 3, struct.pack("<8Q", 2, 3, 4, 5, 6, 1, 7, 8)]
    assert decode_checkpoint(data) is None, "no stream has such numbers"
    real = Path(stopped[0].checkpoint).read_bytes()
    decoded = decode_checkpoint(real)
    assert decoded is not None and decoded.encode() == real


def test_the_rows_of_a_checkpoint_have_the_fields_of_the_page() -> None:
    text = next(row[1] for row in rows(part("CHECKPOINT")) if row[0] == "blocks")
    listed = re.findall(r"[a-z_]+", text.split("bytes: ", 1)[1])
    names = [name for name in listed if name not in ("u", "i")]
    own = [name for name in BlockRow.__dataclass_fields__ if name not in ("is_dense", "dead", "subject_filter")]
    assert names == ["id", *own[1:], "dead_size", "filter_size"]
    assert checkpoint_module._BLOCK.size == 144


def test_what_a_checkpoint_says_of_density_is_on_the_page() -> None:
    """Bit 63 of a row's generation tells that its sequences run without a gap."""
    row = BlockRow(*range(1, 14), -14, -15, -16, 17, 18, is_dense=True)
    data = Checkpoint(STREAM_ID, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, [row]).encode()
    assert field(data, (208 + 8, 8)) == 2 | 1 << 63
    assert re.search(r"bit 63 of generation", part("CHECKPOINT")), "the page does not tell of bit 63 of generation"


def test_the_grammar_of_the_summary_names_what_its_table_has() -> None:
    """The summary has no version of its own: the block header inside it has."""
    text = part("Summary (`.sum`)")
    grammar = re.search(r"summary := (.*)", text)
    assert grammar
    assert ("version" in grammar[1].split()) == ("version" in layout("Summary (`.sum`)"))


def test_the_checksum_of_the_configuration_is_of_the_object_alone(
    stopped: tuple[StreamPaths, FileStore], tmp_path: Path
) -> None:
    paths = StreamPaths(str(shutil.copytree(stopped[0].root, tmp_path / "stream")))
    identity = Identity(STREAM_ID, 5, {"name": "S", "subjects": ["s.>"]}, 3)
    write_identity(Disk(), paths, identity)
    data = Path(paths.config).read_bytes()
    body, digits = data[: data.rindex(b"}") + 1], data[-17:-1]
    assert data == body + b"\nxxh64 " + digits + b"\n"
    assert int(digits, 16) == xxhash.xxh64_intdigest(body) and digits == digits.lower()
    assert set(json.loads(body)) == set(re.findall(r"`([a-z_]+)`", part("config.json").split("Keys:")[1]))
    assert "from its `{` to its `}`" in part("config.json")
    assert decode_identity(data, paths.config) == identity


def test_the_checksum_of_the_small_files_is_of_the_line_without_its_line_feed(
    stopped: tuple[StreamPaths, FileStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checked(Disk(), str(tmp_path / "ADOPT"), {"query": "q", "batch": 1})
    check_line((tmp_path / "ADOPT").read_bytes())
    paths = StreamPaths(str(shutil.copytree(stopped[0].root, tmp_path / "stream")))
    store = FileStore(paths.root, STREAM_ID, clock=FakeClock())
    seen: list[bytes] = []
    cut = store.truncation.cut_files
    monkeypatch.setattr(
        store.truncation, "cut_files", lambda **how: (seen.append(Path(paths.truncate).read_bytes()), cut(**how))
    )
    store.truncate(1)
    store.stop()
    check_line(seen[0])
    listed = re.search(r"TRUNCATE .*?keys: (.*?)\n        [A-Z]", PAGE, re.S)
    assert listed and set(re.findall(r"`([a-z]+)`", listed[1])) == set(json.loads(seen[0].split(b"\n")[0]))
    assert "the line without its line feed" in re.sub(r"\s+", " ", part("Staged blocks"))


def check_line(data: bytes) -> None:
    line, digits, end = data.split(b"\n")
    assert end == b"" and len(digits) == 16 and digits == digits.lower()
    assert int(digits, 16) == xxhash.xxh64_intdigest(line)


def test_the_header_of_a_consumer_log_is_laid_out_as_the_page_says() -> None:
    data, table = LogHeader(STREAM_ID, 0x0101, 0x0202).encode(), layout("Consumer log")
    check_no_gaps(table)
    assert len(data) == constants.HEADER_SIZE == table["checksum"][0] + 8
    wanted = {
        "magic": ledger_record.LOG_MAGIC, "version": ledger_record.VERSION, "padding": bytes(6), "stream_id": STREAM_ID,
        "file_id": 0x0101, "salt": 0x0202, "reserved": bytes(200), "checksum": xxhash.xxh64_intdigest(data[:248]),
    }  # fmt: skip
    check_fields(data, table, wanted)
    shown = re.search(r"\| 0 \| magic \| 8 bytes \| `([^`]+)` \|", part("Consumer log"))
    assert shown and shown[1].encode().decode("unicode_escape").encode("latin-1") == ledger_record.LOG_MAGIC


def test_the_records_of_a_consumer_log_are_those_of_the_page() -> None:
    kinds = next(row[2] for row in rows(part("Consumer log")) if row[0] == "kind")
    assert {name: int(number) for number, name in re.findall(r"(\d) ([a-z]+)", kinds)} == ledger_record.KINDS
    shown = re.search(r"<!-- example -->\n +([0-9a-f. ]+)\n", part("Consumer log"))
    assert shown
    table = AckTable()
    table.deliver(1, 0, 0)
    table.logged = True
    table.ack(1)
    data = ledger_record.encode_record(ledger_record.NOTE, 3, 5, table.changes(), 1)
    cells = shown[1].split()
    assert [f"{byte:02x}" for byte in data[:-8]] == cells[:-8] and cells[-8:] == [".."] * 8 and len(cells) == len(data)
    assert data[-8:] == xxhash.xxh64_intdigest(data[:-8], 1).to_bytes(8, "little")


def test_the_changes_of_a_consumer_are_those_of_the_page() -> None:
    text = part("Consumer state")
    plain = {name: int(kind) for name, kind in re.findall(r"^    (\w+) +:= n<<2\|(\d)", text, re.M)}
    others = {name: int(kind) for name, kind in re.findall(r"^    (\w+) +:= (\d)<<2\|3", text, re.M)}
    assert plain == {name.lower(): getattr(ack_table, name) for name in ("ACK", "DELIVER", "ACK_RUN")}
    names = ("TIME", "REDELIVER", "DEADLINE", "ACK_ALL", "GIVE_UP", "DROP", "PURGE", "REWIND")
    assert others == {name.lower(): getattr(ack_table, name) for name in names}
    assert f"A run is at most {ack_table.RUN_MAX:,} messages long" in text
