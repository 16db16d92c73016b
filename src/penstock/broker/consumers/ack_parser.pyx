"""Ack parser: acks and pull requests in the forms in which clients usually write them.

Other forms are left to consumer/ack_payload.py and consumer/pull_request.py, which know all of them; the tests compare both
sides. Rules: consumer/ack_subject.py.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

cdef enum:
    DIGITS_MAX = 18                        # this many always fit into 64 bits


cdef inline bint _is_blank(uint8_t char) noexcept nogil:
    return char == c" " or 9 <= char <= 13


cdef inline uint32_t _skip(const uint8_t* text, uint32_t size, uint32_t at) noexcept nogil:
    """Past the blanks of JSON."""
    while at < size and (text[at] == c" " or text[at] == c"\n" or text[at] == c"\r" or text[at] == c"\t"):
        at += 1
    return at


cdef void parse_ack_numbers(const uint8_t* text, uint32_t size, AckNumbers* out) noexcept nogil:
    """Parse the numbers of an ack's subject, which stand behind the names of stream and consumer."""
    cdef uint64_t numbers[3]
    cdef uint32_t at = 0, n
    cdef bint is_number
    for n in range(3):
        numbers[n] = 0
        is_number = at < size and text[at] != c"."
        while at < size and text[at] != c".":
            if text[at] < c"0" or text[at] > c"9":
                is_number = False
            numbers[n] = numbers[n] * 10 + (text[at] - c"0")  # wraps around, as in nats-server
            at += 1
        at += 1
        if not is_number:
            numbers[n] = ~<uint64_t>0      # a sequence that no message has
    out.deliveries = numbers[0]
    out.seq = numbers[1]
    out.dseq = numbers[2]


cdef int parse_ack_kind(const uint8_t* text, uint32_t size) noexcept nogil:
    """The kind of ack that a payload is: one of ACK_…."""
    if size == 0 or (size == 4 and memcmp(text, b"+ACK", 4) == 0) or (size == 3 and memcmp(text, b"+OK", 3) == 0):
        return ACK_PLAIN
    if size == 4 and memcmp(text, b"+WPI", 4) == 0:
        return ACK_PROGRESS
    if size >= 4 and memcmp(text, b"+NXT", 4) == 0:
        return ACK_NEXT
    return ACK_OTHER


cdef bint _parse_number(const uint8_t* text, uint32_t size, uint32_t* at, int64_t* number) noexcept nogil:
    """A JSON number without fraction and exponent; False if it is another, or too long for us."""
    cdef uint32_t start
    cdef bint is_negative = at[0] < size and text[at[0]] == c"-"
    at[0] += is_negative
    start = at[0]
    number[0] = 0
    while at[0] < size and c"0" <= text[at[0]] <= c"9":
        if at[0] - start == DIGITS_MAX:
            return False
        number[0] = number[0] * 10 + (text[at[0]] - c"0")
        at[0] += 1
    if at[0] == start or (at[0] - start > 1 and text[start] == c"0"):
        return False
    if is_negative:
        number[0] = -number[0]
    return True


cdef bint _parse_field(const uint8_t* text, uint32_t size, uint32_t* at, PullFields* fields) noexcept nogil:
    """One field of an object, from its quotes to the end of its value; False if we do not know the field."""
    cdef uint32_t start, name_size
    cdef int64_t* number = NULL
    cdef const uint8_t* name
    if at[0] >= size or text[at[0]] != c'"':
        return False
    start = at[0] + 1
    at[0] = start
    while at[0] < size and text[at[0]] != c'"' and text[at[0]] != c"\\":
        at[0] += 1
    if at[0] >= size or text[at[0]] != c'"':
        return False
    name = text + start
    name_size = at[0] - start
    at[0] = _skip(text, size, at[0] + 1)
    if at[0] >= size or text[at[0]] != c":":
        return False
    at[0] = _skip(text, size, at[0] + 1)
    if name_size == 5 and memcmp(name, b"batch", 5) == 0:
        number = &fields.batch
    elif name_size == 7 and memcmp(name, b"expires", 7) == 0:
        number = &fields.expires
    elif name_size == 9 and memcmp(name, b"max_bytes", 9) == 0:
        number = &fields.max_bytes
    elif name_size == 14 and memcmp(name, b"idle_heartbeat", 14) == 0:
        number = &fields.heartbeat
    elif name_size == 7 and memcmp(name, b"no_wait", 7) == 0:
        if at[0] + 4 <= size and memcmp(text + at[0], b"true", 4) == 0:
            fields.no_wait = True
            at[0] += 4
            return True
        if at[0] + 5 <= size and memcmp(text + at[0], b"false", 5) == 0:
            fields.no_wait = False
            at[0] += 5
            return True
        return False
    return number != NULL and _parse_number(text, size, at, number)


cdef bint _parse_object(const uint8_t* text, uint32_t size, PullFields* fields) noexcept nogil:
    cdef uint32_t at = _skip(text, size, 1)
    fields.is_object = True
    if at < size and text[at] == c"}":
        return at + 1 == size
    while True:
        if not _parse_field(text, size, &at, fields):
            return False
        at = _skip(text, size, at)
        if at >= size:
            return False
        if text[at] == c"}":
            return at + 1 == size
        if text[at] != c",":
            return False
        at = _skip(text, size, at + 1)


cdef bint parse_pull_fields(const uint8_t* text, uint32_t size, PullFields* fields) noexcept nogil:
    """Parse a pull request; False if it must be parsed in Python."""
    cdef uint32_t at = 0
    fields.batch = 1
    fields.max_bytes = fields.expires = fields.heartbeat = 0
    fields.no_wait = fields.is_object = False
    while size and _is_blank(text[0]):
        text += 1
        size -= 1
    while size and _is_blank(text[size - 1]):
        size -= 1
    if size == 0:
        return True
    if text[0] == c"{":
        fields.batch = 0
        return _parse_object(text, size, fields) and not (fields.heartbeat > 0 and fields.heartbeat > fields.expires // 2)
    return c"1" <= text[0] <= c"9" and _parse_number(text, size, &at, &fields.batch) and at == size


# For tests.

def ack_numbers(bytes subject not None, Py_ssize_t filter_size):
    """(deliveries, seq, consumer seq) of an ack on a subject that a filter of this size matched."""
    cdef AckNumbers found
    parse_ack_numbers(<const uint8_t*>PyBytes_AS_STRING(subject) + filter_size - ACK_TAIL_SIZE,
                   <uint32_t>(PyBytes_GET_SIZE(subject) - filter_size + ACK_TAIL_SIZE), &found)
    return found.deliveries, found.seq, found.dseq


def ack_kind(bytes payload not None):
    """ACK_PLAIN, ACK_PROGRESS, ACK_NEXT or ACK_OTHER as a number."""
    return parse_ack_kind(<const uint8_t*>PyBytes_AS_STRING(payload), <uint32_t>PyBytes_GET_SIZE(payload))


def pull_fields(bytes payload not None):
    """(batch, max_bytes, expires, heartbeat, no_wait) of a pull request; None if it must be parsed in Python."""
    cdef PullFields fields
    if not parse_pull_fields(<const uint8_t*>PyBytes_AS_STRING(payload), <uint32_t>PyBytes_GET_SIZE(payload), &fields):
        return None
    return fields.batch, fields.max_bytes, fields.expires, fields.heartbeat, bool(fields.no_wait)
