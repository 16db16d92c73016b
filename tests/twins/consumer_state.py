"""The codec of a consumer's state in plain Python. Layout: docs/format.md, "Consumer state"."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import StoreError
from twins.varint import read_varint, unzigzag, write_varint, zigzag
from twins.xxh64 import xxh64_of

MAGIC = b"PSTKCON\x01"
MAGIC_2 = b"PSTKCON\x02"  # with deadlines
SEQ_MAX = 2**64 - 1


class CorruptConsumerState(StoreError, ValueError):
    """Bytes that are no consumer state; `offset` says where."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"consumer state at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


@dataclass(slots=True)
class ConsumerState:
    """How far a consumer is; sequences are those of the stream where not said otherwise."""

    delivered_consumer_seq: int = 0
    delivered_stream_seq: int = 0
    ack_floor_consumer_seq: int = 0
    ack_floor_stream_seq: int = 0
    pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    redelivered: dict[int, int] = field(default_factory=dict)
    deadlines: dict[int, int] | None = None  # of all that are pending, or not known


def _signed(value: int) -> int:
    """`value` modulo 2^64 as a signed number: differences of any two numbers fit, and add up again."""
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value


def encode(state: ConsumerState) -> bytes:
    """The bytes of `state`, version 2 where it has deadlines; ValueError where it contradicts itself."""
    floor_consumer, floor_stream = state.ack_floor_consumer_seq, state.ack_floor_stream_seq
    numbers = [state.delivered_consumer_seq, state.delivered_stream_seq, floor_consumer, floor_stream]
    numbers += [*state.pending, *(seq for seq, _ in state.pending.values())]
    numbers += [*state.redelivered, *state.redelivered.values()]
    if not all(0 <= number <= SEQ_MAX for number in numbers):
        raise OverflowError("a sequence or count does not fit into 64 bits")
    deadlines = state.deadlines
    times = [time_ns for _, time_ns in state.pending.values()] + list((deadlines or {}).values())
    if deadlines is not None and deadlines.keys() != state.pending.keys():
        raise ValueError("the deadlines are not those of the pending messages")
    if not all(-(2**63) <= time_ns < 2**63 for time_ns in times):
        raise OverflowError("a time does not fit into 64 bits")
    if state.delivered_consumer_seq < floor_consumer or state.delivered_stream_seq < floor_stream:
        raise ValueError("the ack floor is above what was delivered")
    out = (MAGIC if deadlines is None else MAGIC_2) + write_varint(floor_consumer) + write_varint(floor_stream)
    out += write_varint(state.delivered_consumer_seq - floor_consumer)
    out += write_varint(state.delivered_stream_seq - floor_stream)
    out += write_varint(len(state.pending))
    before, consumer_before, time_before = floor_stream, floor_consumer, 0
    for seq, (consumer_seq, time_ns) in sorted(state.pending.items()):
        if seq <= before:
            raise ValueError(f"pending {seq} is not above the ack floor {floor_stream}")
        out += write_varint(seq - before)
        out += write_varint(zigzag(_signed(consumer_seq - consumer_before)))
        out += write_varint(zigzag(_signed(time_ns - time_before)))
        before, consumer_before, time_before = seq, consumer_seq, time_ns
    out += write_varint(len(state.redelivered))
    before = floor_stream if deadlines is None else 0
    for seq, count in sorted(state.redelivered.items()):
        if seq <= before:
            floor = f"the ack floor {floor_stream}" if deadlines is None else "0"
            raise ValueError(f"redelivered {seq} is not above {floor}")
        if count == 0:
            raise ValueError(f"redelivered {seq} has a count of 0")
        out += write_varint(seq - before) + write_varint(count)
        before = seq
    wait_before = 0
    for seq, (_, time_ns) in sorted(state.pending.items() if deadlines is not None else ()):
        wait = (deadlines or {})[seq] - time_ns
        out += write_varint(zigzag(_signed(wait - wait_before)))
        wait_before = wait
    return out + xxh64_of(out).to_bytes(8, "little")


class _Reader:
    """The bytes between magic and checksum, read from front to back."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.stop = data, len(MAGIC), len(data) - 8

    def next(self) -> int:
        value, after = read_varint(self.data, self.at, self.stop)
        if after < 0:
            raise CorruptConsumerState(self.at, "no whole varint in its shortest form")
        self.at = after
        return value

    def next_above(self, base: int, least: int) -> int:
        start, more = self.at, self.next()
        if more < least:
            raise CorruptConsumerState(start, "a sequence that does not rise")
        if base + more > SEQ_MAX:
            raise CorruptConsumerState(start, "a sequence passes 2^64 - 1")
        return base + more

    def next_count(self, size_min: int) -> int:
        start, count = self.at, self.next()
        if count > (self.stop - self.at) // size_min:
            raise CorruptConsumerState(start, "more items than there are bytes")
        return count


def decode(buffer: bytes) -> ConsumerState:
    """The state that `encode` wrote; CorruptConsumerState for any other bytes."""
    data = bytes(buffer)
    if len(data) < 16:
        raise CorruptConsumerState(len(data), "cut short")
    reader = _Reader(data)
    if data[:8] not in (MAGIC, MAGIC_2):
        raise CorruptConsumerState(0, "not a consumer state of version 1 or 2")
    has_deadlines = data[:8] == MAGIC_2
    if int.from_bytes(data[reader.stop :], "little") != xxh64_of(data[: reader.stop]):
        raise CorruptConsumerState(reader.stop, "checksum differs")
    state = ConsumerState(ack_floor_consumer_seq=reader.next(), ack_floor_stream_seq=reader.next())
    state.delivered_consumer_seq = reader.next_above(state.ack_floor_consumer_seq, 0)
    state.delivered_stream_seq = reader.next_above(state.ack_floor_stream_seq, 0)
    seq, consumer_seq, time_ns = state.ack_floor_stream_seq, state.ack_floor_consumer_seq, 0
    for _ in range(reader.next_count(3)):
        seq = reader.next_above(seq, 1)
        consumer_seq = (consumer_seq + unzigzag(reader.next())) % 2**64
        time_ns = _signed(time_ns + unzigzag(reader.next()))
        state.pending[seq] = (consumer_seq, time_ns)
    seq = 0 if has_deadlines else state.ack_floor_stream_seq
    for _ in range(reader.next_count(2)):
        seq = reader.next_above(seq, 1)
        start, count = reader.at, reader.next()
        if count == 0:
            raise CorruptConsumerState(start, "a count of 0")
        state.redelivered[seq] = count
    if has_deadlines:
        wait, state.deadlines = 0, {}
        for seq, (_, time_ns) in state.pending.items():
            wait += unzigzag(reader.next())
            state.deadlines[seq] = _signed(time_ns + wait)
    if reader.at != reader.stop:
        raise CorruptConsumerState(reader.at, "bytes after the last item")
    return state
