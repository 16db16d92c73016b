# One record of a consumer log: what is said of one consumer. Layout: docs/format.md, "Consumer log".
from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    LEDGER_VERSION = 1
    LEDGER_PUT = 1                         # a consumer: what it is and its state, whole
    LEDGER_NOTE = 2                        # what changed of its state since the record before it
    LEDGER_REMOVE = 3                      # it is gone
    LEDGER_END = 4                         # all that there were are told above
    LEDGER_SIZE_MIN = 11                   # kind, number, count and checksum

cdef struct LedgerRecord:
    uint8_t kind
    uint64_t number                        # of the consumer
    uint64_t count                         # of the consumer's records
    Py_ssize_t body
    Py_ssize_t stop                        # of the body
    Py_ssize_t end

cdef Py_ssize_t ledger_size(uint64_t number, uint64_t count, uint64_t body_size, uint64_t* rest) noexcept nogil
cdef Py_ssize_t ledger_begin(uint8_t* out, uint64_t rest, uint8_t kind, uint64_t number, uint64_t count) noexcept nogil
cdef void ledger_finish(uint8_t* out, Py_ssize_t at, uint64_t salt) noexcept nogil
