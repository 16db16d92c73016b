"""Subjects and filters as bytes: what is well formed, what matches, covers and overlaps.

Rules: tests/twins/subject.py. The loops take any bytes: a token is what stands between two dots, also
when it is empty; `*` stands for one token and `>`, as the last one, for one or more.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

FAULTS = (
    None,
    "it is empty",
    "it is longer than 65535 bytes",
    "it has an empty token",
    "it has a blank or a control character",
    "it has a wildcard token",
    "it has a '>' that is not the last token",
)


cdef inline Py_ssize_t token_end(const uint8_t* s, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Offset of the dot that ends the token at `start`, or `stop`."""
    while start < stop and s[start] != c".":
        start += 1
    return start


cdef inline bint is_star(const uint8_t* s, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    return start < stop and s[start] == c"*" and (start + 1 == stop or s[start + 1] == c".")


cdef inline bint is_tail(const uint8_t* s, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    return start + 1 == stop and s[start] == c">"


cdef int fault(const uint8_t* s, Py_ssize_t n, int wildcards) noexcept nogil:
    """Why `s` is no subject, no filter or no name, as WILDCARDS_… says; the first fault from the left."""
    cdef Py_ssize_t start = 0, at = 0
    if n <= 0:
        return FAULT_EMPTY
    if n > SUBJECT_SIZE_MAX:
        return FAULT_SIZE
    while True:
        while at < n and s[at] != c".":
            if s[at] <= 0x20 or s[at] == 0x7f:
                return FAULT_BYTE
            at += 1
        if at == start:
            return FAULT_TOKEN
        if wildcards != WILDCARDS_PLAIN and at == start + 1 and (s[start] == c"*" or s[start] == c">"):
            if wildcards == WILDCARDS_NONE:
                return FAULT_WILDCARD
            if s[start] == c">" and at < n:
                return FAULT_TAIL
        if at == n:
            return FAULT_NONE
        at += 1
        start = at


cdef int subject_fault(const uint8_t* s, Py_ssize_t n) noexcept nogil:
    return fault(s, n, WILDCARDS_NONE)


cdef int filter_fault(const uint8_t* s, Py_ssize_t n) noexcept nogil:
    return fault(s, n, WILDCARDS_MEANT)


cdef int name_fault(const uint8_t* s, Py_ssize_t n) noexcept nogil:
    return fault(s, n, WILDCARDS_PLAIN)


cdef bint subject_is_valid(const uint8_t* s, Py_ssize_t n) noexcept nogil:
    return fault(s, n, WILDCARDS_NONE) == FAULT_NONE


cdef bint filter_is_valid(const uint8_t* s, Py_ssize_t n) noexcept nogil:
    return fault(s, n, WILDCARDS_MEANT) == FAULT_NONE


cdef bint name_is_valid(const uint8_t* s, Py_ssize_t n) noexcept nogil:
    return fault(s, n, WILDCARDS_PLAIN) == FAULT_NONE


cdef Py_ssize_t literal_prefix(const uint8_t* s, Py_ssize_t n) noexcept nogil:
    """Bytes before the first wildcard token, or -1 where there is none."""
    cdef Py_ssize_t at = 0
    while True:
        if is_star(s, at, n) or is_tail(s, at, n):
            return at
        at = token_end(s, at, n)
        if at == n:
            return -1
        at += 1


cdef bint filter_is_literal(const uint8_t* s, Py_ssize_t n) noexcept nogil:
    return literal_prefix(s, n) < 0


cdef bint subject_matches(const uint8_t* subject, Py_ssize_t n, const uint8_t* pattern, Py_ssize_t m) noexcept nogil:
    cdef Py_ssize_t i = 0, j = 0
    while True:
        if is_tail(pattern, j, m):
            return True                    # a token begins at i, if only an empty one
        if is_star(pattern, j, m):
            i = token_end(subject, i, n)
            j += 1
        else:
            while j < m and pattern[j] != c".":
                if i >= n or subject[i] != pattern[j]:
                    return False
                i += 1
                j += 1
            if i < n and subject[i] != c".":
                return False
        if i == n or j == m:
            return i == n and j == m
        i += 1
        j += 1


cdef bint filter_covers(const uint8_t* a, Py_ssize_t n, const uint8_t* b, Py_ssize_t m) noexcept nogil:
    """Whether every subject that `b` matches is matched by `a`."""
    cdef Py_ssize_t i = 0, j = 0, i_end, j_end
    while True:
        if is_tail(a, i, n):
            return True
        if is_tail(b, j, m):
            return False                   # b goes on for any number of tokens, a does not
        i_end = token_end(a, i, n)
        j_end = token_end(b, j, m)
        if not is_star(a, i, n) and (i_end - i != j_end - j or is_star(b, j, m) or memcmp(a + i, b + j, i_end - i) != 0):
            return False
        if i_end == n or j_end == m:
            return i_end == n and j_end == m
        i = i_end + 1
        j = j_end + 1


cdef bint filters_overlap(const uint8_t* a, Py_ssize_t n, const uint8_t* b, Py_ssize_t m) noexcept nogil:
    """Whether some subject is matched by both."""
    cdef Py_ssize_t i = 0, j = 0, i_end, j_end
    while True:
        if is_tail(a, i, n) or is_tail(b, j, m):
            return True
        i_end = token_end(a, i, n)
        j_end = token_end(b, j, m)
        if not is_star(a, i, n) and not is_star(b, j, m):
            if i_end - i != j_end - j or memcmp(a + i, b + j, i_end - i) != 0:
                return False
        if i_end == n or j_end == m:
            return i_end == n and j_end == m
        i = i_end + 1
        j = j_end + 1


cdef bytes as_bytes(object text):
    """The bytes of a subject or filter given as text (UTF-8) or as bytes."""
    if isinstance(text, bytes):
        return <bytes>text
    if isinstance(text, str):
        return (<str>text).encode()
    raise TypeError(f"a subject is str or bytes, not {type(text).__name__}")


def is_valid_subject(subject: bytes | str) -> bool:
    cdef bytes s
    try:
        s = as_bytes(subject)
    except UnicodeEncodeError:
        return False
    return bool(subject_is_valid(<const uint8_t*>s, len(s)))


def is_valid_filter(filter: bytes | str) -> bool:
    cdef bytes s
    try:
        s = as_bytes(filter)
    except UnicodeEncodeError:
        return False
    return bool(filter_is_valid(<const uint8_t*>s, len(s)))


def is_valid_name(name: bytes | str) -> bool:
    cdef bytes s
    try:
        s = as_bytes(name)
    except UnicodeEncodeError:
        return False
    return bool(name_is_valid(<const uint8_t*>s, len(s)))


def is_literal_filter(filter: bytes | str) -> bool:
    cdef bytes s = as_bytes(filter)
    return bool(filter_is_literal(<const uint8_t*>s, len(s)))


def explain_subject(subject: bytes | str) -> str | None:
    cdef bytes s = as_bytes(subject)
    return FAULTS[subject_fault(<const uint8_t*>s, len(s))]


def explain_filter(filter: bytes | str) -> str | None:
    cdef bytes s = as_bytes(filter)
    return FAULTS[filter_fault(<const uint8_t*>s, len(s))]


def matches(subject: bytes | str, filter: bytes | str) -> bool:
    cdef bytes s = as_bytes(subject), f = as_bytes(filter)
    return bool(subject_matches(<const uint8_t*>s, len(s), <const uint8_t*>f, len(f)))


def covers(a: bytes | str, b: bytes | str) -> bool:
    cdef bytes x = as_bytes(a), y = as_bytes(b)
    return bool(filter_covers(<const uint8_t*>x, len(x), <const uint8_t*>y, len(y)))


def overlap(a: bytes | str, b: bytes | str) -> bool:
    cdef bytes x = as_bytes(a), y = as_bytes(b)
    return bool(filters_overlap(<const uint8_t*>x, len(x), <const uint8_t*>y, len(y)))


cdef class Filters:
    """An immutable list of well-formed filters, packed into one buffer.

    With `exact` they are the names of subjects: each means that subject alone, also where it has a wildcard for a token.

    Always true: every item is a valid filter or name; `is_all` when the list is empty or holds `>`.
    """

    def __cinit__(self, filters=(), bint exact=False):
        if isinstance(filters, (str, bytes)):
            raise TypeError("Filters takes a list of filters, not a single one")
        cdef list texts = [as_bytes(given) for given in filters]
        cdef Py_ssize_t total = 0, prefix
        cdef int index, reason
        cdef bytes text
        cdef uint8_t* at
        for index, text in enumerate(texts):
            reason = fault(<const uint8_t*>text, len(text), WILDCARDS_PLAIN if exact else WILDCARDS_MEANT)
            if reason != FAULT_NONE:
                shown = text if len(text) <= 100 else text[:100] + b"..."
                raise ValueError(f"filter {index}, {shown!r}: {FAULTS[reason]}")
            total += len(text)
        # The slack lets the subject tree compare patterns in whole words, and gives an empty list memory of its own.
        self.items = <Filter*>calloc(len(texts) + 1, sizeof(Filter))
        self.packed = <uint8_t*>malloc(total + PATTERN_SLACK)
        if self.items == NULL or self.packed == NULL:
            raise MemoryError
        at = self.packed
        self.is_all = not texts
        for index, text in enumerate(texts):
            memcpy(at, <const uint8_t*>text, len(text))
            prefix = -1 if exact else literal_prefix(at, len(text))
            self.items[index].pattern = at
            self.items[index].size = <uint32_t>len(text)
            self.items[index].prefix_size = <uint32_t>(len(text) if prefix < 0 else prefix)
            if prefix < 0:
                self.items[index].kind = FILTER_LITERAL
            elif is_tail(at, prefix, len(text)):
                self.items[index].kind = FILTER_PREFIX
                self.is_all = self.is_all or prefix == 0
            else:
                self.items[index].kind = FILTER_WILD
            at += len(text)
        self.count = <int>len(texts)
        self.is_literal = self.count == 1 and self.items[0].kind == FILTER_LITERAL

    def __dealloc__(self):
        free(self.items)
        free(self.packed)

    cdef bint matches(self, const uint8_t* subject, Py_ssize_t n) noexcept nogil:
        """Whether any of the filters matches."""
        cdef int index
        cdef Filter* item
        if self.is_all:
            return True
        for index in range(self.count):
            item = &self.items[index]
            if n < <Py_ssize_t>item.prefix_size or memcmp(subject, item.pattern, item.prefix_size) != 0:
                continue
            if item.kind == FILTER_PREFIX:
                return True
            if item.kind == FILTER_LITERAL:
                if n == <Py_ssize_t>item.size:
                    return True
                continue
            if subject_matches(
                subject + item.prefix_size, n - item.prefix_size,
                item.pattern + item.prefix_size, item.size - item.prefix_size,
            ):
                return True
        return False

    def match(self, subject: bytes | str) -> bool:
        cdef bytes s = as_bytes(subject)
        return bool(self.matches(<const uint8_t*>s, len(s)))

    def __len__(self):
        return self.count

    def __repr__(self):
        cdef int index
        return f"Filters({[self.items[index].pattern[: self.items[index].size] for index in range(self.count)]!r})"


cdef Filters as_filters(object filters):
    """Filters as they are, or made of a list of them."""
    return <Filters>filters if isinstance(filters, Filters) else Filters(filters)


def first_overlap(Filters filters not None):
    """The first two filters, by their places, that some subject matches both of; None where there are none."""
    cdef Py_ssize_t n, wild_count = 0, first = -1, second = -1, count = filters.count
    cdef Py_ssize_t* twins = <Py_ssize_t*>malloc((count + 1) * sizeof(Py_ssize_t))    # the next one that is the same
    cdef Py_ssize_t* wilds = <Py_ssize_t*>malloc((count + 1) * sizeof(Py_ssize_t))    # those with wildcards
    try:
        if twins == NULL or wilds == NULL:
            raise MemoryError
        later = {}
        for n in range(count - 1, -1, -1):
            text = filters.items[n].pattern[:filters.items[n].size]
            twins[n] = later.get(text, -1)
            later[text] = n
        for n in range(count):
            if filters.items[n].kind != FILTER_LITERAL:
                wilds[wild_count] = n
                wild_count += 1
        with nogil:
            find_overlap(filters, twins, wilds, wild_count, &first, &second)
    finally:
        free(twins)
        free(wilds)
    return None if first < 0 else (first, second)


cdef void find_overlap(Filters filters, const Py_ssize_t* twins, const Py_ssize_t* wilds, Py_ssize_t wild_count,
                       Py_ssize_t* first, Py_ssize_t* second) noexcept nogil:
    cdef Py_ssize_t i, j, n, found, wild = 0
    cdef Filter* a
    cdef Filter* b
    for i in range(filters.count):
        a = &filters.items[i]
        found = twins[i]
        while wild < wild_count and wilds[wild] <= i:
            wild += 1
        # Two literals overlap where they are the same: of one, only those with wildcards are looked at.
        for n in range(wild if a.kind == FILTER_LITERAL else i + 1, wild_count if a.kind == FILTER_LITERAL else filters.count):
            j = wilds[n] if a.kind == FILTER_LITERAL else n
            if 0 <= found < j:
                break
            b = &filters.items[j]
            if memcmp(a.pattern, b.pattern, min(a.prefix_size, b.prefix_size)) != 0:
                continue                   # they differ before the first wildcard of either
            if filters_overlap(a.pattern, a.size, b.pattern, b.size):
                found = j
                break
        if found >= 0:
            first[0] = i
            second[0] = found
            return


def any_overlap(Filters a not None, Filters b not None):
    """Whether some subject is matched by a filter of each."""
    cdef bint found = False
    cdef int i, j
    cdef Filter* x
    cdef Filter* y
    literals = {a.items[i].pattern[:a.items[i].size] for i in range(a.count) if a.items[i].kind == FILTER_LITERAL}
    for j in range(b.count):
        if b.items[j].kind == FILTER_LITERAL and b.items[j].pattern[:b.items[j].size] in literals:
            return True
    with nogil:
        for i in range(a.count):
            x = &a.items[i]
            for j in range(b.count):
                y = &b.items[j]
                if x.kind == FILTER_LITERAL and y.kind == FILTER_LITERAL:
                    continue
                if filters_overlap(x.pattern, x.size, y.pattern, y.size):
                    found = True
                    break
            if found:
                break
    return found
