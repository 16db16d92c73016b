"""Record: both halves on the same inputs, damaged ones first. Behaviours R1-R5."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.format import record as compiled
from twins import record as reference
from twins.varint import read_varint, write_varint, zigzag

both_halves = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])

SKIP, DELETE, ERASE, FLOOR = 1, 2, 3, 4
SEQ_MAX = 2**63 - 1
TIMES = st.one_of(st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]), st.integers(-(2**63), 2**63 - 1))
SEQS = st.one_of(st.integers(0, 300), st.integers(SEQ_MAX - 300, SEQ_MAX), st.integers(0, SEQ_MAX))
SALTS = st.one_of(st.sampled_from([1, 2**64 - 1]), st.integers(1, 2**64 - 1))


@st.composite
def bases(draw: st.DrawFn) -> dict[str, int]:
    return {"base_seq": draw(SEQS), "base_time": draw(TIMES), "salt": draw(SALTS)}


@st.composite
def messages(draw: st.DrawFn, base: dict[str, int]) -> dict[str, Any]:
    return {
        "seq": draw(
            st.integers(base["base_seq"], min(base["base_seq"] + draw(st.sampled_from([0, 300, 2**40])), SEQ_MAX))
        ),
        "time": draw(TIMES),
        "subject": draw(st.binary(max_size=40)),
        "headers": draw(st.none() | st.binary(max_size=150)),
        "payload": draw(st.binary(max_size=200)),
        "has_ttl": draw(st.booleans()),
        "has_msg_id": draw(st.booleans()),
        "erased": draw(st.booleans()),
    }


@st.composite
def controls(draw: st.DrawFn, base: dict[str, int]) -> dict[str, Any]:
    seq = draw(st.integers(base["base_seq"], SEQ_MAX))
    kind = draw(st.sampled_from([SKIP, DELETE, ERASE, FLOOR] if seq < SEQ_MAX else [DELETE, ERASE, FLOOR]))
    ranges, position = [], 0
    for _ in range(draw(st.integers(0, 6)) if kind == DELETE else 0):
        start = position + draw(st.integers(0, 2**20))
        position = start + draw(st.integers(1, 2**20))
        ranges.append((start, position))
    return {
        "kind": kind,
        "reason": draw(st.integers(0, 12)),
        "seq": seq,
        "time": draw(TIMES),
        "value": draw(st.integers(1, SEQ_MAX - seq) if kind == SKIP else st.integers(0, SEQ_MAX)),
        "ranges": ranges,
    }


@st.composite
def records(draw: st.DrawFn) -> tuple[bytes, dict[str, int]]:
    """The bytes of any record, and its base."""
    base = draw(bases())
    if draw(st.booleans()):
        return compiled.encode_message(**draw(messages(base)), **base), base
    return compiled.encode_control(**draw(controls(base)), **base), base


def outcome(kernel: ModuleType, data: bytes, start: int = 0, **base: int) -> Any:
    """What a half makes of some bytes: a record, or the text of its error."""
    try:
        return kernel.decode(data, start, **base)
    except kernel.RecordError as error:
        return str(error)


def sealed(body: bytes, salt: int) -> bytes:
    """A body with a size before it and a right checksum behind it, whatever it says."""
    data = write_varint(len(body) + 8) + body
    return data + xxhash.xxh64_intdigest(data, salt).to_bytes(8, "little")


# Damage.


@both_halves
@given(record=records())
@settings(max_examples=25, deadline=None)
def test_every_truncation_is_found_and_names_the_place(
    kernel: ModuleType, record: tuple[bytes, dict[str, int]]
) -> None:
    data, base = record
    for size in range(len(data)):
        with pytest.raises(kernel.RecordError, match=r"^byte 0: "):
            kernel.decode(data[:size], **base)


@both_halves
@pytest.mark.parametrize("offset", [0, 3])
def test_every_single_bit_flip_is_found(kernel: ModuleType, offset: int) -> None:
    base = {"base_seq": 7, "base_time": 1000, "salt": 0x1234_5678_9ABC_DEF1}
    for data in (
        kernel.encode_message(9, 1003, b"orders.1", b"NATS/1.0\r\nA: b\r\n\r\n", b"payload" * 20, **base),
        kernel.encode_message(7, 1000, b"a", None, b"", **base),
        kernel.encode_control(DELETE, 3, 12, 1010, 0, [(1, 4), (9, 200)], **base),
        kernel.encode_control(SKIP, 0, 12, 1010, 5, **base),
    ):
        padded = bytes(offset) + data + bytes(200)
        assert kernel.decode(padded, offset, **base)["stop"] == offset + len(data)
        for bit in range(len(data) * 8):
            damaged = bytearray(padded)
            damaged[offset + bit // 8] ^= 1 << (bit % 8)
            with pytest.raises(kernel.RecordError, match=f"^byte {offset}: "):
                kernel.decode(bytes(damaged), offset, **base)


@given(record=records(), data=st.data())
@settings(max_examples=80, deadline=None)
def test_a_damaged_record_gives_the_same_error_in_both_halves(
    record: tuple[bytes, dict[str, int]], data: st.DataObject
) -> None:
    raw, base = record
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = damaged[: data.draw(st.integers(1, len(raw)))]
    if bytes(damaged) == raw:
        return
    answer = outcome(compiled, bytes(damaged), **base)
    assert isinstance(answer, str)
    assert answer == outcome(reference, bytes(damaged), **base)


@given(body=st.binary(min_size=3, max_size=60), base=bases())
@settings(max_examples=150, deadline=None)
def test_any_fields_under_a_right_checksum_are_bounded_and_read_alike(body: bytes, base: dict[str, int]) -> None:
    """Lengths that lie behind a checksum that holds: written by a bug, or by someone who knows the salt."""
    data = sealed(body, base["salt"])
    assert outcome(compiled, data, **base) == outcome(reference, data, **base)


@both_halves
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x00\x00\x00\x05abc", "subject passes the end"),
        (b"\x00\x00\x00" + write_varint(2**63) + b"a", "subject of 2^63"),
        (b"\x00\x00\x00" + write_varint(2**64 - 1) + b"a", "subject of 2^64 - 1"),
        (b"\x00\x00\x00" + write_varint(65536) + b"a" * 70000, "subject larger than a subject may be"),
        (b"\x08\x00\x00\x01a\x05hi", "headers pass the end"),
        (b"\x08\x00\x00\x01a" + write_varint(2**63 + 1) + b"hi", "headers of 2^63"),
        (b"\x08\x00\x00\x01a", "no size of headers"),
        (b"\x00" + write_varint(2**63) + b"\x00\x00", "sequence past 2^63"),
        (b"\x00\x80\x00\x00\x01a", "sequence not in shortest form"),
        (b"\x00\x01\x80", "time is cut"),
        (b"\x01\x01\x00", "no reason"),
        (b"\x01\x01\x00\x00", "no count"),
        (b"\x01\x01\x00\x00\x05\x00", "bytes after a skip's count"),
        (b"\x04\x01\x00\x00\x05\x00", "bytes after a floor"),
        (b"\x02\x01\x00\x00\x01\x05\x00", "a range of no length"),
        (b"\x02\x01\x00\x00\x02\x05\x01", "fewer ranges than said"),
        (b"\x02\x01\x00\x00\x01\x05\x01\x01\x01", "more ranges than said"),
        (b"\x02\x01\x00\x00\x01" + write_varint(2**63) + b"\x01", "a range from 2^63"),
        (b"\x02\x01\x00\x00\x01\x05" + write_varint(2**63 - 1), "a range past 2^63"),
        (b"\x02\x01\x00\x00" + write_varint(4097) + b"\x01\x01" * 4097, "more ranges than a record may hold"),
        (b"\x02\x01\x00\x00" + write_varint(2**64 - 1), "2^64 ranges"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_length_that_lies_under_a_right_checksum_is_refused(kernel: ModuleType, body: bytes, why: str) -> None:
    with pytest.raises(kernel.RecordError, match="a length lies"):
        kernel.decode(sealed(body, 5), salt=5)


@both_halves
@pytest.mark.parametrize("size", [0, 1, 10, 64 * 2**20 + 64 * 2**10 + 1, 2**32, 2**63, 2**64 - 1])
def test_a_size_that_no_record_has_is_refused_before_anything_is_read(kernel: ModuleType, size: int) -> None:
    data = write_varint(size) + bytes(64)
    with pytest.raises(kernel.RecordError, match="byte 0: its size lies"):
        kernel.measure(data)
    with pytest.raises(kernel.RecordError, match="a length lies"):
        kernel.decode(data)


@both_halves
@pytest.mark.parametrize("start", [-1, 1, 2**40])
def test_a_place_outside_the_buffer_is_refused(kernel: ModuleType, start: int) -> None:
    for call in (kernel.decode, kernel.measure):
        with pytest.raises(kernel.RecordError, match="outside"):
            call(b"a", start)
        with pytest.raises(kernel.RecordError, match="outside"):
            call(b"", 0)


@both_halves
@pytest.mark.parametrize("flags", [5, 6, 7, 128, 129, 0x88])
def test_a_newer_kind_or_flag_is_told_apart_from_damage(kernel: ModuleType, flags: int) -> None:
    with pytest.raises(kernel.RecordError, match="newer"):
        kernel.decode(sealed(bytes([flags]) + b"\x01\x02\x01abc", 9), salt=9)


@given(data=st.binary(min_size=1, max_size=80), base=bases())
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes_never_make_a_record(data: bytes, base: dict[str, int]) -> None:
    answer = outcome(compiled, data, **base)
    assert isinstance(answer, str)
    assert answer == outcome(reference, data, **base)


def test_another_salt_makes_it_another_record() -> None:
    data = compiled.encode_message(1, 1, b"a", None, b"b", salt=3)
    with pytest.raises(compiled.RecordError):
        compiled.decode(data, salt=4)


# Round trips.


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_a_message_comes_back_as_it_went_in(data: st.DataObject) -> None:
    base = data.draw(bases())
    message = data.draw(messages(base))
    raw = compiled.encode_message(**message, **base)
    assert raw == reference.encode_message(**message, **base)
    found = compiled.decode(b"front" + raw + b"behind", 5, **base)
    assert found == reference.decode(b"front" + raw + b"behind", 5, **base)
    assert found == message | {"kind": 0, "stop": 5 + len(raw), "checksum": int.from_bytes(raw[-8:], "little")}
    assert compiled.measure(raw) == reference.measure(raw) == len(raw)


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_control_record_comes_back_as_it_went_in(data: st.DataObject) -> None:
    base = data.draw(bases())
    control = data.draw(controls(base))
    raw = compiled.encode_control(**control, **base)
    assert raw == reference.encode_control(**control, **base)
    found = compiled.decode(raw, **base)
    assert found == reference.decode(raw, **base)
    assert [found[key] for key in ("kind", "reason", "seq", "time", "stop")] == [
        *(control[key] for key in ("kind", "reason", "seq", "time")),
        len(raw),
    ]
    if control["kind"] == DELETE:
        assert found["ranges"] == control["ranges"] and found["value"] == len(control["ranges"])
    else:
        assert found["value"] == control["value"]


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 5 << 20])
def test_payloads_and_headers_of_every_magnitude_round_trip(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    for headers in (None, b"", payload[: min(size, 65_000)]):
        raw = compiled.encode_message(1, 2, b"a.b", headers, payload[:size], salt=11)
        found = compiled.decode(raw, salt=11)
        assert (found["headers"], found["payload"]) == (headers, payload[:size])


def test_wherever_the_payload_begins_and_ends_in_a_stripe_the_checksum_is_that_of_the_bytes() -> None:
    payload = bytes(range(200))
    for subject_size in range(1, 34):
        for size in range(130):
            raw = compiled.encode_message(1, 2, b"a" * subject_size, None, payload[:size], salt=11)
            assert raw.endswith(payload[:size] + xxhash.xxh64_digest(raw[:-8], 11)[::-1])
    large = bytes(range(251)) * 20
    for size in (*range(4000, 4300), 4999):
        raw = compiled.encode_message(1, 2, b"a" * (size % 34 + 1), None, large[:size], salt=11)
        assert raw.endswith(large[:size] + xxhash.xxh64_digest(raw[:-8], 11)[::-1])


@both_halves
def test_the_largest_parts_are_refused_with_their_limits(kernel: ModuleType) -> None:
    with pytest.raises(kernel.RecordError, match="65535"):
        kernel.encode_message(1, 1, b"a" * 65536, None, b"")
    with pytest.raises(kernel.RecordError, match="at most 4096"):
        kernel.encode_control(DELETE, 0, 1, 1, 0, [(2 * n, 2 * n + 1) for n in range(4097)])
    for ranges in ([(3, 3)], [(5, 4)], [(3, 5), (4, 6)]):
        with pytest.raises(kernel.RecordError, match="ascend"):
            kernel.encode_control(DELETE, 0, 1, 1, 0, ranges)
    with pytest.raises(OverflowError):
        kernel.encode_message(1, 1, b"a", None, b"", base_seq=2)


@both_halves
def test_a_delete_record_holds_4096_ranges(kernel: ModuleType) -> None:
    ranges = [(2 * n, 2 * n + 1) for n in range(4096)]
    assert kernel.decode(kernel.encode_control(DELETE, 1, 9000, 5, 0, ranges, salt=1), salt=1)["ranges"] == ranges


def test_the_record_is_laid_out_as_the_page_says() -> None:
    """Field by field, by hand: neither half decodes here."""
    raw = compiled.encode_message(300, -5, b"a.b", b"H", b"hi", base_seq=2, base_time=10, salt=77, has_ttl=True)
    size, at = read_varint(raw, 0)
    assert size == len(raw) - at
    assert raw[at] == 8 | 32
    seq, at = read_varint(raw, at + 1)
    time, at = read_varint(raw, at)
    assert (seq, time) == (298, zigzag(-15))
    assert raw[at:-8] == b"\x03a.b\x01Hhi"
    assert int.from_bytes(raw[-8:], "little") == xxhash.xxh64_intdigest(raw[:-8], 77)
