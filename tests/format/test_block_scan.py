"""BlockScan: what a walk over a block finds, in both halves, damaged blocks first. Behaviours R2, R3, B11."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.format import block_scan as compiled
from penstock.format.record import encode_control, encode_message
from twins import block_scan as reference
from twins.varint import write_varint

both_halves = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])
SKIP, DELETE, ERASE, FLOOR = 1, 2, 3, 4
BASE = {"base_seq": 10, "base_time": 1000, "salt": 0xFEED_FACE_CAFE_F00D}
SEQ_STOP = 2**63 - 1


def message(seq: int, payload: bytes = b"payload", subject: bytes = b"a.b", headers: bytes | None = None) -> bytes:
    return encode_message(seq, 1000 + seq, subject, headers, payload, **BASE)


def control(kind: int, seq: int, value: int = 0, ranges: list[tuple[int, int]] | None = None) -> bytes:
    return encode_control(kind, 0, seq, 1000 + seq, value, ranges or [], **BASE)


def scan(kernel: ModuleType, data: bytes, start: int = 0, stop: int | None = None, **options: int) -> Any:
    return kernel.scan_block(data, start, len(data) if stop is None else stop, **{**BASE, **options})


def told(found: Any) -> tuple[Any, ...]:
    """All that a scan tells."""
    return (
        found.messages(), found.control_spans(), found.damaged(), found.stop, found.torn, bool(found.is_newer),
        found.last_checksum, found.count, found.control_count, found.damage_count,
    )  # fmt: skip


def seqs(found: Any) -> list[int]:
    return [one[2] for one in found.messages()]


def sealed(body: bytes) -> bytes:
    data = write_varint(len(body) + 8) + body
    return data + xxhash.xxh64_intdigest(data, BASE["salt"]).to_bytes(8, "little")


def offsets(parts: list[bytes], start: int = 0) -> list[int]:
    found = []
    for part in parts:
        found.append(start)
        start += len(part)
    return found


# Damage.


@both_halves
@pytest.mark.parametrize("victim", range(6))
def test_one_flipped_bit_costs_one_record(kernel: ModuleType, victim: int) -> None:
    parts = [message(10 + n, bytes([n]) * (5 * n)) for n in range(6)]
    places = offsets(parts)
    rng = random.Random(victim)
    for _ in range(12):
        data = bytearray(b"".join(parts))
        at = places[victim] + rng.randrange(len(parts[victim]))
        data[at] ^= 1 << rng.randrange(8)
        found = scan(kernel, bytes(data))
        assert seqs(found) == [10 + n for n in range(6) if n != victim]
        if victim < 5:
            assert found.damaged() == [(places[victim], len(parts[victim]))]
            assert (found.torn, found.stop) == (0, len(data))
        else:
            assert found.damaged() == []
            assert (found.stop, found.torn) == (places[5], len(parts[5]))


@both_halves
def test_every_cut_keeps_every_whole_record_and_says_what_is_torn(kernel: ModuleType) -> None:
    parts = [message(10), message(11, b""), control(SKIP, 12, 3), message(15, b"x" * 30), control(FLOOR, 16, 11)]
    data, places = b"".join(parts), [*offsets(parts), len(b"".join(parts))]
    for size in range(len(data) + 1):
        found = scan(kernel, data[:size])
        whole = max(place for place in places if place <= size)
        tail = data[whole:size]
        assert (found.stop, found.torn) == (whole, len(tail))
        assert found.damaged() == []
        assert found.count + found.control_count == places.index(whole)


@both_halves
@pytest.mark.parametrize("zeros", [1, 7, 8, 4096])
def test_zeros_at_the_end_are_room_and_no_damage(kernel: ModuleType, zeros: int) -> None:
    data = message(10) + message(11)
    found = scan(kernel, data + bytes(zeros))
    assert (seqs(found), found.stop, found.torn, found.damaged()) == ([10, 11], len(data), 0, [])
    found = scan(kernel, data + bytes(zeros) + b"\x01")
    assert (found.stop, found.torn) == (len(data), zeros + 1)


@both_halves
def test_zeros_between_records_are_one_damaged_range(kernel: ModuleType) -> None:
    """A page that was never written, with later ones behind it."""
    first, last = message(10), message(20)
    found = scan(kernel, first + bytes(100) + last)
    assert (seqs(found), found.damaged(), found.torn) == ([10, 20], [(len(first), 100)], 0)


@both_halves
def test_a_payload_that_looks_like_a_record_is_never_taken_for_one(kernel: ModuleType) -> None:
    """Another block's record, this block's own record from further back, or one from beyond its end, inside a
    damaged message."""
    foreign = encode_message(13, 5, b"evil", None, b"", base_seq=10, base_time=1000, salt=BASE["salt"] ^ 1)
    falling = encode_message(11, 5, b"evil", None, b"", **BASE)
    beyond = encode_message(99, 5, b"evil", None, b"", **BASE)
    for inner in (foreign, falling, foreign + falling, falling * 3, beyond):
        parts = [message(10), message(11), message(12, b"..." + inner + b"..."), message(13)]
        data = bytearray(b"".join(parts))
        assert seqs(scan(kernel, bytes(data), seq_stop=50)) == [10, 11, 12, 13]
        place = offsets(parts)[2]
        for at in (place, place + 1, place + 6, place + len(parts[2]) - 1):
            damaged = bytearray(data)
            damaged[at] ^= 0x11
            found = scan(kernel, bytes(damaged), seq_stop=50)
            assert seqs(found) == [10, 11, 13], at
            assert found.damaged() == [(place, len(parts[2]))]


@both_halves
def test_a_record_whose_sequence_falls_is_damage(kernel: ModuleType) -> None:
    parts = [message(10), message(12), message(11), message(12), message(13)]
    found = scan(kernel, b"".join(parts))
    assert seqs(found) == [10, 12, 13]
    assert found.damaged() == [(offsets(parts)[2], len(parts[2]) + len(parts[3]))]


@both_halves
def test_a_control_record_may_repeat_the_next_sequence(kernel: ModuleType) -> None:
    parts = [
        message(10),
        control(DELETE, 11, 0, [(10, 11)]),
        control(FLOOR, 11, 10),
        message(11),
        control(ERASE, 12, 11),
    ]
    found = scan(kernel, b"".join(parts))
    assert seqs(found) == [10, 11]
    assert found.control_spans() == [(at, len(parts[n])) for n, at in enumerate(offsets(parts)) if n in (1, 2, 4)]
    assert found.damaged() == []


@both_halves
def test_nothing_from_inside_a_skipped_range_counts(kernel: ModuleType) -> None:
    parts = [message(10), control(SKIP, 11, 5), message(13), message(16)]
    found = scan(kernel, b"".join(parts))
    assert seqs(found) == [10, 16]
    assert found.damaged() == [(offsets(parts)[2], len(parts[2]))]


@both_halves
@pytest.mark.parametrize("count", [2**63 - 1, 2**63, 2**64 - 1])
def test_a_skip_that_would_pass_the_last_sequence_is_damage_and_takes_nothing(kernel: ModuleType, count: int) -> None:
    record = control(SKIP, 11, count)
    found = scan(kernel, record + message(12))
    assert seqs(found) == [12] and [size for _, size in found.damaged()] == [len(record)]


@both_halves
def test_a_message_that_no_writer_has_written_is_damage(kernel: ModuleType) -> None:
    """Without a subject, or so far from the block's base that rows cannot tell it."""
    for odd in (message(11, b"x", b""), message(2**32 + 100)):
        found = scan(kernel, message(10) + odd + message(12))
        assert seqs(found) == [10, 12] and [size for _, size in found.damaged()] == [len(odd)]


@both_halves
@pytest.mark.parametrize("reason", [13, 255])
def test_a_reason_that_is_not_known_is_a_newer_versions(kernel: ModuleType, reason: int) -> None:
    newer = sealed(bytes([FLOOR]) + b"\x0b\x00" + bytes([reason]) + b"\x01")
    assert scan(kernel, message(10) + newer + message(12)).is_newer


@both_halves
@pytest.mark.parametrize("flags", [5, 6, 7, 0x80])
def test_a_newer_kind_is_told_and_ends_the_walk(kernel: ModuleType, flags: int) -> None:
    newer = sealed(bytes([flags]) + b"\x01\x02\x01abc")
    found = scan(kernel, message(10) + newer + message(12))
    assert found.is_newer
    assert seqs(found) == [10]
    assert not scan(kernel, message(10) + message(12)).is_newer


@both_halves
def test_a_block_ends_at_the_sequence_where_the_next_one_begins(kernel: ModuleType) -> None:
    parts = [message(10), message(11), control(FLOOR, 12, 11), message(12), message(13)]
    data = b"".join(parts)
    found = scan(kernel, data, seq_stop=12)
    assert seqs(found) == [10, 11]
    assert found.control_count == 1, (
        "the floor names the next sequence to be given out, which is the next block's first"
    )
    assert found.stop == offsets(parts)[3]
    assert seqs(scan(kernel, data, seq_min=12)) == [12, 13]
    assert seqs(scan(kernel, data, seq_stop=0)) == []


@both_halves
def test_bytes_outside_the_bounds_are_never_looked_at(kernel: ModuleType) -> None:
    data = message(10) + message(11) + message(12)
    one = len(message(10))
    assert seqs(scan(kernel, data, one, 2 * one)) == [11]
    found = scan(kernel, data, one, 2 * one + 3)
    assert (seqs(found), found.torn) == ([11], 3)
    found = scan(kernel, data, one, one)
    assert (found.count, found.stop, found.torn) == (0, one, 0)
    for start, stop in ((-1, 3), (4, 3), (0, len(data) + 1)):
        with pytest.raises(ValueError, match="inside"):
            scan(kernel, data, start, stop)


def test_an_empty_buffer_holds_nothing() -> None:
    assert told(scan(compiled, b"")) == told(scan(reference, b""))
    assert scan(compiled, b"").count == 0


# Properties.


@st.composite
def blocks(draw: st.DrawFn) -> list[bytes]:
    """The records of a block as a writer makes them."""
    parts, seq = [], 10
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["message", "message", "message", "skip", "delete", "erase", "floor"]))
        if kind == "message":
            seq += draw(st.sampled_from([0, 0, 0, 3]))
            headers = draw(st.none() | st.binary(max_size=10))
            parts.append(message(seq, draw(st.binary(max_size=40)), b"s" * draw(st.integers(1, 5)), headers))
            seq += 1
        elif kind == "skip":
            count = draw(st.integers(1, 4))
            parts.append(control(SKIP, seq, count))
            seq += count
        elif kind == "delete":
            parts.append(control(DELETE, seq, 0, [(1, 3), (5, 6)]))
        else:
            parts.append(control(ERASE if kind == "erase" else FLOOR, seq, draw(st.integers(0, seq))))
    return parts


@given(parts=blocks(), data=st.data())
@settings(max_examples=80, deadline=None)
def test_damage_to_some_records_loses_no_other(parts: list[bytes], data: st.DataObject) -> None:
    """And both halves tell the same of it, byte by byte."""
    victims = data.draw(st.sets(st.integers(0, len(parts) - 1)))
    places, block = offsets(parts), bytearray(b"".join(parts))
    for victim in victims:
        block[places[victim] + data.draw(st.integers(0, len(parts[victim]) - 1))] ^= data.draw(st.integers(1, 255))
    found = scan(compiled, bytes(block))
    assert told(found) == told(scan(reference, bytes(block)))
    whole = {place for n, place in enumerate(places) if n not in victims}
    assert {one[0] for one in found.messages()} | {one[0] for one in found.control_spans()} == whole
    covered = sum(one[1] for one in found.messages()) + sum(one[1] for one in found.control_spans())
    covered += sum(size for _, size in found.damaged()) + found.torn
    assert covered == len(block), "every byte is a record's, damaged or torn"


@given(data=st.binary(max_size=300), salt=st.integers(1, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_arbitrary_bytes_never_crash_and_hold_nothing(data: bytes, salt: int) -> None:
    found = scan(compiled, data, salt=salt)
    assert told(found) == told(scan(reference, data, salt=salt))
    assert (found.count, found.control_count, found.damage_count, found.stop) == (0, 0, 0, 0)
    assert found.torn in (0, len(data))


@given(parts=blocks(), junk=st.binary(max_size=60), data=st.data())
@settings(max_examples=60, deadline=None)
def test_junk_put_between_records_is_one_damaged_range(parts: list[bytes], junk: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(parts)))
    block = b"".join(parts[:at]) + junk + b"".join(parts[at:])
    found = scan(compiled, block)
    assert told(found) == told(scan(reference, block))
    assert found.count + found.control_count == len(parts)
    before = len(b"".join(parts[:at]))
    assert found.damaged() == ([(before, len(junk))] if junk and at < len(parts) else [])


@given(parts=blocks())
@settings(max_examples=40, deadline=None)
def test_the_checksum_of_the_last_record_is_known(parts: list[bytes]) -> None:
    assert scan(compiled, b"".join(parts)).last_checksum == int.from_bytes(parts[-1][-8:], "little")


def test_a_large_block_of_garbage_is_passed_in_time() -> None:
    """Looking for the next whole record hashes little of what is no record."""
    rng = random.Random(5)
    data = message(10) + rng.randbytes(1 << 20) + message(11)
    found = scan(compiled, data, seq_stop=50)
    assert seqs(found) == [10, 11]
