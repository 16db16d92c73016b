# Messages on their way in: packed pointers and sizes over memory that the batch keeps alive.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    STATUS_OK = 0
    STATUS_BAD_SUBJECT = 1
    STATUS_NO_MATCH = 2
    STATUS_TOO_LARGE = 3
    STATUS_HEADERS_TOO_LARGE = 4
    STATUS_MAX_MSGS = 5
    STATUS_MAX_BYTES = 6
    STATUS_MAX_MSGS_PER_SUBJECT = 7
    STATUS_NOT_SEQUENTIAL = 8
    STATUS_RECORD_TOO_LARGE = 9
    STATUS_JUDGED = 10
    STATUS_DUPLICATE = 11                  # `seq` is that of the message which is there already

cdef struct Incoming:
    const uint8_t* subject
    const uint8_t* headers                 # NULL: none
    const uint8_t* payload
    uint32_t subject_size
    uint32_t headers_size
    uint32_t payload_size
    uint8_t flags                          # FLAG_TTL, FLAG_MSG_ID
    uint8_t status
    bint has_rules                         # a header asks for a rule: the stream judges it alone
    bint is_rollup
    uint16_t id_start                      # where in the headers a message id stands that is the only rule asked for …
    uint16_t id_size                       # … 0: there is none
    uint64_t seq                           # 0: the next; then what it was given, 0 when refused
    int64_t time                           # 0: now

cdef bint may_ask(Incoming* item) noexcept nogil

cdef class Batch:
    cdef Incoming* items
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef readonly bint has_rules
    cdef public bint takes_names           # subjects may have a wildcard for a token: they come from a client, or were stored
    cdef list keep
    cdef bint has_many                     # subjects are copied
    cdef uint8_t* texts                    # where the next copy goes
    cdef Py_ssize_t texts_left
    cdef const uint8_t* near(self, const uint8_t* text, Py_ssize_t size) except NULL
    cdef int reserve(self, Py_ssize_t count) except -1
    cdef Incoming* add(self) except NULL
    cdef int add_plain(self, list items) except -1
    cdef int add_item(self, object subject, object payload, object headers) except -1
