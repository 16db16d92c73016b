# What clients say to consumers, in its usual forms; everything else is read by consumer/ack_payload.py and pull_request.py.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    SAID_ACK = 1
    SAID_PROGRESS = 2
    SAID_NEXT = 3                          # with a pull request behind it
    SAID_VERB = 4                          # what Python reads
    ACK_TAIL_SIZE = 9                      # `*.*.*.*.*` and `*.*.*.*.>`: what the filters of acks end with

cdef struct Delivered:                     # what an ack is about
    uint64_t deliveries
    uint64_t seq
    uint64_t dseq

cdef struct Asked:                         # a pull request
    int64_t batch
    int64_t max_bytes
    int64_t expires
    int64_t heartbeat
    bint no_wait
    bint is_object                         # its text is a JSON object

cdef void read_delivered(const uint8_t* text, uint32_t size, Delivered* delivered) noexcept nogil
cdef int read_verb(const uint8_t* text, uint32_t size) noexcept nogil
cdef bint read_asked(const uint8_t* text, uint32_t size, Asked* asked) noexcept nogil
