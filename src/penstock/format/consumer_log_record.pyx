"""The records of a consumer log: encode, scan. Layout and rules: docs/format.md, "Consumer log".

`store/consumer_log/writer.pyx` writes records with the functions below; a scan gives all that are whole, and where others were.
"""
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.string cimport memcpy

from penstock.format.constants cimport RECORD_SIZE_MAX
from penstock.base.varint cimport read_varint, varint_size, write_varint
from penstock.base.xxh64 cimport xxh64

LOG_MAGIC = b"PSTKCLG\x01"
VERSION = LEDGER_VERSION
PUT, NOTE, REMOVE, END = LEDGER_PUT, LEDGER_NOTE, LEDGER_REMOVE, LEDGER_END
KINDS = {"put": PUT, "note": NOTE, "remove": REMOVE, "end": END}


cdef uint64_t NUMBER_MAX = 0x3FFFFFFFFFFFFFFFULL


cdef Py_ssize_t ledger_size(uint64_t number, uint64_t count, uint64_t body_size, uint64_t* rest) noexcept nogil:
    """Bytes of a whole record; `rest` gets what its size field says."""
    rest[0] = 9 + varint_size(number) + varint_size(count) + body_size
    return <Py_ssize_t>(varint_size(rest[0]) + rest[0])


cdef Py_ssize_t ledger_begin(uint8_t* out, uint64_t rest, uint8_t kind, uint64_t number, uint64_t count) noexcept nogil:
    """Write what stands before the body: the offset at which that begins."""
    cdef Py_ssize_t at = write_varint(out, 0, rest)
    out[at] = kind
    at = write_varint(out, at + 1, number)
    return write_varint(out, at, count)


cdef void ledger_finish(uint8_t* out, Py_ssize_t at, uint64_t salt) noexcept nogil:
    """The checksum, behind a body that ends at `at`."""
    cdef uint64_t checksum = xxh64(out, at, salt)
    memcpy(out + at, &checksum, 8)


cdef bint _whole(const uint8_t* data, Py_ssize_t start, Py_ssize_t stop, uint64_t salt, LedgerRecord* record) noexcept nogil:
    """Whether a record stands at `start`. What little it has besides its body is judged first: garbage is rarely hashed."""
    cdef uint64_t size = 0, checksum
    cdef Py_ssize_t at = read_varint(data, start, stop, &size)
    if at < 0 or size < LEDGER_SIZE_MIN or size > RECORD_SIZE_MAX or size > <uint64_t>(stop - at):
        return False
    record.end = at + <Py_ssize_t>size
    record.stop = record.end - 8
    record.kind = data[at]
    if record.kind == 0 or record.kind > 15:
        return False
    at = read_varint(data, at + 1, record.stop, &record.number)
    if at < 0:
        return False
    record.body = read_varint(data, at, record.stop, &record.count)
    if record.body < 0:
        return False
    if record.number > NUMBER_MAX or record.count > NUMBER_MAX:
        return False                       # one more can always be given out
    memcpy(&checksum, data + record.stop, 8)
    return xxh64(data + start, record.stop - start, salt) == checksum


cdef bint _is_zero(const uint8_t* data, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    while start < stop:
        if data[start]:
            return False
        start += 1
    return True


cdef class ConsumerLogScan:
    """The records between two offsets of a log.

    Always true: every byte belongs to a whole record, to a damaged range or to the torn tail.
    """

    cdef readonly list records             # (offset, kind, number, count, body)
    cdef readonly list damage              # (offset, size)
    cdef readonly Py_ssize_t stop          # of the last whole record
    cdef readonly Py_ssize_t torn          # bytes behind it that are not unused space
    cdef readonly bint is_newer            # it has a kind that a newer version wrote


def scan_records(const unsigned char[::1] log not None, Py_ssize_t start, Py_ssize_t stop, salt):
    """Walk and verify the records in log[start:stop]."""
    cdef ConsumerLogScan scan = ConsumerLogScan()
    cdef LedgerRecord record
    cdef uint64_t seed = salt
    cdef Py_ssize_t at = start, found
    cdef bint is_whole
    cdef const uint8_t* data
    scan.records = []
    scan.damage = []
    scan.stop = start
    if not 0 <= start <= stop <= log.shape[0]:
        raise ValueError(f"[{start}, {stop}) is not inside the {log.shape[0]} bytes given")
    if start == stop:
        return scan
    data = &log[0]
    while at < stop:
        found = at
        with nogil:
            is_whole = _whole(data, found, stop, seed, &record)
            while not is_whole and found + 1 < stop:
                found += 1
                if data[found] >= LEDGER_SIZE_MIN:
                    is_whole = _whole(data, found, stop, seed, &record)
        if not is_whole:
            break
        if found > at:
            scan.damage.append((at, found - at))
        if record.kind > LEDGER_END:
            scan.is_newer = True
            return scan
        scan.records.append((found, record.kind, record.number, record.count,
                             PyBytes_FromStringAndSize(<const char*>data + record.body, record.stop - record.body)))
        at = scan.stop = record.end
    if not _is_zero(data, scan.stop, stop):
        scan.torn = stop - scan.stop
    return scan


def encode_record(kind, number, count, bytes body not None, salt):
    """The bytes of one record: for tools and tests."""
    cdef uint64_t rest
    cdef Py_ssize_t size = ledger_size(number, count, len(body), &rest)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* data = <uint8_t*>PyBytes_AsString(out)
    cdef Py_ssize_t at = ledger_begin(data, rest, kind, number, count)
    memcpy(data + at, <const char*>body, len(body))
    ledger_finish(data, at + len(body), salt)
    return out


def split_put(bytes body not None):
    """(meta, state) in the body of a put record."""
    cdef uint64_t size = 0
    cdef Py_ssize_t at = read_varint(<const uint8_t*>PyBytes_AsString(body), 0, len(body), &size)
    if at < 0 or size > <uint64_t>(len(body) - at):
        raise ValueError("a put record whose meta is longer than itself")
    return body[at:at + <Py_ssize_t>size], body[at + <Py_ssize_t>size:]
