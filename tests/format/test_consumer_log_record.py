"""The records of a consumer log: damage first, then both halves on the same bytes."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.format import consumer_log_record as compiled
from twins import consumer_log_record as reference

both_halves = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])
SALT = 0x1234567890ABCDEF
numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**62 - 1))
records = st.lists(st.tuples(st.integers(1, 4), numbers, numbers, st.binary(max_size=200)), max_size=12)


def told(scan: compiled.ConsumerLogScan | reference.ConsumerLogScan) -> tuple[object, ...]:
    return scan.records, scan.damage, scan.stop, scan.torn, scan.is_newer


def log_of(wanted: list[tuple[int, int, int, bytes]]) -> list[bytes]:
    return [compiled.encode_record(*one, SALT) for one in wanted]


@both_halves
def test_a_damaged_record_costs_itself_alone(kernel: ModuleType) -> None:
    parts = log_of([(1, 7, 1, b"abc"), (2, 7, 2, b"defg"), (2, 8, 3, b"h")])
    at, size = len(parts[0]), len(parts[1])
    for n in range(size):
        data = bytearray(b"".join(parts))
        data[at + n] ^= 0x40
        scan = kernel.scan_records(bytes(data), 0, len(data), SALT)
        assert [one[2] for one in scan.records] == [7, 8]
        assert scan.damage == [(at, size)] and scan.torn == 0


@both_halves
def test_a_log_that_is_cut_ends_at_its_last_whole_record(kernel: ModuleType) -> None:
    parts = log_of([(1, 1, 1, b"x" * 40), (2, 1, 2, b"y" * 130), (3, 1, 3, b"")])
    data, ends = b"".join(parts), [len(b"".join(parts[:n])) for n in range(4)]
    for cut in range(len(data) + 1):
        scan = kernel.scan_records(data[:cut], 0, cut, SALT)
        assert scan.stop == max(end for end in ends if end <= cut) and scan.torn == cut - scan.stop
        assert not scan.damage


@both_halves
def test_room_that_was_never_written_is_no_damage(kernel: ModuleType) -> None:
    data = log_of([(1, 1, 1, b"x")])[0]
    scan = kernel.scan_records(data + bytes(100), 0, len(data) + 100, SALT)
    assert (scan.stop, scan.torn, scan.damage) == (len(data), 0, [])


@both_halves
def test_another_salt_reads_nothing(kernel: ModuleType) -> None:
    data = log_of([(1, 1, 1, b"x")])[0]
    assert not kernel.scan_records(data, 0, len(data), SALT + 1).records


@both_halves
def test_a_kind_of_a_newer_version_is_not_taken_for_damage(kernel: ModuleType) -> None:
    data = compiled.encode_record(5, 1, 1, b"", SALT)
    assert kernel.scan_records(data, 0, len(data), SALT).is_newer


@both_halves
def test_a_put_whose_meta_is_longer_than_itself_is_refused(kernel: ModuleType) -> None:
    assert kernel.split_put(b"\x02abcd") == (b"ab", b"cd")
    for body in (b"", b"\x05abcd", b"\x80", b"\x80\x00"):
        with pytest.raises(ValueError, match="longer than itself"):
            kernel.split_put(body)


def test_a_range_outside_of_the_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="not inside"):
        compiled.scan_records(b"abc", 2, 4, SALT)


@given(records)
def test_both_halves_write_the_same(wanted: list[tuple[int, int, int, bytes]]) -> None:
    assert log_of(wanted) == [reference.encode_record(*one, SALT) for one in wanted]


@given(records, st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 255)), max_size=4), st.binary(max_size=40))
def test_both_halves_read_the_same(
    wanted: list[tuple[int, int, int, bytes]], changes: list[tuple[int, int]], tail: bytes
) -> None:
    data = bytearray(b"".join(log_of(wanted)) + tail)
    for at, value in changes:
        if data:
            data[at % len(data)] = value
    found = compiled.scan_records(bytes(data), 0, len(data), SALT)
    assert told(found) == told(reference.scan_records(bytes(data), 0, len(data), SALT))
    if not changes and not tail:
        assert [one[1:] for one in found.records] == wanted


@both_halves
@pytest.mark.parametrize("number", [2**62, 2**64 - 1])
def test_a_number_after_which_none_can_be_given_out_is_damage(kernel: ModuleType, number: int) -> None:
    good, odd = log_of([(1, 1, 1, b"x")])[0], log_of([(2, number, 1, b""), (2, 1, number, b"")])
    data = odd[0] + odd[1] + good
    scan = kernel.scan_records(data, 0, len(data), SALT)
    assert [one[2] for one in scan.records] == [1] and scan.damage == [(0, len(odd[0]) + len(odd[1]))]
