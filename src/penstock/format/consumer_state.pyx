"""The codec of a consumer's state: what was delivered, acknowledged, is pending, was redelivered.

Layout: docs/format.md, "Consumer state". Readable form: tests/twins/consumer_state.py.
"""

from dataclasses import dataclass, field

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from penstock.errors import StoreError

from penstock.base.varint cimport read_varint, unzigzag, write_varint, zigzag
from penstock.base.xxh64 cimport xxh64

MAGIC = b"PSTKCON\x01"
MAGIC_2 = b"PSTKCON\x02"                     # with deadlines

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
    deadlines: dict[int, int] | None = None    # of all that are pending, or not known


def encode(state) -> bytes:
    """The bytes of `state`, version 2 where it has deadlines; ValueError where it contradicts itself."""
    cdef StateHead head
    cdef dict pending = state.pending, redelivered = state.redelivered, deadlines = state.deadlines
    cdef PendingItem* waiting
    cdef RedeliveredItem* again
    cdef Py_ssize_t at
    if deadlines is not None and deadlines.keys() != pending.keys():
        raise ValueError("the deadlines are not those of the pending messages")
    head.floor_consumer = state.ack_floor_consumer_seq
    head.floor_stream = state.ack_floor_stream_seq
    head.delivered_consumer = state.delivered_consumer_seq
    head.delivered_stream = state.delivered_stream_seq
    waiting = <PendingItem*>malloc((len(pending) + 1) * sizeof(PendingItem))
    again = <RedeliveredItem*>malloc((len(redelivered) + 1) * sizeof(RedeliveredItem))
    try:
        if waiting == NULL or again == NULL:
            raise MemoryError
        for at, key in enumerate(sorted(pending)):
            waiting[at].stream_seq = key
            waiting[at].consumer_seq, waiting[at].time_ns = pending[key]
            waiting[at].deadline_ns = deadlines[key] if deadlines is not None else 0
        for at, key in enumerate(sorted(redelivered)):
            again[at].stream_seq = key
            again[at].count = redelivered[key]
        return encode_items(head, waiting, len(pending), again, len(redelivered), deadlines is not None)
    finally:
        free(waiting)
        free(again)


cdef bytes encode_items(StateHead head, const PendingItem* pending, Py_ssize_t pending_count,
                        const RedeliveredItem* redelivered, Py_ssize_t redelivered_count, bint has_deadlines):
    cdef uint64_t before = head.floor_stream, consumer_before = head.floor_consumer, time_before = 0, wait_before = 0
    cdef uint64_t wait, checksum
    cdef Py_ssize_t at, index
    cdef uint8_t* out
    if head.delivered_consumer < head.floor_consumer or head.delivered_stream < head.floor_stream:
        raise ValueError("the ack floor is above what was delivered")
    out = <uint8_t*>malloc(MAGIC_SIZE + 60 + 40 * pending_count + 20 * redelivered_count + CHECKSUM_SIZE)
    if out == NULL:
        raise MemoryError
    try:
        memcpy(out, <const uint8_t*><bytes>(MAGIC_2 if has_deadlines else MAGIC), MAGIC_SIZE)
        at = write_varint(out, MAGIC_SIZE, head.floor_consumer)
        at = write_varint(out, at, head.floor_stream)
        at = write_varint(out, at, head.delivered_consumer - head.floor_consumer)
        at = write_varint(out, at, head.delivered_stream - head.floor_stream)
        at = write_varint(out, at, pending_count)
        for index in range(pending_count):
            if pending[index].stream_seq <= before:
                raise ValueError(f"pending {pending[index].stream_seq} is not above the ack floor {head.floor_stream}")
            at = write_varint(out, at, pending[index].stream_seq - before)
            at = write_varint(out, at, zigzag(<int64_t>(pending[index].consumer_seq - consumer_before)))
            at = write_varint(out, at, zigzag(<int64_t>(<uint64_t>pending[index].time_ns - time_before)))
            before = pending[index].stream_seq
            consumer_before = pending[index].consumer_seq
            time_before = <uint64_t>pending[index].time_ns
        at = write_varint(out, at, redelivered_count)
        before = 0 if has_deadlines else head.floor_stream
        for index in range(redelivered_count):
            if redelivered[index].stream_seq <= before:
                raise ValueError(f"redelivered {redelivered[index].stream_seq} is not above "
                                 + ("0" if has_deadlines else f"the ack floor {head.floor_stream}"))
            if redelivered[index].count == 0:
                raise ValueError(f"redelivered {redelivered[index].stream_seq} has a count of 0")
            at = write_varint(out, at, redelivered[index].stream_seq - before)
            at = write_varint(out, at, redelivered[index].count)
            before = redelivered[index].stream_seq
        if has_deadlines:
            for index in range(pending_count):
                wait = <uint64_t>pending[index].deadline_ns - <uint64_t>pending[index].time_ns
                at = write_varint(out, at, zigzag(<int64_t>(wait - wait_before)))
                wait_before = wait
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


cdef class StateItems:
    """A decoded state, its lists by rising sequence."""

    def __dealloc__(self):
        free(self.pending)
        free(self.redelivered)


cdef StateItems decode_items(const uint8_t[::1] buffer):
    """The state that `encode_items` wrote; CorruptConsumerState for any other bytes."""
    cdef Py_ssize_t size = buffer.shape[0], start, index, count
    cdef Reader reader = Reader()
    cdef StateItems out = StateItems()
    cdef uint64_t checksum, stream_seq, consumer_seq, time_ns = 0, wait = 0
    if size < MAGIC_SIZE + CHECKSUM_SIZE:
        raise CorruptConsumerState(size, "cut short")
    reader.data = &buffer[0]
    reader.at = MAGIC_SIZE
    reader.stop = size - CHECKSUM_SIZE
    out.has_deadlines = memcmp(reader.data, <const uint8_t*><bytes>MAGIC_2, MAGIC_SIZE) == 0
    if not out.has_deadlines and memcmp(reader.data, <const uint8_t*><bytes>MAGIC, MAGIC_SIZE) != 0:
        raise CorruptConsumerState(0, "not a consumer state of version 1 or 2")
    memcpy(&checksum, reader.data + reader.stop, CHECKSUM_SIZE)
    if checksum != xxh64(reader.data, reader.stop, 0):
        raise CorruptConsumerState(reader.stop, "checksum differs")
    out.head.floor_consumer = reader.next()
    out.head.floor_stream = reader.next()
    out.head.delivered_consumer = reader.next_above(out.head.floor_consumer, 0)
    out.head.delivered_stream = reader.next_above(out.head.floor_stream, 0)
    count = reader.next_count(3)
    out.pending = <PendingItem*>malloc((count + 1) * sizeof(PendingItem))
    if out.pending == NULL:
        raise MemoryError
    stream_seq = out.head.floor_stream
    consumer_seq = out.head.floor_consumer
    for index in range(count):
        stream_seq = reader.next_above(stream_seq, 1)
        consumer_seq += <uint64_t>unzigzag(reader.next())
        time_ns += <uint64_t>unzigzag(reader.next())
        out.pending[index].stream_seq = stream_seq
        out.pending[index].consumer_seq = consumer_seq
        out.pending[index].time_ns = <int64_t>time_ns
        out.pending[index].deadline_ns = 0
    out.pending_count = count
    count = reader.next_count(2)
    out.redelivered = <RedeliveredItem*>malloc((count + 1) * sizeof(RedeliveredItem))
    if out.redelivered == NULL:
        raise MemoryError
    stream_seq = 0 if out.has_deadlines else out.head.floor_stream
    for index in range(count):
        stream_seq = reader.next_above(stream_seq, 1)
        start = reader.at
        out.redelivered[index].stream_seq = stream_seq
        out.redelivered[index].count = reader.next()
        if out.redelivered[index].count == 0:
            raise CorruptConsumerState(start, "a count of 0")
    out.redelivered_count = count
    if out.has_deadlines:
        for index in range(out.pending_count):
            wait += <uint64_t>unzigzag(reader.next())
            out.pending[index].deadline_ns = <int64_t>(<uint64_t>out.pending[index].time_ns + wait)
    if reader.at != reader.stop:
        raise CorruptConsumerState(reader.at, "bytes after the last item")
    return out


def decode(const uint8_t[::1] buffer not None):
    """The state that `encode` wrote; CorruptConsumerState for any other bytes."""
    cdef StateItems items = decode_items(buffer)
    cdef PendingItem* pending = items.pending
    cdef RedeliveredItem* again = items.redelivered
    cdef Py_ssize_t at
    return ConsumerState(
        items.head.delivered_consumer,
        items.head.delivered_stream,
        items.head.floor_consumer,
        items.head.floor_stream,
        {pending[at].stream_seq: (pending[at].consumer_seq, pending[at].time_ns) for at in range(items.pending_count)},
        {again[at].stream_seq: again[at].count for at in range(items.redelivered_count)},
        {pending[at].stream_seq: pending[at].deadline_ns for at in range(items.pending_count)}
        if items.has_deadlines else None,
    )
