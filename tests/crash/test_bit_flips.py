"""Damage to a store that nobody is writing: flipped bits; cut, missing, empty, older, foreign and newer files.

At most the damaged record is lost; no wrong byte is ever returned; a damaged delete may restore only its own targets;
the report names the file; the next append works. `N=` sets the flips in all (default 4,000; from 20,000 on every
truncation length is tried too).
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.base.xxh64 import xxh64_of
from penstock.errors import NewerFormat, StoreError
from penstock.format.block_header import BlockHeader, decode_front
from penstock.format.block_scan import scan_block
from penstock.format.constants import HEADER_SIZE, HEADER_STRIDE, KINDS, RECORDS_START
from penstock.format.record import decode
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from support.crash_cases import (
    Content,
    Driver,
    campaign_size,
    check_counters,
    check_goes_on,
    chunk_seed,
    contents,
    open_store,
    opened,
)

pytestmark = pytest.mark.campaign
FLIPS = campaign_size(4_000)
CHUNKS = 16
LIMITS = Limits(block_size=900)
Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Span:
    """A record in a block file, and the messages that its damage may lose or restore."""

    start: int
    stop: int
    seq: int = 0  # of a message
    targets: frozenset[int] = frozenset()  # of a control record


@dataclass(slots=True)
class Base:
    """A store at rest: its files, its messages, all messages it ever held, and its files at earlier moments."""

    files: Files
    live: dict[int, Content]
    last_seq: int
    published: dict[int, Content]
    older: list[Files]
    erased: set[int]
    spans: dict[str, list[Span]] = field(default_factory=dict)

    def hurt(self, name: str, start: int, stop: int) -> tuple[set[int], set[int]]:
        """Which messages damage to bytes [start, stop) of a file may lose, and which it may restore."""
        hit = [span for span in self.spans.get(name, ()) if span.start < stop and start < span.stop]
        return {span.seq for span in hit}, {seq for span in hit for seq in span.targets}


def read_files(path: Path) -> Files:
    return {str(one.relative_to(path)): one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file()}


def write_files(path: Path, files: Files) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path / "blocks", 0o700)
    for name, data in files.items():
        with open(path / name, "wb") as file:
            file.write(data)


def read_spans(data: bytes) -> list[Span]:
    header = decode_front(data[:RECORDS_START], "")
    assert header is not None
    bases = {"base_seq": header.base_seq, "base_time": header.base_time, "salt": header.salt}
    scan = scan_block(data, RECORDS_START, len(data), seq_min=header.first_seq, **bases)
    assert not scan.damaged() and not scan.torn
    spans = [Span(offset, offset + size, seq) for offset, size, seq, _, _ in scan.messages()]
    for offset, size in scan.control_spans():
        record = decode(data, offset, **bases)
        kind, value, targets = KINDS[record["kind"]], record["value"], set()
        if kind == "delete":
            targets = {seq for start, stop in record["ranges"] for seq in range(start, stop)}
        elif kind == "floor":
            targets = set(range(1, value))
        elif kind == "erase":
            targets = {value}
        spans.append(Span(offset, offset + size, 0, frozenset(targets)))
    return sorted(spans, key=lambda span: span.start)


@functools.cache
def make_base(kind: str) -> Base:
    """`stopped` cleanly, or `killed` with an open HEAD, an older checkpoint and a block that continues."""
    path = Path("/dev/shm" if os.path.isdir("/dev/shm") else "/tmp") / f"penstock-flips-{os.getpid()}-{kind}"
    older: list[Files] = []
    steps: list[int] = []

    def look(number: int) -> None:
        steps.append(number)
        if len(steps) % 3 == 0:
            older.append(read_files(path))

    driver = Driver(path, "disk", LIMITS, 7, on_step=look)
    try:
        driver.open()
        for _ in range(3):
            driver.append(4)
            driver.remove()
        driver.skip()
        driver.append(3)
        driver.erase()
        driver.checkpoint()
        driver.append(4)
        driver.remove_many()
        driver.compact()
        driver.reopen()
        driver.append(5)
        driver.erase()
        driver.purge_subject()
        driver.append(6)
        driver.remove()
        driver.append(2)
        if kind == "stopped":
            driver.stop()
        driver.close()
        files = read_files(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
    published = {seq: one for state in driver.states for seq, one in state.published.items()}
    erased = {int(state.what.split()[1]) for state in driver.states if state.what.startswith("erase")}
    base = Base(files, driver.live, driver.last_seq, published, older, erased)
    base.spans = {name: read_spans(data) for name, data in files.items() if name.endswith(".blk")}
    assert len(base.spans) >= 4 and len(base.live) >= 10
    return base


KINDS_OF_BASE = ("stopped", "killed")


@contextmanager
def damaged(scratch: Path, files: Files) -> Iterator[FileStore]:
    write_files(scratch / "stream", files)
    with opened(scratch / "stream", "disk", LIMITS) as store:
        yield store


def check_damage(
    base: Base, store: FileStore, may_cost: set[int], may_return: set[int], name: str
) -> dict[int, Content]:
    """Only the permitted messages are missing or restored, every byte is right, and the report names the place."""
    live = contents(store)
    missing = base.live.keys() - live.keys()
    back = live.keys() - base.live.keys()
    assert missing <= may_cost, f"lost too: {sorted(missing - may_cost)}"
    assert back <= may_return, f"back: {sorted(back - may_return)}"
    wrong = [seq for seq, one in live.items() if base.published[seq] != one]
    assert not wrong, f"wrong bytes: {wrong}"
    if missing or back:
        told = [str(one) for one in store.report.findings]
        assert any(name in text for text in told), f"the report does not name {name}: {told}"
    assert store.fast_state().last_seq >= base.last_seq
    # An erased message whose records are gone is still counted, until its block is read.
    assert 0 <= store.fast_state().messages - len(live) <= len(missing) + len(base.erased & may_return)
    return live


def check_append(base: Base, store: FileStore) -> None:
    seq = store.store("after", b"after")
    assert seq > base.last_seq
    assert store.load(seq).data == b"after"


# --------------------------------------------------------------------------------------------------------------- flips


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_flipped_bit_costs_at_most_its_record(scratch: Path, chunk: int) -> None:
    rng = random.Random(chunk_seed("flips", chunk))
    base = make_base(KINDS_OF_BASE[chunk % 2])
    blocks = sorted(base.spans)
    others = sorted(base.files.keys() - base.spans.keys())
    for number in range(-(-FLIPS // CHUNKS)):
        name = rng.choice(blocks) if rng.random() < 0.7 else rng.choice(others)
        data = bytearray(base.files[name])
        low = RECORDS_START if name in base.spans and rng.random() < 0.85 and len(data) > RECORDS_START else 0
        at, bit = rng.randrange(low, len(data)), rng.randrange(8)
        data[at] ^= 1 << bit
        try:
            with damaged(scratch, base.files | {name: bytes(data)}) as store:
                check_damage(base, store, *base.hurt(name, at, at + 1), name)
                if number % 5 == 0:
                    check_append(base, store)
        except BaseException as error:
            error.add_note(f"{KINDS_OF_BASE[chunk % 2]} store, {name}, byte {at}, bit {bit}")
            raise


@pytest.mark.parametrize("chunk", range(4))
def test_garbage_in_several_files_opens_too(scratch: Path, chunk: int) -> None:
    """Runs of random bytes in a block, its summary and the checkpoint at once."""
    rng = random.Random(chunk_seed("garbage", chunk))
    base = make_base(KINDS_OF_BASE[chunk % 2])
    for _ in range(max(FLIPS // 200, 10)):
        files = dict(base.files)
        name = rng.choice(sorted(base.spans))
        cost, back, done = set[int](), set[int](), []
        for victim in {name, name.replace(".blk", ".sum"), "CHECKPOINT"} & files.keys():
            data = bytearray(files[victim])
            size = rng.randrange(1, 200)
            low = RECORDS_START if victim == name and len(data) > RECORDS_START + size else 0
            at = rng.randrange(low, max(len(data) - size, low + 1))
            data[at : at + size] = rng.randbytes(size)[: len(data) - at]
            files[victim] = bytes(data)
            done.append((victim, at, size))
            lost, returned = base.hurt(victim, at, at + size)
            cost, back = cost | lost, back | returned
        try:
            with damaged(scratch, files) as store:
                live = check_damage(base, store, cost, back, name)
                check_append(base, store)
                store.stop()
            with opened(scratch / "stream", "disk", LIMITS) as store:
                assert contents(store).keys() - {base.last_seq + 1} >= live.keys() - {base.last_seq + 1}
        except BaseException as error:
            error.add_note(f"{KINDS_OF_BASE[chunk % 2]} store: {done}")
            raise


# --------------------------------------------------------------------------------------------------------- whole files


@pytest.mark.parametrize("kind", KINDS_OF_BASE)
@pytest.mark.parametrize("part", range(4))
def test_a_file_may_be_cut_at_any_byte(scratch: Path, kind: str, part: int) -> None:
    """Every length of every file: messages before the cut are there, the others are reported."""
    base = make_base(kind)
    cases = [(name, size) for name in sorted(base.files) for size in lengths(base, name)]
    for name, size in cases[part::4]:
        data = base.files[name]
        try:
            with damaged(scratch, base.files | {name: data[:size]}) as store:
                cost, back = base.hurt(name, size, len(data))
                if name in base.spans and size < RECORDS_START:
                    cost, back = base.hurt(name, 0, len(data))
                check_damage(base, store, cost, back, "stream" if is_last(base, name) else name)
                if size % 7 == 0:
                    check_append(base, store)
        except BaseException as error:
            error.add_note(f"{kind} store, {name} cut to {size} of {len(data)}")
            raise


def is_last(base: Base, name: str) -> bool:
    return name == max(base.spans)


def lengths(base: Base, name: str) -> list[int]:
    """All lengths, except that of block headers, which are mostly zeros, only some are tried."""
    size = len(base.files[name])
    if FLIPS >= 20_000:
        return list(range(size))
    if name not in base.spans:
        return list(range(0, size, max(size // 60, 1)))
    edges = {0, 1, 8, HEADER_SIZE - 1, HEADER_SIZE, HEADER_STRIDE - 1, HEADER_STRIDE, HEADER_STRIDE + HEADER_SIZE - 1}
    return sorted(edges | set(range(0, RECORDS_START, 997)) | set(range(RECORDS_START - 2, size, 3)))


@pytest.mark.parametrize("kind", KINDS_OF_BASE)
@pytest.mark.parametrize("how", ["missing", "empty", "zeros"])
def test_a_file_may_be_missing_or_empty(scratch: Path, kind: str, how: str) -> None:
    """A missing block loses its messages, and is reported; any other file costs nothing."""
    base = make_base(kind)
    for name, data in base.files.items():
        files = dict(base.files)
        del files[name]
        if how != "missing":
            files[name] = bytes(len(data)) if how == "zeros" else b""
        try:
            with damaged(scratch, files) as store:
                live = check_damage(base, store, *base.hurt(name, 0, len(data)), "stream")
                lost = base.live.keys() - live.keys()
                told = {seq for start, stop in store.report.lost for seq in range(start, stop)}
                assert lost <= told, f"gone without a word: {sorted(lost - told)}"
                if not base.hurt(name, 0, len(data))[1] & base.erased:
                    # An erased message whose records are gone is still counted, until its block is read.
                    check_counters(store, live)
                    check_goes_on(scratch / "stream", "disk", LIMITS, store, live)
        except BaseException as error:
            error.add_note(f"{kind} store, {name} {how}")
            raise


@pytest.mark.parametrize("kind", KINDS_OF_BASE)
def test_a_file_may_be_an_older_copy_of_itself(scratch: Path, kind: str) -> None:
    """An older block lacks the later messages; an older summary, checkpoint or HEAD costs nothing."""
    base = make_base(kind)
    for number, older in enumerate(base.older):
        for name in sorted(base.files.keys() & older.keys()):
            if older[name] == base.files[name]:
                continue
            pairs = zip(older[name], base.files[name], strict=False)
            alike = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))  # zeros may follow then
            cost, back = base.hurt(name, alike, len(base.files[name]))
            try:
                with damaged(scratch, base.files | {name: older[name]}) as store:
                    check_damage(base, store, cost, back, "stream")
                    check_append(base, store)
            except BaseException as error:
                error.add_note(f"{kind} store, {name} as of copy {number}")
                raise


def test_a_whole_older_directory_opens(scratch: Path) -> None:
    """A backup of a running store, taken between two commits."""
    base = make_base("killed")
    for files in base.older:
        with damaged(scratch, files) as store:
            live = contents(store)
            assert all(base.published[seq] == one for seq, one in live.items())
            check_goes_on(scratch / "stream", "disk", LIMITS, store, live)


# ------------------------------------------------------------------------------------------------------- foreign files


def test_a_foreign_file_is_left_alone(scratch: Path) -> None:
    base = make_base("stopped")
    notes = {"blocks/notes.txt": b"remember the milk", "README": b"mine"}
    with damaged(scratch, base.files | notes) as store:
        check_damage(base, store, set(), set(), "")
        assert any("notes.txt" in one.path for one in store.report.findings)
        store.stop()
    for name, data in notes.items():
        assert (scratch / "stream" / name).read_bytes() == data


@pytest.mark.parametrize("what", ["garbage", "another stream's", "another block's"])
def test_a_block_that_is_not_ours_is_set_aside(scratch: Path, what: str) -> None:
    base = make_base("stopped")
    first = min(base.spans)
    data = {
        "garbage": random.Random(1).randbytes(9000),
        "another stream's": BlockHeader(b"x" * 16, 99, 0, 1, 1, 0, 5).encode_front() + b"records",
        "another block's": base.files[first],
    }[what]
    with damaged(scratch, base.files | {"blocks/000099.blk": data}) as store:
        check_damage(base, store, set(), set(), "")
        assert any(one.kind == "set aside" and "000099" in one.path for one in store.report.findings)
        check_append(base, store)
        store.stop()
    assert (scratch / "stream/blocks/000099.blk.damaged").read_bytes() == data
    with opened(scratch / "stream", "disk", LIMITS) as store:
        assert store.report.is_clean
        assert contents(store).items() >= base.live.items()


def newer_header(data: bytes) -> bytes:
    body = bytearray(data[: HEADER_SIZE - 8])
    struct.pack_into("<H", body, 8, 2)
    copy = bytes(body) + struct.pack("<Q", xxh64_of(bytes(body)))
    return copy + data[HEADER_SIZE:HEADER_STRIDE] + copy + data[HEADER_STRIDE + HEADER_SIZE :]


def newer_record(data: bytes) -> bytes:
    """A valid record of an unknown kind at the end."""
    header = decode_front(data[:RECORDS_START], "")
    assert header is not None
    last = read_spans(data)[-1]
    record = bytearray(data[last.start : last.stop])
    body = 1 + (record[0] >= 0x80)
    record[body] = record[body] & ~7 | 5
    record[-8:] = struct.pack("<Q", xxh64_of(bytes(record[:-8]), header.salt))
    return data + bytes(record)


@pytest.mark.parametrize("change", [newer_header, newer_record])
def test_a_block_of_a_newer_version_is_refused_and_untouched(scratch: Path, change: Callable[[bytes], bytes]) -> None:
    base = make_base("killed")
    name = max(base.spans)
    files = base.files | {name: change(base.files[name])}
    write_files(scratch / "stream", files)
    with pytest.raises(NewerFormat, match="newer"):
        open_store(scratch / "stream", "disk", LIMITS)
    assert read_files(scratch / "stream") == files


@pytest.mark.parametrize("name", ["CHECKPOINT", "HEAD", "blocks/000001.blk", "blocks/000001.sum", "blocks"])
def test_a_directory_in_the_place_of_a_file_loses_nothing(scratch: Path, name: str) -> None:
    """Or a file in place of the directory: the open is refused with an error that names it, or works without it."""
    base = make_base("stopped")
    path = scratch / "stream" / name
    write_files(scratch / "stream", base.files)
    aside = scratch / "aside"
    path.rename(aside)
    if name == "blocks":
        path.write_bytes(b"a file")
    else:
        path.mkdir()
    try:
        with opened(scratch / "stream", "disk", LIMITS) as store:
            cost, back = base.hurt(name, 0, 1 << 30)
            check_damage(base, store, cost, back, "stream")
            store.stop()
    except (OSError, StoreError) as error:
        assert str(scratch) in str(error), f"it names no file: {error!r}"
    for one in list(path.parent.iterdir()):
        if one.name.startswith(path.name):
            one.unlink() if one.is_file() else one.rmdir()
    aside.rename(path)
    with opened(scratch / "stream", "disk", LIMITS) as store:
        assert contents(store).items() >= base.live.items()


def test_the_id_of_another_stream_opens_nothing_and_breaks_nothing(scratch: Path) -> None:
    """A directory opened as the wrong stream: its blocks are set aside unchanged, under a new name."""
    base = make_base("stopped")
    write_files(scratch / "stream", base.files)
    store = FileStore(scratch / "stream", bytes(16), limits=LIMITS, durability="disk")
    assert contents(store) == {} and not store.report.is_clean
    store.abandon()
    for path in (scratch / "stream" / "blocks").glob("*.damaged"):
        path.rename(path.with_suffix(""))
    with opened(scratch / "stream", "disk", LIMITS) as store:
        assert contents(store) == base.live
