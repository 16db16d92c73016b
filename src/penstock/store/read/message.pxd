from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.format.constants cimport FLAG_HEADERS
from penstock.format.record cimport Record

cdef class Message:
    cdef readonly uint64_t seq
    cdef readonly int64_t time_ns
    cdef readonly str subject
    cdef readonly bytes data
    cdef readonly bytes raw_headers        # the header block as it was stored, None without
    cdef object _headers

cdef Message make_message(const uint8_t* block, const Record* record)
