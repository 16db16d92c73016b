# Unsigned LEB128 in its shortest form, and zigzag. Layout: docs/format.md.
from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef inline Py_ssize_t read_varint(const uint8_t* data, Py_ssize_t start, Py_ssize_t stop,
                                   uint64_t* value) noexcept nogil:
    """Offset past the varint at `start`; -1 when it is cut, too long, too large or not in shortest form."""
    cdef uint64_t result = 0
    cdef uint8_t byte
    cdef int shift = 0
    while start < stop:
        byte = data[start]
        start += 1
        if shift == 63 and byte > 1:
            return -1                      # more than 64 bits
        result |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift > 0:
                return -1                  # a longer form of a smaller number
            value[0] = result
            return start
        shift += 7
        if shift > 63:
            return -1
    return -1


cdef inline Py_ssize_t write_varint(uint8_t* out, Py_ssize_t at, uint64_t value) noexcept nogil:
    """Write `value` at `out[at]` and return the offset past it; at most 10 bytes."""
    while value >= 0x80:
        out[at] = <uint8_t>(value | 0x80)
        value >>= 7
        at += 1
    out[at] = <uint8_t>value
    return at + 1


cdef inline int varint_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int64_t unzigzag(uint64_t value) noexcept nogil:
    return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
