"""DirectSender: answers direct gets with stored messages, from the block to the client's buffer without a Python object between.

The answer is the message's payload, and its headers with where it comes from behind them. Rules: docs/wire.md, "Direct get".
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock.store.write.engine cimport StreamEngine
from penstock.format.constants cimport FLAG_ERASED, FLAG_HEADERS
from penstock.wire.frame cimport write_decimal
from penstock.broker.routing.router cimport Router, MessageView
from penstock.store.index.index cimport Index
from penstock.broker.routing.origin cimport ORIGIN_DIRECT
from penstock.store.read.reader cimport Reader
from penstock.format.record cimport Record
from penstock.broker.routing.sublist cimport Sublist

cdef enum:
    OWN_SIZE_MAX = 256                     # bytes that are added to a message's headers, without stream and subject

cdef int64_t NS_PER_SECOND = 1000000000
cdef int64_t SECONDS_PER_DAY = 86400


cdef inline void write_digits(uint8_t* out, uint64_t n, int count) noexcept nogil:
    while count > 0:
        count -= 1
        out[count] = <uint8_t>(48 + n % 10)
        n //= 10


cdef void write_day(uint8_t* out, int64_t day) noexcept nogil:
    """The date of a day since 1970 as 2026-11-15: ten bytes. Years of four digits."""
    # The calendar of 400 years, begun in March, so that the leap day is the last of its year.
    cdef int64_t shifted = day + 719468
    cdef int64_t era = (shifted if shifted >= 0 else shifted - 146096) // 146097
    cdef int64_t of_era = shifted - era * 146097
    cdef int64_t year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    cdef int64_t of_year = of_era - (365 * year + year // 4 - year // 100)
    cdef int64_t month = (5 * of_year + 2) // 153
    cdef int64_t date = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    write_digits(out, <uint64_t>(year + era * 400 + (1 if month <= 2 else 0)), 4)
    out[4] = c"-"
    write_digits(out + 5, <uint64_t>month, 2)
    out[7] = c"-"
    write_digits(out + 8, <uint64_t>date, 2)


cdef class DirectSender:
    """Answers of one stream. The caller has the stream's lock."""
    cdef Router router
    cdef Sublist sublist
    cdef StreamEngine engine
    cdef bytes head                        # "Nats-Stream: S\r\nNats-Subject: "
    cdef uint8_t* text
    cdef size_t capacity
    cdef int64_t day                       # the day of `date`
    cdef uint8_t date[10]

    def __cinit__(self, Router router not None, Sublist sublist not None, StreamEngine engine not None, bytes stream not None):
        self.router = router
        self.sublist = sublist
        self.engine = engine
        self.head = b"Nats-Stream: " + stream + b"\r\nNats-Subject: "
        self.day = -1000000

    def __dealloc__(self):
        free(self.text)

    def send(self, bytes reply not None, uint64_t seq, bint bare=False):
        """Answer with the message at `seq`: whether there is one, and durable. `bare` leaves all headers out."""
        cdef Record record
        cdef const uint8_t* found = self._find(seq, &record)
        if found == NULL:
            return False
        self._route(reply, found, &record, 0 if bare else self._headers(found, &record, False, 0, 0))
        self._end()
        return True

    def send_placed(self, bytes reply not None, uint64_t seq, uint64_t pending, uint64_t last):
        """As `send`, for one of several messages, with how many follow and the sequence of the last one. Its size, or -1 if there is none."""
        cdef Record record
        cdef const uint8_t* found = self._find(seq, &record)
        if found == NULL:
            return -1
        self._route(reply, found, &record, self._headers(found, &record, True, pending, last))
        self._end()
        return record.subject_size + record.headers_size + record.payload_size

    def send_next(self, Reader reader not None, bytes reply not None, Py_ssize_t most, uint64_t byte_max, bint bare,
                  uint64_t pending, uint64_t last):
        """Answer with the next messages, `most` or `byte_max` bytes of them: (how many, bytes, still pending, last sequence)."""
        cdef Record record
        cdef const uint8_t* found
        cdef Py_ssize_t count = 0
        cdef uint64_t size = 0
        cdef uint32_t headers_size = 0
        try:
            while count < most and size < byte_max:
                found = reader.step(&record)
                if found == NULL:
                    break
                if not bare:
                    if pending:
                        pending -= 1
                    headers_size = self._headers(found, &record, True, pending, last)
                self._route(reply, found, &record, headers_size)
                last = record.seq
                size += record.subject_size + record.headers_size + record.payload_size
                count += 1
        finally:
            self._end()
        return count, size, pending, last

    cdef const uint8_t* _find(self, uint64_t seq, Record* record) except? NULL:
        cdef StreamEngine engine = self.engine
        cdef Index index = engine.index
        cdef Py_ssize_t at
        cdef int64_t row
        cdef const uint8_t* found
        engine.check()
        if seq == 0 or seq > min(index.last_seq, engine.log.committed_seq()) or seq < index.first_seq:
            return NULL
        at = index.block_of(seq)
        if at < 0:
            return NULL
        row = index.row_of(index.blocks[at], seq)
        if row < 0 or index.is_dead(index.blocks[at], <uint32_t>row):
            return NULL
        found = engine.record_at(index.blocks[at], <uint32_t>row, seq, record)
        if record.flags & FLAG_ERASED:
            return NULL                    # removed by another process meanwhile
        return found

    cdef uint32_t _headers(self, const uint8_t* block, const Record* record, bint is_placed, uint64_t pending,
                           uint64_t last) except? 0:
        """Put the answer's headers into `text`: their size."""
        cdef size_t wanted = <size_t>(PyBytes_GET_SIZE(self.head) + record.subject_size + record.headers_size + OWN_SIZE_MAX)
        cdef uint8_t* out
        cdef void* grown
        cdef int64_t seconds, day
        cdef uint64_t fraction
        cdef int digits
        if wanted > self.capacity:
            grown = realloc(self.text, wanted + wanted // 2)
            if grown == NULL:
                raise MemoryError
            self.text = <uint8_t*>grown
            self.capacity = wanted + wanted // 2
        out = self.text
        if record.flags & FLAG_HEADERS and record.headers_size > 2:
            memcpy(out, block + record.headers, record.headers_size - 2)      # the empty line follows our own headers
            out += record.headers_size - 2
        else:
            memcpy(out, b"NATS/1.0\r\n", 10)
            out += 10
        memcpy(out, PyBytes_AS_STRING(self.head), <size_t>PyBytes_GET_SIZE(self.head))
        out += PyBytes_GET_SIZE(self.head)
        memcpy(out, block + record.subject, record.subject_size)
        out += record.subject_size
        memcpy(out, b"\r\nNats-Sequence: ", 17)
        out += 17
        out += write_decimal(out, record.seq)
        memcpy(out, b"\r\nNats-Time-Stamp: ", 19)
        out += 19
        seconds = record.time // NS_PER_SECOND
        if record.time < seconds * NS_PER_SECOND:
            seconds -= 1
        fraction = <uint64_t>(record.time - seconds * NS_PER_SECOND)
        day = seconds // SECONDS_PER_DAY
        if seconds < day * SECONDS_PER_DAY:
            day -= 1
        if day != self.day:
            write_day(self.date, day)
            self.day = day
        seconds -= day * SECONDS_PER_DAY
        memcpy(out, self.date, 10)
        out[10] = c"T"
        write_digits(out + 11, <uint64_t>(seconds // 3600), 2)
        out[13] = c":"
        write_digits(out + 14, <uint64_t>(seconds // 60 % 60), 2)
        out[16] = c":"
        write_digits(out + 17, <uint64_t>(seconds % 60), 2)
        out += 19
        if fraction:
            digits = 9
            while fraction % 10 == 0:
                fraction //= 10
                digits -= 1
            out[0] = c"."
            write_digits(out + 1, fraction, digits)
            out += 1 + digits
        memcpy(out, b"Z\r\n", 3)
        out += 3
        if is_placed:
            memcpy(out, b"Nats-Num-Pending: ", 18)
            out += 18
            out += write_decimal(out, pending)
            memcpy(out, b"\r\nNats-Last-Sequence: ", 22)
            out += 22
            out += write_decimal(out, last)
            memcpy(out, b"\r\n", 2)
            out += 2
        memcpy(out, b"\r\n", 2)
        return <uint32_t>(out + 2 - self.text)

    cdef int _route(self, bytes reply, const uint8_t* block, const Record* record, uint32_t headers_size) except -1:
        cdef MessageView view
        view.subject = <const uint8_t*>PyBytes_AS_STRING(reply)
        view.subject_size = <uint32_t>PyBytes_GET_SIZE(reply)
        view.reply = NULL
        view.reply_size = 0
        view.headers = self.text if headers_size else NULL
        view.headers_size = headers_size
        view.payload = block + record.payload
        view.payload_size = record.payload_size
        view.copies = True
        return self.router.route(self.sublist, None, &view, ORIGIN_DIRECT, True)

    cdef int _end(self) except -1:
        """Streams and services get an answer at the end of the read, or now if none is running."""
        cdef Router router = self.router
        if router.depth == 0 and (router.touched or router.calls):
            router.depth += 1
            try:
                router.end_read()
            finally:
                router.depth -= 1
        return 0
