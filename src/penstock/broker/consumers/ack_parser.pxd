# Parses acks and pull requests in their usual forms; consumer/ack_payload.py and pull_request.py parse every form.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    ACK_PLAIN = 1
    ACK_PROGRESS = 2
    ACK_NEXT = 3                           # with a pull request behind it
    ACK_OTHER = 4                          # parsed in Python
    ACK_TAIL_SIZE = 9                      # `*.*.*.*.*` and `*.*.*.*.>`: the ends of the filters for acks

cdef struct AckNumbers:                    # from the subject of an ack
    uint64_t deliveries
    uint64_t seq
    uint64_t dseq

cdef struct PullFields:                    # of a pull request
    int64_t batch
    int64_t max_bytes
    int64_t expires
    int64_t heartbeat
    bint no_wait
    bint is_object                         # its text is a JSON object

cdef void parse_ack_numbers(const uint8_t* text, uint32_t size, AckNumbers* out) noexcept nogil
cdef int parse_ack_kind(const uint8_t* text, uint32_t size) noexcept nogil
cdef bint parse_pull_fields(const uint8_t* text, uint32_t size, PullFields* fields) noexcept nogil
