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


cdef inline bint room_resize(ArrowBuffer* room, Py_ssize_t capacity) noexcept nogil:
    """Move the room to memory of `capacity` bytes, at least `used`; False, and nothing changed, when there is none."""
    cdef Py_ssize_t shift = room.data - room.base if room.base != NULL else 0
    cdef uint8_t* base = <uint8_t*>realloc(room.base, capacity + SLACK + ALIGNMENT)
    if base == NULL:
        return False
    cdef uint8_t* data = <uint8_t*>((<uintptr_t>base + ALIGNMENT - 1) & ~<uintptr_t>(ALIGNMENT - 1))
    if data - base != shift and room.used:
        memmove(data, base + shift, room.used)
    room.base = base
    room.data = data
    room.capacity = capacity
    return True


cdef inline bint room_reserve(ArrowBuffer* room, Py_ssize_t more) noexcept nogil:
    """Have room for `more` bytes past the used ones, and SLACK behind them, even for none."""
    if room.used + more <= room.capacity and room.base != NULL:
        return True
    return room_resize(room, max(room.used + more, room.capacity * 2, 1024))
