# The lines a server says before a message: MSG and HMSG. Rules: docs/wire.md.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    DECIMAL_SIZE_MAX = 20                  # digits of the largest 64-bit number


cdef inline Py_ssize_t write_decimal(uint8_t* out, uint64_t n) noexcept nogil:
    """Write `n` in decimal digits, DECIMAL_SIZE_MAX at most; how many."""
    cdef Py_ssize_t size = 1, at
    cdef uint64_t rest = n
    while rest >= 10:
        rest //= 10
        size += 1
    at = size
    while at > 0:
        at -= 1
        out[at] = <uint8_t>(48 + n % 10)
        n //= 10
    return size


cdef inline Py_ssize_t msg_line_size_max(Py_ssize_t subject_size, Py_ssize_t sid_size,
                                         Py_ssize_t reply_size) noexcept nogil:
    """Room that `write_msg_line` may need: HMSG, five blanks, two sizes, CRLF."""
    return 4 + 5 + 2 * DECIMAL_SIZE_MAX + 2 + subject_size + sid_size + reply_size


cdef inline Py_ssize_t write_msg_line(uint8_t* out, const uint8_t* subject, Py_ssize_t subject_size,
                                      const uint8_t* sid, Py_ssize_t sid_size,
                                      const uint8_t* reply, Py_ssize_t reply_size,
                                      int64_t headers_size, uint64_t total) noexcept nogil:
    """Write the line before a message, CRLF included; its size.

    MSG where `headers_size` is below 0, else HMSG; `total` counts the headers too. A reply of size 0 is none.
    """
    cdef Py_ssize_t at = 0
    if headers_size >= 0:
        out[0] = c"H"
        at = 1
    memcpy(out + at, b"MSG ", 4)
    at += 4
    memcpy(out + at, subject, subject_size)
    at += subject_size
    out[at] = c" "
    at += 1
    memcpy(out + at, sid, sid_size)
    at += sid_size
    out[at] = c" "
    at += 1
    if reply_size > 0:
        memcpy(out + at, reply, reply_size)
        at += reply_size
        out[at] = c" "
        at += 1
    if headers_size >= 0:
        at += write_decimal(out + at, <uint64_t>headers_size)
        out[at] = c" "
        at += 1
    at += write_decimal(out + at, total)
    out[at] = c"\r"
    out[at + 1] = c"\n"
    return at + 2
