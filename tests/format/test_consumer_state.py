"""The consumer state's codec: damage first, then both halves on the same states."""

from __future__ import annotations

from dataclasses import astuple, replace
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StoreError
from penstock.format import consumer_state as compiled
from twins import consumer_state as reference
from twins.varint import write_varint
from twins.xxh64 import xxh64_of

both_halves = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])

MAX = 2**64 - 1
EXAMPLE = reference.ConsumerState(5, 14, 3, 10, {12: (4, 1000), 14: (5, 1003)}, {12: 1})


def sealed(body: bytes, magic: bytes = b"PSTKCON\x01") -> bytes:
    """`body` with a magic and a valid checksum: what only a wrong writer could leave."""
    return magic + body + xxh64_of(magic + body).to_bytes(8, "little")


def v(*values: int) -> bytes:
    return b"".join(write_varint(value) for value in values)


@both_halves
@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"", 0, "cut short"),
        (b"PSTKCON\x01" + bytes(7), 15, "cut short"),
        (sealed(v(0, 0, 0, 0, 0, 0), b"PSTKCON\x03"), 0, "version 1 or 2"),
        (sealed(v(0, 0, 1, 1, 1, 1, 2, 0, 0), b"PSTKCON\x02"), 17, "varint"),
        (sealed(v(0, 0, 1, 1, 1, 1, 2, 0, 0, 0, 0), b"PSTKCON\x02"), 18, "bytes after"),
        (sealed(v(0, 9, 0, 0, 0, 1, 0, 1), b"PSTKCON\x02"), 14, "does not rise"),
        (b"PSTKCON\x01" + bytes(14), 14, "checksum differs"),
        (sealed(b""), 8, "varint"),
        (sealed(v(0, 0, 0, 0, 0)), 13, "varint"),
        (sealed(b"\x80\x00" + v(0, 0, 0, 0, 0)), 8, "varint"),
        (sealed(v(MAX, 0, 1, 0, 0, 0)), 19, "passes"),
        (sealed(v(0, MAX, 0, 1, 0, 0)), 20, "passes"),
        (sealed(v(0, 0, 0, 0, 1)), 12, "more items"),
        (sealed(v(0, 0, 0, 0, MAX, 1, 0, 0, 0)), 12, "more items"),
        (sealed(v(0, 0, 0, 0, 1, 0, 0, 0, 0)), 13, "does not rise"),
        (sealed(v(0, 9, 0, 0, 1, MAX, 0, 0, 0)), 13, "passes"),
        (sealed(v(0, 0, 0, 0, 0, 1, 1, 0)), 15, "a count of 0"),
        (sealed(v(0, 0, 0, 0, 0, 1, 0, 1)), 14, "does not rise"),
        (sealed(v(0, 0, 0, 0, 0, 0, 0)), 14, "bytes after"),
    ],
)
def test_bytes_that_are_no_state_are_refused_where_they_are_wrong(
    kernel: ModuleType, data: bytes, offset: int, reason: str
) -> None:
    with pytest.raises(kernel.CorruptConsumerState, match=rf"at byte {offset}: .*{reason}") as raised:
        kernel.decode(data)
    assert raised.value.offset == offset
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, StoreError)


@both_halves
def test_no_cut_and_no_flipped_bit_goes_unseen(kernel: ModuleType) -> None:
    data = kernel.encode(EXAMPLE)
    for size in range(len(data)):
        with pytest.raises(kernel.CorruptConsumerState):
            kernel.decode(data[:size])
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(kernel.CorruptConsumerState):
            kernel.decode(bytes(damaged))


@both_halves
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"delivered_stream_seq": 9}, "ack floor is above"),
        ({"delivered_consumer_seq": 2}, "ack floor is above"),
        ({"pending": {10: (4, 0)}}, "pending 10 is not above"),
        ({"redelivered": {10: 1}}, "redelivered 10 is not above"),
        ({"redelivered": {12: 0}}, "count of 0"),
        ({"redelivered": {0: 1}, "deadlines": {12: 0, 14: 0}}, "redelivered 0 is not above 0"),
        ({"deadlines": {12: 0}}, "deadlines are not those"),
    ],
)
def test_a_state_that_contradicts_itself_is_not_written(
    kernel: ModuleType, change: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        kernel.encode(replace(EXAMPLE, **change))  # type: ignore[arg-type]


@both_halves
@pytest.mark.parametrize(
    "change",
    [
        {"delivered_stream_seq": 2**64},
        {"ack_floor_stream_seq": -1},
        {"pending": {2**64: (1, 0)}},
        {"pending": {12: (-1, 0)}},
        {"pending": {12: (1, 2**63)}},
        {"redelivered": {12: 2**64}},
    ],
)
def test_numbers_that_do_not_fit_are_refused(kernel: ModuleType, change: dict[str, object]) -> None:
    with pytest.raises(OverflowError):
        kernel.encode(replace(EXAMPLE, **change))  # type: ignore[arg-type]


@given(body=st.binary(max_size=40), magic=st.sampled_from((b"", b"PSTKCON\x01", b"PSTKCON\x02")))
def test_any_bytes_decode_alike(body: bytes, magic: bytes) -> None:
    data = sealed(body, magic) if magic else body
    try:
        expected = reference.decode(data)
    except reference.CorruptConsumerState as error:
        with pytest.raises(compiled.CorruptConsumerState) as raised:
            compiled.decode(data)
        assert str(raised.value) == str(error)
    else:
        assert astuple(compiled.decode(data)) == astuple(expected)


@both_halves
def test_the_example_of_the_page(kernel: ModuleType) -> None:
    data = kernel.encode(EXAMPLE)
    assert (
        data.hex(" ") == "50 53 54 4b 43 4f 4e 01 03 0a 02 04 02 02 02 d0 0f 02 02 06 01 02 01 bd 4e 12 69 8c b3 c7 6b"
    )
    assert astuple(kernel.decode(data)) == astuple(EXAMPLE)
    assert astuple(kernel.decode(memoryview(data))) == astuple(EXAMPLE)


@both_halves
def test_the_example_with_deadlines(kernel: ModuleType) -> None:
    state = replace(EXAMPLE, redelivered={2: 3, 12: 1}, deadlines={12: 1500, 14: 1503})
    data = kernel.encode(state)
    assert (
        data.hex(" ")
        == "50 53 54 4b 43 4f 4e 02 03 0a 02 04 02 02 02 d0 0f 02 02 06 02 02 03 0a 01 e8 07 00 c2 01 bb 3b e5 31 26 7e"
    )
    assert astuple(kernel.decode(data)) == astuple(state)


def test_a_pending_message_costs_a_few_bytes() -> None:
    pending = {1000 + n: (500 + n, 1_700_000_000_000_000_000 + n * 20_000) for n in range(10_000)}
    data = compiled.encode(compiled.ConsumerState(10_500, 11_000, 499, 999, pending, {}))
    assert len(data) < 5.1 * len(pending)


SEQS = st.one_of(st.integers(0, 20), st.integers(MAX - 20, MAX), st.integers(0, MAX))
TIMES = st.one_of(st.integers(-10, 10), st.integers(-(2**63), 2**63 - 1))


@st.composite
def states(draw: st.DrawFn) -> reference.ConsumerState:
    floor_consumer, floor_stream = draw(SEQS), draw(SEQS)
    low = min(floor_stream + 1, MAX)
    keys = st.integers(low, min(low + 9, MAX)) | st.integers(low, MAX)
    size = 8 if floor_stream < MAX else 0
    pending = draw(st.dictionaries(keys, st.tuples(SEQS, TIMES), max_size=size))
    has_deadlines = draw(st.booleans())
    if has_deadlines:
        keys, size = st.integers(1, 10) | st.integers(1, MAX), 8
    return reference.ConsumerState(
        draw(st.integers(floor_consumer, MAX)),
        draw(st.integers(floor_stream, MAX)),
        floor_consumer,
        floor_stream,
        pending,
        draw(st.dictionaries(keys, st.integers(1, MAX), max_size=size)),
        {seq: draw(TIMES) for seq in pending} if has_deadlines else None,
    )


@given(state=states())
def test_every_state_comes_back_and_both_halves_write_the_same_bytes(state: reference.ConsumerState) -> None:
    data = reference.encode(state)
    assert compiled.encode(state) == data  # type: ignore[arg-type]
    assert reference.decode(data) == state
    assert astuple(compiled.decode(data)) == astuple(state)
