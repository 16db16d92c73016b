# Ingest: the messages published to one stream in this turn of the loop, and the answers that wait for its commits.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.store.write.batch cimport Batch
from penstock.store.write.engine cimport StreamEngine

cdef enum:
    ANSWER_ACK = 0
    ANSWER_DUPLICATE = 1
    ANSWER_ERROR = 2
    SCRATCH_MORE = 192                        # bytes of an answer besides its head: sid, sizes, sequence, "duplicate"

cdef struct ReplyTo:                       # the reply subject of a message of the batch
    const uint8_t* reply                   # NULL: its publisher wants no answer
    uint32_t reply_size

cdef struct Waiting:
    uint64_t seq                           # of an error: its place in `errors`
    uint32_t reply_at
    uint32_t reply_size
    int answer

cdef struct Chunk:                         # the answers of one batch
    Chunk* next
    uint64_t position                      # of the log: they leave when it is committed
    uint32_t count
    uint32_t done                          # of them, sent
    Waiting* items
    uint8_t* replies

cdef class Ingest:
    cdef public object endpoint            # IngestHost of ingest.pyi
    cdef public object rules               # stream.stream.StreamRules
    cdef public object lock                # the stream's, a StreamLock of ingest.pyi
    cdef public object guard               # None, or guard(count, size) -> the answer's JSON when the batch is refused
    cdef public StreamEngine engine
    cdef public uint64_t count_max         # messages that may wait for the stream's lock
    cdef public uint64_t size_max          # bytes that may wait for the lock, or for the disk
    cdef readonly bint is_half_full          # half of that waits: publishers have to wait
    cdef public bint has_acks              # the stream answers
    cdef public bint is_over               # nothing more is committed: publishers that still wait learn what became of their messages
    cdef readonly bint is_touched          # on the router's list of this turn
    cdef bytes head                        # {"stream":"S","seq":
    cdef uint8_t* scratch                  # space for two answers while they are written
    cdef Batch batch
    cdef ReplyTo* reply_to
    cdef uint32_t reply_capacity
    cdef list parked                       # (batch, replies) that came while another thread had the lock
    cdef readonly uint64_t parked_count
    cdef readonly uint64_t parked_bytes
    cdef Chunk* first
    cdef Chunk* last
    cdef readonly uint64_t waiting_count   # answers that wait
    cdef dict errors
    cdef uint64_t next_error

    cdef int add(self, const uint8_t* subject, uint32_t subject_size, const uint8_t* reply, uint32_t reply_size,
                 const uint8_t* headers, uint32_t headers_size, const uint8_t* payload, uint32_t payload_size,
                 bint copies) except -1
    cdef int take(self) except -1
    cdef int append(self, Batch batch, ReplyTo* reply_to) except -1
    cdef int append_each(self, Batch batch, ReplyTo* reply_to) except -1
    cdef int queue_answers(self, Batch batch, ReplyTo* reply_to, list refused, dict duplicates, bytes whole) except -1
    cdef int park(self) except -1
    cdef bint is_full(self) noexcept
    cdef int refuse(self) except -1
    cdef uint64_t decided(self) noexcept
    cdef void drop_first(self) noexcept
