"""Offsets and admission against plain models: lists of messages instead of blocks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark.source.offsets import (
    NOT_YET,
    SILENCE_NS,
    BadOffset,
    BatchLimits,
    DataLost,
    Offsets,
    Pace,
    StreamOffset,
    StreamRecreated,
    StreamTruncated,
    admit,
    advance,
    begin_at,
    decode_offsets,
    encode_offsets,
    find_change,
    lost_range,
    range_of,
    share,
)

counts = st.integers(0, 2**40)


# ----------------------------------------------------------------------------------------------------------- the offset


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.builds(
            lambda base, more, epoch, base_epoch, name: StreamOffset(base + more, epoch, base, base_epoch, name),
            counts, counts, st.integers(NOT_YET, 9), st.integers(0, 9), st.text("0123456789abcdef", max_size=32),
        ),
    )
)  # fmt: skip
def test_an_offset_comes_back_from_the_checkpoint_as_it_was(offsets: Offsets) -> None:
    encoded = encode_offsets(offsets)
    assert decode_offsets(json.loads(json.dumps(encoded))) == offsets
    assert encode_offsets(dict(reversed(offsets.items()))) == encoded
    assert list(encoded) == sorted(encoded)


@pytest.mark.parametrize(
    "fields",
    [
        None,
        7,
        {},
        {"partition": 3},
        {"seq": 4, "epoch": 0, "base": 0, "base_epoch": 0, "stream_id": None},
        {"seq": 4, "epoch": 0, "base": 5, "base_epoch": 0, "stream_id": "aa"},
        {"seq": True, "epoch": 0, "base": 0, "base_epoch": 0, "stream_id": "aa"},
        {"seq": 4, "epoch": 0, "base": 0, "base_epoch": 0, "stream_id": "aa", "later": 1},
    ],
)
def test_an_offset_of_another_source_is_refused_with_its_name(fields: object) -> None:
    with pytest.raises(BadOffset, match=r"'/store/S'.*checkpoint directory of its own"):
        decode_offsets({"/store/S": fields})


def test_the_first_batch_begins_where_its_end_says() -> None:
    """After a crash Spark asks again where the query begins; `latest` is somewhere else by then."""
    end = {"S": StreamOffset(seq=90, epoch=0, base=50, base_epoch=0, stream_id="a")}
    for again in ({"S": StreamOffset(200, 0, 200, 0, "a")}, {"S": StreamOffset(50, 0, 50, 0, "a")}, {}):
        assert range_of("S", again, end) == (51, 91)


# ------------------------------------------------------------------------------------------------------------- sharing


@given(st.integers(0, 60), st.dictionaries(st.text(max_size=2), st.integers(0, 20), max_size=6))
def test_a_limit_is_shared_as_if_handed_out_one_by_one(limit: int, wanted: dict[str, int]) -> None:
    model = dict.fromkeys(wanted, 0)
    for _ in range(limit):
        hungry = [key for key in wanted if model[key] < wanted[key]]
        if hungry:
            # To whom has least; among equals to whom wants most.
            model[min(hungry, key=lambda key: (model[key], -wanted[key]))] += 1
    shares = share(limit, wanted)
    assert sorted(shares.values()) == sorted(model.values())
    assert all(shares[key] <= wanted[key] for key in wanted)


@dataclass
class Waiting:
    """A stream's messages as a list of (sequence, size)."""

    low: int
    high: int
    found: list[tuple[int, int]]

    def _left(self) -> list[tuple[int, int]]:
        return [one for one in self.found if self.low < one[0] <= self.high]

    def messages(self) -> int:
        return len(self._left())

    def size(self) -> int:
        return sum(size for _, size in self._left())

    def after_messages(self, count: int) -> int:
        left = self._left()
        return self.high if count >= len(left) else left[count - 1][0]

    def after_size(self, size: int) -> int:
        at, used = self.low, 0
        for seq, one in self._left():
            used += one
            if used > size:
                return at
            at = seq
        return self.high


streams = st.dictionaries(
    st.sampled_from("ABCD"), st.lists(st.tuples(st.integers(1, 3), st.integers(1, 50)), max_size=12), min_size=1
)
limits = st.builds(
    BatchLimits, st.none() | st.integers(1, 20), st.none() | st.integers(1, 200)
)  # fmt: skip


@settings(max_examples=200)
@given(streams, limits)
def test_batches_within_the_limits_take_every_message_once(
    gaps: dict[str, list[tuple[int, int]]], limits: BatchLimits
) -> None:
    found: dict[str, list[tuple[int, int]]] = {}
    for key, steps in gaps.items():
        seq = 0
        found[key] = []
        for gap, size in steps:
            seq += gap
            found[key].append((seq, size))
    lows = dict.fromkeys(found, 0)
    highs = {key: (messages[-1][0] + 2 if messages else 0) for key, messages in found.items()}
    taken: dict[str, list[tuple[int, int]]] = {key: [] for key in found}
    while lows != highs:
        ends = admit({key: Waiting(lows[key], highs[key], found[key]) for key in found}, limits)
        assert ends != lows, "no progress"
        batch = []
        for key, end in ends.items():
            assert lows[key] <= end <= highs[key]
            mine = [one for one in found[key] if lows[key] < one[0] <= end]
            taken[key] += mine
            batch += mine
            lows[key] = end
        if limits.messages is not None:
            assert len(batch) <= limits.messages
        if limits.size is not None:
            assert len(batch) <= 1 or sum(size for _, size in batch) <= limits.size
    assert taken == found


def test_with_a_limit_below_the_number_of_streams_none_waits_for_ever() -> None:
    found = {key: [(seq, 1) for seq in range(1, 11)] for key in "ABC"}
    lows = dict.fromkeys(found, 0)
    for _ in range(30):
        for key, end in admit({k: Waiting(lows[k], 10, found[k]) for k in found}, BatchLimits(messages=1)).items():
            lows[key] = end
        assert max(lows.values()) - min(lows.values()) <= 1
    assert set(lows.values()) == {10}


# --------------------------------------------------------------------------------------------------------------- pacing


def test_a_batch_waits_for_enough_messages_or_the_delay() -> None:
    pace = Pace(100, 5 * SILENCE_NS)
    assert pace.is_due(1, 0), "the first batch of a run never waits"
    pace.went(0)
    assert not pace.is_due(99, 5 * SILENCE_NS - 1)
    assert pace.is_due(100, 1)
    assert pace.is_due(99, 5 * SILENCE_NS)


def test_messages_that_nobody_wants_make_a_batch_once_a_minute() -> None:
    pace = Pace(None, 0)
    pace.went(10)
    assert pace.is_due(1, 10)
    assert not pace.is_due(0, 9 + SILENCE_NS)
    assert pace.is_due(0, 10 + SILENCE_NS)


# ------------------------------------------------------------------------------------- a stream that changes under it


@dataclass
class ModelStream:
    """A stream as the files show it: which sequences live, since when they are gone, which blocks were begun when."""

    stream_id: str = "1"
    epoch: int = 0
    floor: int = 1
    last_seq: int = 0
    label: str = "stream S in /store"
    alive: dict[int, int] = field(default_factory=dict)
    blocks: list[tuple[int, int]] = field(default_factory=list)

    @property
    def first_seq(self) -> int:
        return min(self.alive, default=self.last_seq + 1)

    def rewritten_from(self, epoch: int) -> int | None:
        return min((first for first, begun in self.blocks if begun > epoch), default=None)

    def do(self, op: str, number: int, numbers: list[int]) -> None:
        if op == "append":
            self.blocks.append((self.last_seq + 1, self.epoch))
            for _ in range(number % 5 + 1):
                self.last_seq += 1
                numbers.append(numbers[-1] + 1)
                self.alive[self.last_seq] = numbers[-1]
        elif op == "restart":
            self.epoch += 1
        elif op == "delete" and self.alive:
            del self.alive[sorted(self.alive)[number % len(self.alive)]]
        elif op == "purge":
            self.floor = max(self.floor, min(self.floor + number % 7, self.last_seq + 1))
            self.alive = {seq: one for seq, one in self.alive.items() if seq >= self.floor}
        elif op == "truncate" and self.last_seq:
            cut = number % self.last_seq
            self.alive = {seq: one for seq, one in self.alive.items() if seq <= cut}
            self.blocks = [block for block in self.blocks if block[0] <= cut]
            self.last_seq, self.epoch, self.floor = cut, self.epoch + 1, min(self.floor, cut + 1)
        elif op == "recreate":
            self.__init__(stream_id=str(int(self.stream_id) + 1))  # type: ignore[misc]


operations = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "read", "read", "restart", "delete", "purge", "truncate", "recreate"]),
        st.integers(0, 40),
    ),
    max_size=40,
)


@settings(max_examples=500)
@given(operations)
def test_what_was_taken_from_a_query_is_noticed_and_nothing_else(operations: list[tuple[str, int]]) -> None:
    """The query goes on after each trouble; every message comes to it at most once, and all that it can still get."""
    stream, numbers = ModelStream(), [0]
    offset = begin_at(stream, 0)
    lowest_cut, was_recreated = 2**62, False
    read: list[int] = []
    for op, number in operations:
        if op != "read":
            stream.do(op, number, numbers)
            was_recreated |= op == "recreate"
            if op == "truncate":
                lowest_cut = min(lowest_cut, stream.last_seq)
            continue
        change = find_change(offset, stream)
        if was_recreated:
            assert change is not None and isinstance(change.error, StreamRecreated)
        elif lowest_cut < offset.seq:
            assert change is not None and isinstance(change.error, StreamTruncated)
        elif stream.floor > offset.seq + 1:
            assert change is not None and isinstance(change.error, DataLost)
            assert str(offset.seq + 1) in str(change.error) and str(stream.floor - 1) in str(change.error)
        else:
            assert change is None
        position = change.resume if change else offset
        after = advance(position, stream, stream.last_seq)
        if after.seq > position.seq:  # else Spark keeps the offset that it has
            low, high = range_of("S", {"S": offset}, {"S": after})
            assert (low, high) == (position.seq + 1, stream.last_seq + 1)
            fresh = [one for seq, one in sorted(stream.alive.items()) if low <= seq < high]
            assert not set(fresh) & set(read)
            assert set(fresh) == set(stream.alive.values()) - set(read), "all that is alive and unread"
            read += fresh
            offset, lowest_cut, was_recreated = after, 2**62, False


def test_nothing_changes_in_an_offset_without_data() -> None:
    stream = ModelStream(last_seq=7, epoch=3)
    offset = StreamOffset(7, 1, 0, 0, "1")
    assert advance(offset, stream, 7) is offset
    assert advance(offset, ModelStream(last_seq=9, epoch=3), 9) == StreamOffset(9, 3, 0, 0, "1")


def test_a_query_that_begins_beyond_the_end_waits_for_the_stream() -> None:
    stream = ModelStream(last_seq=7)
    offset = begin_at(stream, 99)
    assert offset.epoch == NOT_YET
    assert find_change(offset, stream) is None
    assert find_change(offset, ModelStream(last_seq=50, epoch=4)) is None


def test_the_lost_range_is_named_with_the_remedy() -> None:
    stream = ModelStream(floor=40, last_seq=100, alive={seq: seq for seq in range(40, 101)})
    error = lost_range(stream, 11, 101)
    assert error is not None
    assert "stream S in /store: messages 11 to 39 are gone" in str(error)
    assert "begins at 40 now" in str(error) and "failOnDataLoss=false" in str(error)
    assert "message 39 is gone" in str(lost_range(stream, 39, 101))
    assert lost_range(stream, 40, 101) is None
    assert "messages 11 to 20 are" in str(lost_range(stream, 11, 21)), "no more than the batch would have read"
