# Rules for the subjects that clients send: which may be subscribed to, which are the server's own.
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp


cdef inline bint begins(const uint8_t* text, uint32_t size, const char* with_, uint32_t with_size) noexcept nogil:
    return size >= with_size and memcmp(text, with_, with_size) == 0


cdef inline bint is_routed(const uint8_t* subject, uint32_t size) noexcept nogil:
    """Whether a subject is that of a reply between clusters, which clients may not forge."""
    return ((subject[0] == c"_" and size > 5 and begins(subject, size, b"_GR_.", 5))
            or (subject[0] == c"$" and size > 4 and begins(subject, size, b"$GR.", 4)))


cdef inline bint is_reserved_reply(const uint8_t* reply, uint32_t size) noexcept nogil:
    """Whether only the server may use this reply subject."""
    return (size > 8 and begins(reply, size, b"$JS.ACK.", 8)) or begins(reply, size, b"_R_.", 4) or is_routed(reply, size)


cdef inline bint fits_a_line(const uint8_t* text, uint32_t size) noexcept nogil:
    """Whether a subject can be written into the line of a MSG. Those of clients can: the parser ends a subject at these bytes."""
    cdef uint32_t n
    for n in range(size):
        if text[n] == c" " or text[n] == c"\t" or text[n] == c"\n":
            return False
    return True


cdef inline bint is_subscribable(const uint8_t* subject, uint32_t size) noexcept nogil:
    """Whether a subject may be subscribed to: no empty token, and nothing after `>`."""
    cdef uint32_t n
    if size == 0 or subject[0] == c"." or subject[size - 1] == c".":
        return False
    for n in range(1, size):
        if subject[n] == c"." and (subject[n - 1] == c"."
                                   or (subject[n - 1] == c">" and (n == 1 or subject[n - 2] == c"."))):
            return False
    return True


cdef inline int64_t token_count(const uint8_t* subject, uint32_t size) noexcept nogil:
    cdef uint32_t n
    cdef int64_t count = 1
    for n in range(size):
        if subject[n] == c".":
            count += 1
    return count
