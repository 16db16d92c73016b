"""What clients say to consumers: acks and pull requests in the forms that clients write them in.

What is not read here is read by consumer/ack_payload.py and consumer/pull_request.py, which know every form; the tests
compare the two. Rules: consumer/ack_subject.py.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

cdef enum:
    DIGITS_MAX = 18                        # so many always fit into 64 bits


cdef inline bint _is_blank(uint8_t char) noexcept nogil:
    return char == c" " or 9 <= char <= 13


cdef inline uint32_t _skip(const uint8_t* text, uint32_t size, uint32_t at) noexcept nogil:
    """Past the blanks of JSON."""
    while at < size and (text[at] == c" " or text[at] == c"\n" or text[at] == c"\r" or text[at] == c"\t"):
        at += 1
    return at


cdef void read_delivered(const uint8_t* text, uint32_t size, Delivered* delivered) noexcept nogil:
    """Read the numbers of an ack's subject, which stand behind the names of stream and consumer."""
    cdef uint64_t numbers[3]
    cdef uint32_t at = 0, n
    cdef bint is_number
    for n in range(3):
        numbers[n] = 0
        is_number = at < size and text[at] != c"."
        while at < size and text[at] != c".":
            if text[at] < c"0" or text[at] > c"9":
                is_number = False
            numbers[n] = numbers[n] * 10 + (text[at] - c"0")  # wraps around, as in the reference
            at += 1
        at += 1
        if not is_number:
            numbers[n] = ~<uint64_t>0      # a sequence that nothing has
    delivered.deliveries = numbers[0]
    delivered.seq = numbers[1]
    delivered.dseq = numbers[2]


cdef int read_verb(const uint8_t* text, uint32_t size) noexcept nogil:
    """Which kind of ack a payload is."""
    if size == 0 or (size == 4 and memcmp(text, b"+ACK", 4) == 0) or (size == 3 and memcmp(text, b"+OK", 3) == 0):
        return SAID_ACK
    if size == 4 and memcmp(text, b"+WPI", 4) == 0:
        return SAID_PROGRESS
    if size >= 4 and memcmp(text, b"+NXT", 4) == 0:
        return SAID_NEXT
    return SAID_VERB


cdef bint _read_number(const uint8_t* text, uint32_t size, uint32_t* at, int64_t* number) noexcept nogil:
    """A number of JSON without fraction and exponent; False where it is another, or too long for us."""
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


cdef bint _read_field(const uint8_t* text, uint32_t size, uint32_t* at, Asked* asked) noexcept nogil:
    """One field of an object, from its quotes to its value's end; False where it is none that we know."""
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
        number = &asked.batch
    elif name_size == 7 and memcmp(name, b"expires", 7) == 0:
        number = &asked.expires
    elif name_size == 9 and memcmp(name, b"max_bytes", 9) == 0:
        number = &asked.max_bytes
    elif name_size == 14 and memcmp(name, b"idle_heartbeat", 14) == 0:
        number = &asked.heartbeat
    elif name_size == 7 and memcmp(name, b"no_wait", 7) == 0:
        if at[0] + 4 <= size and memcmp(text + at[0], b"true", 4) == 0:
            asked.no_wait = True
            at[0] += 4
            return True
        if at[0] + 5 <= size and memcmp(text + at[0], b"false", 5) == 0:
            asked.no_wait = False
            at[0] += 5
            return True
        return False
    return number != NULL and _read_number(text, size, at, number)


cdef bint _read_object(const uint8_t* text, uint32_t size, Asked* asked) noexcept nogil:
    cdef uint32_t at = _skip(text, size, 1)
    asked.is_object = True
    if at < size and text[at] == c"}":
        return at + 1 == size
    while True:
        if not _read_field(text, size, &at, asked):
            return False
        at = _skip(text, size, at)
        if at >= size:
            return False
        if text[at] == c"}":
            return at + 1 == size
        if text[at] != c",":
            return False
        at = _skip(text, size, at + 1)


cdef bint read_asked(const uint8_t* text, uint32_t size, Asked* asked) noexcept nogil:
    """Read a pull request; False where Python has to."""
    cdef uint32_t at = 0
    asked.batch = 1
    asked.max_bytes = asked.expires = asked.heartbeat = 0
    asked.no_wait = asked.is_object = False
    while size and _is_blank(text[0]):
        text += 1
        size -= 1
    while size and _is_blank(text[size - 1]):
        size -= 1
    if size == 0:
        return True
    if text[0] == c"{":
        asked.batch = 0
        return _read_object(text, size, asked) and not (asked.heartbeat > 0 and asked.heartbeat > asked.expires // 2)
    return c"1" <= text[0] <= c"9" and _read_number(text, size, &at, &asked.batch) and at == size


# Doors.

def delivered_of(bytes subject not None, Py_ssize_t filter_size):
    """(deliveries, seq, consumer seq) of an ack on a subject that a filter of this size matched."""
    cdef Delivered found
    read_delivered(<const uint8_t*>PyBytes_AS_STRING(subject) + filter_size - ACK_TAIL_SIZE,
                   <uint32_t>(PyBytes_GET_SIZE(subject) - filter_size + ACK_TAIL_SIZE), &found)
    return found.deliveries, found.seq, found.dseq


def verb_of(bytes payload not None):
    """SAID_ACK, SAID_PROGRESS, SAID_NEXT or SAID_VERB as a number."""
    return read_verb(<const uint8_t*>PyBytes_AS_STRING(payload), <uint32_t>PyBytes_GET_SIZE(payload))


def asked_of(bytes payload not None):
    """(batch, max_bytes, expires, heartbeat, no_wait) of a pull request; None where Python has to read it."""
    cdef Asked asked
    if not read_asked(<const uint8_t*>PyBytes_AS_STRING(payload), <uint32_t>PyBytes_GET_SIZE(payload), &asked):
        return None
    return asked.batch, asked.max_bytes, asked.expires, asked.heartbeat, bool(asked.no_wait)
