# Sequences in order: byte by byte of what they are above the lowest, which is little where they lie close together.
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset


cdef inline int sort_seqs(uint64_t* seqs, Py_ssize_t count) except -1:
    cdef uint64_t low, high, value
    cdef uint64_t* source = seqs
    cdef uint64_t* target
    cdef uint64_t* spare
    cdef Py_ssize_t places[256]
    cdef Py_ssize_t n, at, taken
    cdef int shift = 0
    cdef bint is_sorted = True
    for n in range(1, count):
        if seqs[n] < seqs[n - 1]:
            is_sorted = False
            break
    if is_sorted:
        return 0
    if count <= 32:
        for n in range(1, count):
            value = seqs[n]
            at = n
            while at and seqs[at - 1] > value:
                seqs[at] = seqs[at - 1]
                at -= 1
            seqs[at] = value
        return 0
    low = high = seqs[0]
    for n in range(1, count):
        low = min(low, seqs[n])
        high = max(high, seqs[n])
    spare = target = <uint64_t*>malloc(count * 8)
    if spare == NULL:
        raise MemoryError
    while shift < 64 and (high - low) >> shift:
        memset(places, 0, sizeof(places))
        for n in range(count):
            places[((source[n] - low) >> shift) & 255] += 1
        at = 0
        for n in range(256):
            taken = places[n]
            places[n] = at
            at += taken
        for n in range(count):
            value = source[n]
            at = ((value - low) >> shift) & 255
            target[places[at]] = value
            places[at] += 1
        source, target = target, source
        shift += 8
    if source != seqs:
        memcpy(seqs, source, count * 8)
    free(spare)
    return 0
