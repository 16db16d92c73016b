"""Batch: packed messages on their way into a stream; the unit that the layers pass on.

`Batch.of(items)` takes (subject, payload) or (subject, payload, headers) tuples; a server fills one from its read buffer.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset, strlen

from penstock.format.block_scan cimport BlockScan, ScanRow
from penstock.format.constants cimport FLAG_HEADERS, FLAG_MSG_ID, FLAG_TTL
from penstock.wire.header_lines cimport line_end
from penstock.base.prefetch cimport prefetch

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(object items, Py_ssize_t n)
    bint PyTuple_CheckExact(PyObject* item)
    Py_ssize_t tuple_size "PyTuple_GET_SIZE"(PyObject* item)
    PyObject* tuple_item "PyTuple_GET_ITEM"(PyObject* item, Py_ssize_t n)
    bint is_text "PyUnicode_CheckExact"(PyObject* text)
    bint is_ascii "PyUnicode_IS_COMPACT_ASCII"(PyObject* text)
    void* text_of "PyUnicode_DATA"(PyObject* text)
    Py_ssize_t text_size "PyUnicode_GET_LENGTH"(PyObject* text)
    bint is_bytes "PyBytes_CheckExact"(PyObject* data)
    char* bytes_of "PyBytes_AS_STRING"(PyObject* data)
    Py_ssize_t bytes_size "PyBytes_GET_SIZE"(PyObject* data)

cdef extern from "string.h" nogil:
    void* memmem(const void* haystack, size_t size, const void* needle, size_t needle_size)


cdef enum:
    RULED_COUNT = 16
    RULED_SIZE_MAX = 43
    GROUP = 32
    TEXTS_SIZE = 16384                     # the subjects of a batch are copied into chunks of this size,
    TEXT_MAX = 1024                        # except those that are longer than this
    SIZE_SAFE = 16 * 1024 * 1024           # with a payload up to this size no record is too large, whatever the subject

cdef const char* RULED[RULED_COUNT]
RULED[:] = [
    b"Nats-Msg-Id", b"Nats-Expected-Last-Subject-Sequence", b"Nats-Expected-Last-Sequence", b"Nats-TTL", b"Nats-Rollup",
    b"Nats-Expected-Stream", b"Nats-Expected-Last-Msg-Id", b"Nats-Expected-Last-Subject-Sequence-Subject",
    b"Nats-Batch-Id", b"Nats-Incr", b"Nats-Request-Info", b"Nats-Schedule", b"Nats-Schedule-Next",
    b"Nats-Schedule-Time-Zone", b"Nats-Scheduler", b"Nats-Stream-Source",
]
cdef Py_ssize_t RULED_SIZES[RULED_COUNT]
for _n in range(RULED_COUNT):
    RULED_SIZES[_n] = strlen(RULED[_n])


cdef inline void _hint_items(object items, Py_ssize_t start, Py_ssize_t stop) noexcept:
    """Prefetch the first bytes of the next subjects and payloads, which are scattered over the memory."""
    cdef PyObject* item
    cdef Py_ssize_t n
    for n in range(start, stop):
        item = PyList_GET_ITEM(items, n)
        if PyTuple_CheckExact(item) and tuple_size(item) >= 2:
            prefetch(tuple_item(item, 0))
            prefetch(<char*>tuple_item(item, 0) + 64)
            prefetch(tuple_item(item, 1))


cdef class Batch:
    """Packed messages; `keep` holds the objects that the pointers point into."""

    def __cinit__(self):
        self.keep = []

    def __dealloc__(self):
        free(self.items)

    cdef int reserve(self, Py_ssize_t count) except -1:
        cdef Incoming* grown
        if count > self.capacity:
            grown = <Incoming*>realloc(self.items, count * sizeof(Incoming))
            if grown == NULL:
                raise MemoryError
            self.items = grown
            self.capacity = count
        return 0

    cdef Incoming* add(self) except NULL:
        cdef Incoming* grown
        cdef Incoming* item
        if self.count == self.capacity:
            grown = <Incoming*>realloc(self.items, (self.capacity * 2 + 16) * sizeof(Incoming))
            if grown == NULL:
                raise MemoryError
            self.items = grown
            self.capacity = self.capacity * 2 + 16
        item = &self.items[self.count]
        memset(item, 0, sizeof(Incoming))
        self.count += 1
        return item

    cdef const uint8_t* near(self, const uint8_t* text, Py_ssize_t size) except NULL:
        """Copy the text next to the batch's other texts: it is read several times and should not be scattered."""
        cdef bytes chunk
        if size == 0 or size > TEXT_MAX:
            return text
        if size > self.texts_left:
            chunk = PyBytes_FromStringAndSize(NULL, TEXTS_SIZE)
            self.keep.append(chunk)
            self.texts = <uint8_t*>PyBytes_AS_STRING(chunk)
            self.texts_left = TEXTS_SIZE
        memcpy(self.texts, text, size)
        text = self.texts
        self.texts += size
        self.texts_left -= size
        return text

    cdef int add_item(self, object subject, object payload, object headers) except -1:
        cdef Py_ssize_t size
        cdef const char* text
        cdef Incoming* item = self.add()
        cdef bytes raw
        if isinstance(subject, str):
            text = PyUnicode_AsUTF8AndSize(subject, &size)
        elif PyBytes_CheckExact(subject):
            text = PyBytes_AS_STRING(subject)
            size = PyBytes_GET_SIZE(subject)
        else:
            raise TypeError(f"a subject is str or bytes, not {type(subject).__name__}")
        item.subject = self.near(<const uint8_t*>text, size) if self.has_many else <const uint8_t*>text
        item.subject_size = <uint32_t>min(size, 0xFFFFFFFF)
        if PyBytes_CheckExact(payload):
            raw = <bytes>payload
        elif isinstance(payload, str):
            raise TypeError("a payload is bytes: encode the text first")
        else:
            raw = bytes(memoryview(payload))
            self.keep.append(raw)
        if PyBytes_GET_SIZE(raw) > 0x7FFFFFFF:
            raise ValueError(f"a payload of {PyBytes_GET_SIZE(raw)} bytes does not fit")
        item.payload = <const uint8_t*>PyBytes_AS_STRING(raw)
        item.payload_size = <uint32_t>PyBytes_GET_SIZE(raw)
        if headers is not None:
            raw = headers if PyBytes_CheckExact(headers) else _encode_headers(headers)
            if PyBytes_GET_SIZE(raw) > 0x7FFFFFFF:
                raise ValueError(f"headers of {PyBytes_GET_SIZE(raw)} bytes do not fit")
            if PyBytes_GET_SIZE(raw):
                self.keep.append(raw)
                item.headers = <const uint8_t*>PyBytes_AS_STRING(raw)
                item.headers_size = <uint32_t>PyBytes_GET_SIZE(raw)
                if may_ask(item):
                    item.has_rules = True
                    self.has_rules = True
        return 0

    cdef int add_plain(self, list items) except -1:
        """Add the next items, as long as each is a pair of ASCII text and bytes.

        No reference counter is touched: a counter that is written to has to be written back to memory.
        """
        cdef PyObject* pair
        cdef PyObject* subject
        cdef PyObject* payload
        cdef Incoming* item
        if self.count == 0:
            _hint_items(items, 0, min(GROUP, PyList_GET_SIZE(items)))
        while self.count < PyList_GET_SIZE(items):
            if self.count & (GROUP - 1) == 0:
                _hint_items(items, self.count + GROUP, min(self.count + 2 * GROUP, PyList_GET_SIZE(items)))
            pair = PyList_GET_ITEM(items, self.count)
            if not PyTuple_CheckExact(pair) or tuple_size(pair) != 2:
                return 0
            subject = tuple_item(pair, 0)
            payload = tuple_item(pair, 1)
            if not (is_text(subject) and is_ascii(subject) and is_bytes(payload)) or bytes_size(payload) > 0x7FFFFFFF:
                return 0
            item = self.add()
            item.subject_size = <uint32_t>min(text_size(subject), 0xFFFFFFFF)
            item.subject = <const uint8_t*>text_of(subject)
            if self.has_many:
                item.subject = self.near(item.subject, text_size(subject))
            item.payload = <const uint8_t*>bytes_of(payload)
            item.payload_size = <uint32_t>bytes_size(payload)
        return 0

    @staticmethod
    def of(items):
        """A batch of (subject, payload[, headers]) tuples; it keeps `items` alive."""
        cdef Batch batch = Batch()
        cdef Py_ssize_t size
        cdef bint is_list
        if not isinstance(items, (list, tuple)):
            items = list(items)
        is_list = type(items) is list
        batch.keep.append(items)
        batch.reserve(len(items))
        batch.has_many = len(items) > GROUP
        if is_list:
            batch.add_plain(items)
        while batch.count < len(items):
            item = items[batch.count]
            if type(item) is tuple and PyTuple_GET_SIZE(item) == 2:
                batch.add_item(<object>PyTuple_GET_ITEM(item, 0), <object>PyTuple_GET_ITEM(item, 1), None)
                if is_list:
                    batch.add_plain(items)
                continue
            size = len(item)
            if size == 2:
                batch.add_item(item[0], item[1], None)
            elif size == 3:
                batch.add_item(item[0], item[1], item[2])
            else:
                raise ValueError(f"message #{batch.count}: (subject, payload) or (subject, payload, headers)")
        return batch

    @staticmethod
    def one(subject, payload, headers=None):
        cdef Batch batch = Batch()
        batch.keep.append(subject)
        batch.keep.append(payload)
        batch.add_item(subject, payload, headers)
        return batch

    @staticmethod
    def raw(items):
        """A batch of (seq, time_ns, subject, headers or None, payload) with given sequences (0: the next) and times."""
        cdef Batch batch = Batch()
        cdef Incoming* item
        items = list(items)
        batch.keep.append(items)
        batch.takes_names = True           # the subjects come from a stream
        for seq, time, subject, headers, payload in items:
            batch.add_item(subject, payload, headers)
            item = &batch.items[batch.count - 1]
            item.has_rules = False
            item.seq = seq
            item.time = time
        batch.has_rules = False
        return batch

    @staticmethod
    def of_scan(BlockScan scan not None, const unsigned char[::1] data not None, without=(), bint keep_times=False):
        """The messages that a scan found in `data`, except the rows `without`.

        Their times are kept with `keep_times`; otherwise the append sets them.
        """
        cdef Batch batch = Batch()
        cdef Incoming* item
        cdef ScanRow* row
        cdef Py_ssize_t n
        batch.keep.append(data)
        batch.takes_names = True
        batch.reserve(scan.count)
        for n in range(scan.count):
            if without and n in without:
                continue
            row = &scan.rows[n]
            item = batch.add()
            item.subject = &data[row.subject]
            item.subject_size = row.subject_size
            if row.flags & FLAG_HEADERS:
                item.headers = &data[row.headers]
                item.headers_size = row.headers_size
            item.payload = &data[row.headers + row.headers_size] if row.payload_size else NULL
            item.payload_size = row.payload_size
            item.flags = row.flags & (FLAG_TTL | FLAG_MSG_ID)
            if keep_times:
                item.time = row.time
        return batch

    @staticmethod
    def of_columns(Py_ssize_t count, subjects, payloads, headers=None, times=None):
        """A batch over Arrow buffers, which it keeps alive: nothing is copied.

        `subjects` and `payloads` are (offsets, data), `headers` is (bitmap or None, first bit, offsets, data). Offsets
        are int32 and begin with that of the first row. `times` are int64 nanoseconds.
        """
        cdef Batch batch = Batch()
        cdef Incoming* item
        cdef Py_ssize_t n, bit = 0
        cdef const int32_t[::1] subject_at = subjects[0]
        cdef const unsigned char[::1] subject_data = subjects[1]
        cdef const int32_t[::1] payload_at = payloads[0]
        cdef const unsigned char[::1] payload_data = payloads[1]
        cdef const int32_t[::1] header_at = None
        cdef const unsigned char[::1] header_data = None
        cdef const unsigned char[::1] header_bits = None
        cdef const int64_t[::1] time_at = None
        batch.keep += [subjects, payloads, headers, times]
        _check_offsets(subject_at, count, subject_data.shape[0], "subjects")
        _check_offsets(payload_at, count, payload_data.shape[0], "payloads")
        if headers is not None:
            header_bits, bit, header_at, header_data = headers
            _check_offsets(header_at, count, header_data.shape[0], "headers")
            if header_bits is not None and header_bits.shape[0] * 8 < bit + count:
                raise ValueError("headers: the bitmap is shorter than the column")
        if times is not None:
            time_at = times
            if time_at.shape[0] < count:
                raise ValueError("times: the column is shorter than the others")
        batch.reserve(count)
        for n in range(count):
            item = batch.add()
            item.subject = &subject_data[0] + subject_at[n] if subject_data.shape[0] else NULL
            item.subject_size = subject_at[n + 1] - subject_at[n]
            item.payload = &payload_data[0] + payload_at[n] if payload_data.shape[0] else NULL
            item.payload_size = payload_at[n + 1] - payload_at[n]
            if header_at is not None and header_at[n + 1] > header_at[n] and (
                    header_bits is None or (header_bits[(bit + n) >> 3] >> ((bit + n) & 7)) & 1):
                item.headers = &header_data[0] + header_at[n]
                item.headers_size = header_at[n + 1] - header_at[n]
                if may_ask(item):
                    item.has_rules = True
                    batch.has_rules = True
            if time_at is not None:
                item.time = time_at[n]
        return batch

    def asks_rules(self, Py_ssize_t n):
        """Whether message n has a header that a rule reads."""
        return self.items[n].has_rules

    def subject(self, Py_ssize_t n):
        return self.items[n].subject[:self.items[n].subject_size]

    def set_subject(self, Py_ssize_t n, bytes subject not None):
        """Give message n another subject."""
        self.keep.append(subject)
        self.items[n].subject = <const uint8_t*>PyBytes_AS_STRING(subject)
        self.items[n].subject_size = <uint32_t>min(PyBytes_GET_SIZE(subject), 0xFFFFFFFF)

    def payload(self, Py_ssize_t n):
        return self.items[n].payload[:self.items[n].payload_size] if self.items[n].payload_size else b""

    def payload_size(self, Py_ssize_t n):
        return self.items[n].payload_size

    def headers(self, Py_ssize_t n):
        """The raw header block of message n, or None."""
        if self.items[n].headers == NULL:
            return None
        return self.items[n].headers[:self.items[n].headers_size]

    def set_headers(self, Py_ssize_t n, bytes raw):
        """Give message n another header block."""
        self.keep.append(raw)
        self.items[n].headers = <const uint8_t*>PyBytes_AS_STRING(raw) if raw else NULL
        self.items[n].headers_size = <uint32_t>len(raw) if raw else 0

    def mark(self, Py_ssize_t n, bint has_ttl, bint has_msg_id, bint is_rollup):
        self.items[n].flags = (32 if has_ttl else 0) | (64 if has_msg_id else 0)
        self.items[n].is_rollup = is_rollup

    def seq(self, Py_ssize_t n):
        """The sequence that message n got: 0 when it was refused; for a duplicate the sequence of the first message."""
        return self.items[n].seq

    def status(self, Py_ssize_t n):
        return self.items[n].status

    def seqs(self):
        return [self.items[n].seq for n in range(self.count)]

    def refuse(self, Py_ssize_t n):
        """Message n is not stored: a rule refused it, or it is a duplicate."""
        self.items[n].status = STATUS_JUDGED
        self.items[n].seq = 0

    def pass_by(self, Py_ssize_t n, uint64_t seq):
        """Message n takes a sequence but is not stored: no consumer is interested in it."""
        self.items[n].status = STATUS_OK
        self.items[n].seq = seq

    def mark_duplicate(self, Py_ssize_t n, uint64_t seq):
        """Message n is not stored: the stream already has it, at `seq`."""
        self.items[n].status = STATUS_DUPLICATE
        self.items[n].seq = seq

    def refused(self, Py_ssize_t start, Py_ssize_t stop):
        """(index, status) of the messages in [start, stop) that the store refused.

        Messages that a rule refused and duplicates are not among them.
        """
        cdef Py_ssize_t n
        return [(n, self.items[n].status) for n in range(start, stop)
                if self.items[n].status and self.items[n].status < STATUS_JUDGED]

    def duplicates(self, Py_ssize_t start, Py_ssize_t stop):
        """{index: sequence} of the duplicates in [start, stop)."""
        cdef Py_ssize_t n
        return {n: self.items[n].seq for n in range(start, stop) if self.items[n].status == STATUS_DUPLICATE}

    def sift_rules(self, int64_t max_msg_size):
        """Clear `has_rules` of the messages that use no rule but a message id; True when others are left.

        Those have to be checked one by one. So does a message whose size may break a rule, as only that check keeps the
        order of the rules.
        """
        cdef Py_ssize_t n
        cdef Incoming* item
        cdef bint is_left = False
        for n in range(self.count):
            item = &self.items[n]
            if not item.has_rules:
                continue
            if (item.headers_size > 65535 or item.payload_size > SIZE_SAFE or has_status(item)
                    or (0 <= max_msg_size < <int64_t>item.headers_size + item.payload_size)
                    or not asks_id_at_most(item)):
                is_left = True
                continue
            item.has_rules = False
            item.flags = FLAG_MSG_ID if item.id_size else 0
            item.is_rollup = False
        self.has_rules = is_left
        return is_left

    def msg_id_before(self, Py_ssize_t start, Py_ssize_t stop):
        """The message id of the last stored message in [start, stop), b"" when it had none; after `sift_rules`."""
        cdef Incoming* item
        while stop > start:
            stop -= 1
            item = &self.items[stop]
            if item.status == STATUS_OK:
                return item.headers[item.id_start:item.id_start + item.id_size] if item.id_size else b""
        return b""

    def next_rule(self, Py_ssize_t start):
        """The first message from `start` on that has a header of a rule; `count` when there is none."""
        while start < self.count and not self.items[start].has_rules:
            start += 1
        return start


cdef bint may_ask(Incoming* item) noexcept nogil:
    """Whether the headers may use a rule: such headers begin with `Nats-`. A status counts, as it must be removed."""
    return memmem(item.headers, item.headers_size, b"Nats-", 5) != NULL or has_status(item)


cdef bint has_status(Incoming* item) noexcept nogil:
    """Whether the first line has a status after the version. A stream does not keep it."""
    cdef const uint8_t* end
    if item.headers_size < 8 or memcmp(item.headers, b"NATS/1.0", 8) != 0:
        return False
    end = <const uint8_t*>memchr(item.headers, c"\r", item.headers_size)
    return end != NULL and end > item.headers + 8


cdef bint asks_id_at_most(Incoming* item) noexcept nogil:
    """Whether the headers use no rule but a message id, as `_asked` in stream/rules.py finds it.

    If so, `id_start` and `id_size` locate the id.
    """
    cdef const uint8_t* stop = item.headers + item.headers_size
    cdef const uint8_t* at = item.headers
    cdef const uint8_t* colon
    cdef const uint8_t* end
    cdef bint is_found = False
    item.id_start = item.id_size = 0
    while True:
        at = <const uint8_t*>memchr(at, c"\r", stop - at)
        if at == NULL or stop - at < 7:
            return True
        at += 1
        if at[0] != c"\n" or at[1] != c"N" or memcmp(at + 1, b"Nats-", 5) != 0:
            continue
        at += 1
        colon = <const uint8_t*>memchr(at, c":", min(stop - at, RULED_SIZE_MAX + 1))
        if colon == NULL or not is_ruled(at, colon - at):
            continue
        if colon - at != 11 or memcmp(at, b"Nats-Msg-Id", 11) != 0:
            return False
        if is_found:
            continue                       # the first one counts
        is_found = True
        colon += 1
        end = line_end(colon, stop)
        while colon < end and colon[0] == c" ":
            colon += 1
        item.id_start = <uint16_t>(colon - item.headers)
        item.id_size = <uint16_t>(end - colon)


cdef bint is_ruled(const uint8_t* key, Py_ssize_t size) noexcept nogil:
    """Whether a rule reads this header."""
    cdef Py_ssize_t n
    for n in range(RULED_COUNT):
        if RULED_SIZES[n] == size and memcmp(RULED[n], key, size) == 0:
            return True
    return False


def ruled_headers():
    """The headers that a rule reads."""
    return frozenset([<bytes>RULED[n] for n in range(RULED_COUNT)])


cdef int _check_offsets(const int32_t[::1] offsets, Py_ssize_t count, Py_ssize_t size, str what) except -1:
    """No pointer may leave the data, whatever the offsets say."""
    cdef Py_ssize_t n
    if offsets.shape[0] < count + 1 or offsets[0] < 0 or offsets[count] > size:
        raise ValueError(f"{what}: the offsets leave the column's {size} bytes")
    for n in range(count):
        if offsets[n] > offsets[n + 1]:
            raise ValueError(f"{what}: the offsets of row {n} go back")
    return 0


def _encode_headers(headers):
    from penstock.wire.headers import encode
    return encode(headers)
