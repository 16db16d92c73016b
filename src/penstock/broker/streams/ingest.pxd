# A stream's intake: what was published to it in this turn, and the answers that wait for its commits.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.store.write.batch cimport Batch
from penstock.store.write.engine cimport StreamEngine

cdef enum:
    ANSWER_ACK = 0
    ANSWER_DUPLICATE = 1
    ANSWER_ERROR = 2
    ROOM_MORE = 192                        # what an answer may have besides its head: sid, sizes, sequence, "duplicate"

cdef struct Asked:                         # where the answer to a message of the batch goes
    const uint8_t* reply                   # NULL: nobody wants one
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
    cdef public object intake              # broker.intake.Intake
    cdef public object rules               # stream.stream.StreamRules
    cdef public object lock                # the stream's
    cdef public object guard               # None, or guard(count, size) -> the answer's JSON when the batch is refused
    cdef public StreamEngine engine
    cdef public uint64_t count_max         # messages that may wait for the stream's lock
    cdef public uint64_t size_max          # bytes that may wait for the lock, or for the disk
    cdef readonly bint is_crowded          # half of that waits: who publishes is to wait
    cdef public bint has_acks              # the stream answers
    cdef public bint is_over               # nothing more is committed: who still waits is told what became of it
    cdef readonly bint is_touched          # on the router's list of this turn
    cdef bytes head                        # {"stream":"S","seq":
    cdef uint8_t* room                     # for two answers while they are written
    cdef Batch batch
    cdef Asked* asked
    cdef uint32_t asked_capacity
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
    cdef int judge(self, Batch batch, Asked* asked) except -1
    cdef int judge_each(self, Batch batch, Asked* asked) except -1
    cdef int queue_answers(self, Batch batch, Asked* asked, list refused, dict duplicates, bytes whole) except -1
    cdef int park(self) except -1
    cdef bint is_full(self) noexcept
    cdef int refuse(self) except -1
    cdef uint64_t decided(self) noexcept
    cdef void drop_first(self) noexcept
