"""The codec of a consumer's state: what was delivered, acknowledged, is pending, was redelivered.

Layout: docs/format.md, "Consumer state". Readable form: reference/consumer_state.py.
"""

from dataclasses import dataclass, field

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from penstock.errors import StoreError

from penstock.kernel.varint cimport read_varint, unzigzag, write_varint, zigzag
from penstock.kernel.xxh64 cimport xxh64

MAGIC = b"PSTKCON\x01"

cdef enum:
    MAGIC_SIZE = 8
    CHECKSUM_SIZE = 8

cdef uint64_t SEQ_MAX = ~<uint64_t>0


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


def encode(state) -> bytes:
    """The bytes of `state`; ValueError where it contradicts itself."""
    cdef uint64_t floor_consumer = state.ack_floor_consumer_seq, floor_stream = state.ack_floor_stream_seq
    cdef uint64_t delivered_consumer = state.delivered_consumer_seq, delivered_stream = state.delivered_stream_seq
    cdef dict pending = state.pending, redelivered = state.redelivered
    cdef uint64_t before, stream_seq, consumer_seq, consumer_before, times
    cdef int64_t time_ns, time_before = 0
    cdef uint64_t checksum
    cdef Py_ssize_t at
    cdef uint8_t* out
    if delivered_consumer < floor_consumer or delivered_stream < floor_stream:
        raise ValueError("the ack floor is above what was delivered")
    out = <uint8_t*>malloc(MAGIC_SIZE + 60 + 30 * len(pending) + 20 * len(redelivered) + CHECKSUM_SIZE)
    if out == NULL:
        raise MemoryError
    try:
        memcpy(out, <const uint8_t*><bytes>MAGIC, MAGIC_SIZE)
        at = write_varint(out, MAGIC_SIZE, floor_consumer)
        at = write_varint(out, at, floor_stream)
        at = write_varint(out, at, delivered_consumer - floor_consumer)
        at = write_varint(out, at, delivered_stream - floor_stream)
        at = write_varint(out, at, len(pending))
        before = floor_stream
        consumer_before = floor_consumer
        for key in sorted(pending):
            stream_seq = key
            consumer_seq, time_ns = pending[key]
            if stream_seq <= before:
                raise ValueError(f"pending {key} is not above the ack floor {floor_stream}")
            at = write_varint(out, at, stream_seq - before)
            at = write_varint(out, at, zigzag(<int64_t>(consumer_seq - consumer_before)))
            at = write_varint(out, at, zigzag(<int64_t>(<uint64_t>time_ns - <uint64_t>time_before)))
            before = stream_seq
            consumer_before = consumer_seq
            time_before = time_ns
        at = write_varint(out, at, len(redelivered))
        before = floor_stream
        for key in sorted(redelivered):
            stream_seq = key
            times = redelivered[key]
            if stream_seq <= before:
                raise ValueError(f"redelivered {key} is not above the ack floor {floor_stream}")
            if times == 0:
                raise ValueError(f"redelivered {key} has a count of 0")
            at = write_varint(out, at, stream_seq - before)
            at = write_varint(out, at, times)
            before = stream_seq
        checksum = xxh64(out, at, 0)
        memcpy(out + at, &checksum, CHECKSUM_SIZE)
        return PyBytes_FromStringAndSize(<const char*>out, at + CHECKSUM_SIZE)
    finally:
        free(out)


cdef class Reader:
    # The bytes between magic and checksum, read from front to back; a bad varint raises where it begins.
    cdef const uint8_t* data
    cdef Py_ssize_t at
    cdef Py_ssize_t stop

    cdef uint64_t next(self) except? 0:
        cdef uint64_t value
        cdef Py_ssize_t after = read_varint(self.data, self.at, self.stop, &value)
        if after < 0:
            raise CorruptConsumerState(self.at, "no whole varint in its shortest form")
        self.at = after
        return value

    cdef uint64_t next_above(self, uint64_t base, uint64_t least) except? 0:
        """`base` and the varint's value, which is at least `least`."""
        cdef Py_ssize_t start = self.at
        cdef uint64_t more = self.next()
        if more < least:
            raise CorruptConsumerState(start, "a sequence that does not rise")
        if more > SEQ_MAX - base:
            raise CorruptConsumerState(start, "a sequence passes 2^64 - 1")
        return base + more

    cdef Py_ssize_t next_count(self, Py_ssize_t size_min) except -1:
        """How many items follow, which the bytes that are left must be able to hold."""
        cdef Py_ssize_t start = self.at
        cdef uint64_t count = self.next()
        if count > <uint64_t>((self.stop - self.at) // size_min):
            raise CorruptConsumerState(start, "more items than there are bytes")
        return <Py_ssize_t>count


def decode(const uint8_t[::1] buffer not None):
    """The state that `encode` wrote; CorruptConsumerState for any other bytes."""
    cdef Py_ssize_t size = buffer.shape[0], start
    cdef Reader reader = Reader()
    cdef uint64_t checksum, floor_consumer, floor_stream, delivered_consumer, delivered_stream
    cdef uint64_t stream_seq, consumer_seq, time_ns = 0, times
    cdef dict pending = {}, redelivered = {}
    if size < MAGIC_SIZE + CHECKSUM_SIZE:
        raise CorruptConsumerState(size, "cut short")
    reader.data = &buffer[0]
    reader.at = MAGIC_SIZE
    reader.stop = size - CHECKSUM_SIZE
    if memcmp(reader.data, <const uint8_t*><bytes>MAGIC, MAGIC_SIZE) != 0:
        raise CorruptConsumerState(0, "not a consumer state of version 1")
    memcpy(&checksum, reader.data + reader.stop, CHECKSUM_SIZE)
    if checksum != xxh64(reader.data, reader.stop, 0):
        raise CorruptConsumerState(reader.stop, "checksum differs")
    floor_consumer = reader.next()
    floor_stream = reader.next()
    delivered_consumer = reader.next_above(floor_consumer, 0)
    delivered_stream = reader.next_above(floor_stream, 0)
    stream_seq = floor_stream
    consumer_seq = floor_consumer
    for _ in range(reader.next_count(3)):
        stream_seq = reader.next_above(stream_seq, 1)
        consumer_seq += <uint64_t>unzigzag(reader.next())
        time_ns += <uint64_t>unzigzag(reader.next())
        pending[stream_seq] = (consumer_seq, <int64_t>time_ns)
    stream_seq = floor_stream
    for _ in range(reader.next_count(2)):
        stream_seq = reader.next_above(stream_seq, 1)
        start = reader.at
        times = reader.next()
        if times == 0:
            raise CorruptConsumerState(start, "a count of 0")
        redelivered[stream_seq] = times
    if reader.at != reader.stop:
        raise CorruptConsumerState(reader.at, "bytes after the last item")
    return ConsumerState(
        delivered_consumer, delivered_stream, floor_consumer, floor_stream, pending, redelivered
    )
