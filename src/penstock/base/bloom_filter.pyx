"""A Bloom filter of the subjects of a block and of their token prefixes: it says which blocks a filter can skip.

Layout: docs/format.md, "Subject filter". It may say yes wrongly, never no. The twin is tests/twins/bloom_filter.py.
"""
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.string cimport memchr, memcmp, memcpy, memset

from penstock.base.subject cimport as_bytes
from penstock.base.xxh64 cimport xxh64


cdef class FilterBuilder:
    """Takes names one by one, in fixed memory.

    Always true: `bits` is the filter of the largest size. A probe is the low bits of a sum, so the filter of half the
    size is the two halves of the larger one laid over each other.
    """

    cdef void add_hash(self, uint64_t hashed) noexcept nogil:
        cdef uint32_t probe = <uint32_t>hashed, step = <uint32_t>(hashed >> 32) | 1
        cdef uint64_t slot, mark = hashed if hashed else 1
        cdef int n
        if self.count <= SEEN_SLOTS // 2:
            slot = mark & (SEEN_SLOTS - 1)
            while self.seen[slot] != 0 and self.seen[slot] != mark:
                slot = (slot + 1) & (SEEN_SLOTS - 1)
            if self.seen[slot] == mark:
                return
            self.seen[slot] = mark
            self.count += 1
        for n in range(FILTER_PROBES):
            self.bits[(probe & 32767) >> 6] |= 1ULL << (probe & 63)
            probe += step

    cdef void add(self, const uint8_t* name, Py_ssize_t size) noexcept nogil:
        self.add_after(name, size, NULL, 0)

    cdef void add_after(self, const uint8_t* name, Py_ssize_t size, const uint8_t* before, Py_ssize_t before_size) noexcept nogil:
        """Add a subject and its token prefixes, but for those that `before`, which was added, has too."""
        cdef Py_ssize_t same = 0, shorter = min(size, before_size)
        cdef const uint8_t* dot
        cdef const uint8_t* at = name
        cdef int level = 0
        while same + 8 <= shorter and memcmp(name + same, before + same, 8) == 0:
            same += 8
        while same < shorter and name[same] == before[same]:
            same += 1
        self.add_hash(xxh64(name, size, SEED_SUBJECT))
        while level < FILTER_LEVELS_MAX:
            dot = <const uint8_t*>memchr(at, c".", size - (at - name))
            if dot == NULL:
                return
            at = dot + 1
            if at - name > same:
                self.add_hash(xxh64(name, at - name, SEED_PREFIX))
            level += 1

    def put(self, name):
        """Add a subject given as bytes or text."""
        cdef bytes raw = as_bytes(name)
        self.add(raw, len(raw))

    def finish(self):
        """The filter: the base-2 logarithm of its size, then its bits."""
        cdef int size_log = FILTER_SIZE_LOG_MIN
        cdef Py_ssize_t words = 512, n
        cdef uint64_t folded[512]
        while size_log < FILTER_SIZE_LOG_MAX and (1 << size_log) < <int>self.count:
            size_log += 1
        memcpy(folded, self.bits, sizeof(folded))
        while words * 8 > 1 << size_log:
            words //= 2
            for n in range(words):
                folded[n] |= folded[n + words]
        out = PyBytes_FromStringAndSize(NULL, 1 + words * 8)
        cdef uint8_t* at = <uint8_t*>PyBytes_AsString(out)
        at[0] = <uint8_t>size_log
        memcpy(at + 1, folded, words * 8)
        return out

    def clear(self):
        """Begin again."""
        memset(self.bits, 0, sizeof(self.bits))
        memset(self.seen, 0, sizeof(self.seen))
        self.count = 0


cdef bint _has(const uint8_t* bits, int size_log, uint64_t hashed) noexcept nogil:
    cdef uint32_t probe = <uint32_t>hashed, step = <uint32_t>(hashed >> 32) | 1
    cdef uint32_t mask = (8u << size_log) - 1
    cdef int n
    for n in range(FILTER_PROBES):
        if not bits[(probe & mask) >> 3] >> (probe & 7) & 1:
            return False
        probe += step
    return True


cdef bint filter_may_match(const uint8_t* filter, Py_ssize_t filter_size, const uint8_t* pattern,
                           Py_ssize_t size) noexcept nogil:
    """Whether a subject in `filter` may match the NATS filter `pattern`; True also where `filter` is no filter."""
    cdef Py_ssize_t at, token = 0, prefix = 0
    cdef int size_log, level = 0
    if filter_size < 1:
        return True
    size_log = filter[0]
    if not FILTER_SIZE_LOG_MIN <= size_log <= FILTER_SIZE_LOG_MAX or filter_size != 1 + (1 << size_log):
        return True
    for at in range(size + 1):
        if at < size and pattern[at] != c".":
            continue
        if at - token == 1 and (pattern[token] == c"*" or pattern[token] == c">"):
            return prefix == 0 or _has(filter + 1, size_log, xxh64(pattern, prefix, SEED_PREFIX))
        token = at + 1
        if at < size and level < FILTER_LEVELS_MAX:
            prefix = token
            level += 1
    return _has(filter + 1, size_log, xxh64(pattern, size, SEED_SUBJECT))


def build_filter(names):
    """The filter of the subjects in `names`, each bytes or text."""
    cdef FilterBuilder builder = FilterBuilder()
    for name in names:
        builder.put(name)
    return builder.finish()


def may_match(bytes filter_bytes not None, subject_filter):
    """Whether a subject that was put into `filter_bytes` may match the NATS filter `subject_filter`."""
    cdef bytes pattern
    try:
        pattern = as_bytes(subject_filter)
    except UnicodeEncodeError:
        return True
    return bool(filter_may_match(filter_bytes, len(filter_bytes), pattern, len(pattern)))
