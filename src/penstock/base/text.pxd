# Bytes as text: ASCII found fast, bytes that are not UTF-8 shown as \xNN.
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline bint is_ascii(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word, all = 0
    cdef Py_ssize_t index = 0
    while index + 8 <= size:
        memcpy(&word, data + index, 8)
        all |= word
        index += 8
    while index < size:
        all |= data[index]
        index += 1
    return all & 0x8080808080808080ULL == 0


cdef inline bint _is_tail(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef inline int utf8_size(const uint8_t* p, Py_ssize_t left) noexcept nogil:
    """Bytes of the UTF-8 character at `p`; 0 where there is none."""
    cdef uint8_t lead = p[0]
    if lead < 0x80:
        return 1
    if left >= 2 and 0xC2 <= lead <= 0xDF and _is_tail(p[1]):
        return 2
    if left >= 3 and 0xE0 <= lead <= 0xEF and _is_tail(p[1]) and _is_tail(p[2]):
        if (lead == 0xE0 and p[1] < 0xA0) or (lead == 0xED and p[1] >= 0xA0):
            return 0                       # too long a form, or half of a pair
        return 3
    if left >= 4 and 0xF0 <= lead <= 0xF4 and _is_tail(p[1]) and _is_tail(p[2]) and _is_tail(p[3]):
        if (lead == 0xF0 and p[1] < 0x90) or (lead == 0xF4 and p[1] >= 0x90):
            return 0
        return 4
    return 0


cdef inline Py_ssize_t write_text(uint8_t* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Copy text, bytes that are not UTF-8 as \\xNN; needs four times `size`. How many bytes it took."""
    cdef const char* digits = b"0123456789abcdef"
    cdef Py_ssize_t at = 0, put = 0
    cdef int step
    while at < size:
        step = utf8_size(data + at, size - at)
        if step:
            memcpy(out + put, data + at, step)
            put += step
            at += step
            continue
        out[put] = c"\\"
        out[put + 1] = c"x"
        out[put + 2] = <uint8_t>digits[data[at] >> 4]
        out[put + 3] = <uint8_t>digits[data[at] & 15]
        put += 4
        at += 1
    return put


cdef inline void copy(uint8_t* out, const uint8_t* data, Py_ssize_t size, const uint8_t* stop) noexcept nogil:
    """memcpy; short pieces in one step that may write up to SLACK bytes too many, but reads none at or past `stop`."""
    if size <= 32 and stop - data >= 32:
        memcpy(out, data, 32)
    else:
        memcpy(out, data, size)
