# XXH64, the checksum of every file we write. The algorithm is Yann Collet's; `reference/xxh64.py` is the readable form.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline uint64_t _read64(const uint8_t* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef inline uint64_t _read32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint64_t _rotl(uint64_t v, int r) noexcept nogil:
    return (v << r) | (v >> (64 - r))


cdef inline uint64_t _round(uint64_t acc, uint64_t lane) noexcept nogil:
    return _rotl(acc + lane * 0xC2B2AE3D27D4EB4FULL, 31) * 0x9E3779B185EBCA87ULL


cdef inline uint64_t _merge(uint64_t h, uint64_t acc) noexcept nogil:
    return (h ^ _round(0, acc)) * 0x9E3779B185EBCA87ULL + 0x85EBCA77C2B2AE63ULL


cdef inline uint64_t _fold(uint64_t a, uint64_t b, uint64_t c, uint64_t d) noexcept nogil:
    cdef uint64_t h = _rotl(a, 1) + _rotl(b, 7) + _rotl(c, 12) + _rotl(d, 18)
    return _merge(_merge(_merge(_merge(h, a), b), c), d)


cdef inline uint64_t _finish(uint64_t h, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """What is left behind the last whole stripe, and the mixing at the end."""
    while p + 8 <= end:
        h = _rotl(h ^ _round(0, _read64(p)), 27) * 0x9E3779B185EBCA87ULL + 0x85EBCA77C2B2AE63ULL
        p += 8
    if p + 4 <= end:
        h = _rotl(h ^ (_read32(p) * 0x9E3779B185EBCA87ULL), 23) * 0xC2B2AE3D27D4EB4FULL + 0x165667B19E3779F9ULL
        p += 4
    while p < end:
        h = _rotl(h ^ (p[0] * 0x27D4EB2F165667C5ULL), 11) * 0x9E3779B185EBCA87ULL
        p += 1
    h = (h ^ (h >> 33)) * 0xC2B2AE3D27D4EB4FULL
    h = (h ^ (h >> 29)) * 0x165667B19E3779F9ULL
    return h ^ (h >> 32)


cdef inline uint64_t xxh64(const uint8_t* data, size_t size, uint64_t seed) noexcept nogil:
    cdef const uint8_t* p = data
    cdef const uint8_t* end = data + size
    cdef uint64_t a, b, c, d
    if size < 32:
        return _finish(seed + 0x27D4EB2F165667C5ULL + size, p, end)
    a = seed + 0x9E3779B185EBCA87ULL + 0xC2B2AE3D27D4EB4FULL
    b = seed + 0xC2B2AE3D27D4EB4FULL
    c = seed
    d = seed - 0x9E3779B185EBCA87ULL
    while p + 32 <= end:
        a = _round(a, _read64(p))
        b = _round(b, _read64(p + 8))
        c = _round(c, _read64(p + 16))
        d = _round(d, _read64(p + 24))
        p += 32
    return _finish(_fold(a, b, c, d) + size, p, end)


cdef inline uint64_t xxh64_copying(uint8_t* out, size_t filled, const uint8_t* more, size_t size, uint64_t seed) noexcept nogil:
    """The XXH64 of out[:filled] and `more`, which is put behind it: copied while it is hashed it costs half as much."""
    cdef uint8_t* p = out
    cdef uint8_t* end = out + filled + size
    cdef size_t head = (0 - filled) & 31   # what is missing of the last stripe of out[:filled]
    cdef uint64_t a, b, c, d
    if size < head + 32:
        memcpy(out + filled, more, size)
        return xxh64(out, filled + size, seed)
    memcpy(out + filled, more, head)
    filled += head
    more += head
    a = seed + 0x9E3779B185EBCA87ULL + 0xC2B2AE3D27D4EB4FULL
    b = seed + 0xC2B2AE3D27D4EB4FULL
    c = seed
    d = seed - 0x9E3779B185EBCA87ULL
    while p < out + filled:
        a = _round(a, _read64(p))
        b = _round(b, _read64(p + 8))
        c = _round(c, _read64(p + 16))
        d = _round(d, _read64(p + 24))
        p += 32
    while p + 32 <= end:
        memcpy(p, more, 32)
        a = _round(a, _read64(more))
        b = _round(b, _read64(more + 8))
        c = _round(c, _read64(more + 16))
        d = _round(d, _read64(more + 24))
        p += 32
        more += 32
    memcpy(p, more, end - p)
    return _finish(_fold(a, b, c, d) + (end - out), p, end)
