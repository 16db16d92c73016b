# ArrowBuffer: memory that grows, aligned as Arrow likes it.
from libc.stdint cimport uint8_t, uintptr_t
from libc.stdlib cimport realloc
from libc.string cimport memmove

cdef enum:
    ALIGNMENT = 64
    SLACK = 64                             # bytes past the capacity that a copy may overwrite

cdef struct ArrowBuffer:                          # all zeros: empty; `base` is for free()
    uint8_t* base                          # as realloc gave it
    uint8_t* data                          # aligned
    Py_ssize_t used
    Py_ssize_t capacity                    # SLACK bytes stand behind it


cdef inline bint buffer_resize(ArrowBuffer* buffer, Py_ssize_t capacity) noexcept nogil:
    """Move the buffer to memory of `capacity` bytes, at least `used`; False, and nothing changed, when there is none."""
    cdef Py_ssize_t shift = buffer.data - buffer.base if buffer.base != NULL else 0
    cdef uint8_t* base = <uint8_t*>realloc(buffer.base, capacity + SLACK + ALIGNMENT)
    if base == NULL:
        return False
    cdef uint8_t* data = <uint8_t*>((<uintptr_t>base + ALIGNMENT - 1) & ~<uintptr_t>(ALIGNMENT - 1))
    if data - base != shift and buffer.used:
        memmove(data, base + shift, buffer.used)
    buffer.base = base
    buffer.data = data
    buffer.capacity = capacity
    return True


cdef inline bint buffer_reserve(ArrowBuffer* buffer, Py_ssize_t more) noexcept nogil:
    """Have space for `more` bytes past the used ones, and SLACK behind them, even for none."""
    if buffer.used + more <= buffer.capacity and buffer.base != NULL:
        return True
    return buffer_resize(buffer, max(buffer.used + more, buffer.capacity * 2, 1024))
