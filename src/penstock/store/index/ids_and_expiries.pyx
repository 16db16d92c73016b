"""IdsAndExpiries: the ids and expiries of a block's messages, packed. Layout of a summary's sections: docs/format.md, "Summary"."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcpy

from penstock.base.xxh64 import hash_id
from penstock.wire.headers import find
from penstock.format.block_scan cimport BlockScan, ScanRow
from penstock.format.constants cimport FLAG_ERASED, FLAG_MSG_ID, FLAG_TTL
from penstock.store.index.index cimport Block, Index
from penstock.base.xxh64 cimport xxh64
from penstock.wire.ttl import TTL_NEVER, parse_ttl

cdef extern from "string.h" nogil:
    void* memmem(const void* haystack, size_t size, const void* needle, size_t needle_size)

cdef enum:
    ID_SIZE = 28                           # row u32, time i64, hash 16 bytes
    EXPIRY_SIZE = 12                       # row u32, expiry i64

cdef int64_t NEVER = 0x7FFFFFFFFFFFFFFF


cdef int _compare(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<const IdAndExpiry*>a).seq, y = (<const IdAndExpiry*>b).seq
    return -1 if x < y else x > y


cdef class IdsAndExpiries:
    """(seq, time, hash of the message id or None, expiry or 0) of messages, in the order in which they were added."""

    def __init__(self, entries=()):
        self.extend(entries)

    def __dealloc__(self):
        free(self.items)

    def __len__(self):
        return self.count

    def __iter__(self):
        cdef Py_ssize_t n
        cdef IdAndExpiry* entry
        for n in range(self.count):
            entry = &self.items[n]
            yield entry.seq, entry.time, (<const char*>&entry.low)[:16] if entry.has_id else None, entry.expiry

    cdef IdAndExpiry* add(self) except NULL:
        cdef IdAndExpiry* grown
        if self.count == self.capacity:
            grown = <IdAndExpiry*>realloc(self.items, (self.capacity * 2 + 64) * sizeof(IdAndExpiry))
            if grown == NULL:
                raise MemoryError
            self.items = grown
            self.capacity = self.capacity * 2 + 64
        self.count += 1
        return &self.items[self.count - 1]

    def append(self, uint64_t seq, int64_t time, bytes id_hash, int64_t expiry):
        cdef IdAndExpiry* entry
        if id_hash is not None and PyBytes_GET_SIZE(id_hash) != 16:
            raise ValueError(f"the hash of an id has 16 bytes, not {PyBytes_GET_SIZE(id_hash)}")
        entry = self.add()
        entry.seq = seq
        entry.time = time
        entry.expiry = expiry
        entry.low = entry.high = 0
        entry.has_id = id_hash is not None
        if entry.has_id:
            memcpy(&entry.low, PyBytes_AS_STRING(id_hash), 16)

    def extend(self, entries):
        cdef IdsAndExpiries others
        cdef Py_ssize_t n
        if not isinstance(entries, IdsAndExpiries):
            for one in entries:
                self.append(*one)
            return
        others = entries
        for n in range(others.count):
            self.add()[0] = others.items[n]

    def clear(self):
        self.count = 0

    def put_in_order(self):
        """Sort by sequence; the last of those that were added for one sequence stays."""
        cdef Py_ssize_t n, kept = 0
        cdef bint is_rising = True
        for n in range(1, self.count):
            if self.items[n].seq <= self.items[n - 1].seq:
                is_rising = False
                break
        if is_rising:
            return
        qsort(self.items, self.count, sizeof(IdAndExpiry), _compare)
        for n in range(self.count):
            if kept and self.items[kept - 1].seq == self.items[n].seq:
                kept -= 1
            self.items[kept] = self.items[n]
            kept += 1
        self.count = kept

    def has_expiries(self):
        cdef Py_ssize_t n
        for n in range(self.count):
            if self.items[n].expiry:
                return True
        return False

    @staticmethod
    def of_scan(BlockScan scan not None, const unsigned char[::1] data not None):
        """What the headers say of the messages that a scan found, by the flags of their records."""
        cdef IdsAndExpiries found = IdsAndExpiries()
        cdef Py_ssize_t n, start, stop
        cdef ScanRow* row
        cdef IdAndExpiry* entry
        cdef const uint8_t* headers
        cdef const uint8_t* at
        cdef const uint8_t* end
        cdef int64_t expiry
        if not scan.flags & (FLAG_TTL | FLAG_MSG_ID):
            return found
        for n in range(scan.count):
            row = &scan.rows[n]
            if not row.flags & (FLAG_TTL | FLAG_MSG_ID) or row.flags & FLAG_ERASED:
                continue
            headers = <const uint8_t*>&data[0] + row.headers
            expiry = 0
            if row.flags & FLAG_TTL:
                ttl = parse_ttl(find(headers[:row.headers_size], b"Nats-TTL") or b"")
                if ttl and (ttl == TTL_NEVER or (row.time > 0 and ttl > NEVER - row.time)):
                    expiry = NEVER
                elif ttl:
                    expiry = row.time + <int64_t>ttl
            entry = found.add()
            entry.seq = row.seq
            entry.time = row.time
            entry.expiry = expiry
            entry.low = entry.high = 0
            entry.has_id = False
            if row.flags & FLAG_MSG_ID:
                at = <const uint8_t*>memmem(headers, row.headers_size, b"\r\nNats-Msg-Id:", 14)
                if at != NULL:
                    start = at - headers + 14
                    while start < row.headers_size and headers[start] == c" ":
                        start += 1
                    end = <const uint8_t*>memmem(headers + start, row.headers_size - start, b"\r\n", 2)
                    stop = end - headers if end != NULL else row.headers_size
                    if stop > start:
                        entry.has_id = True
                        entry.low = xxh64(headers + start, stop - start, 0)
                        entry.high = xxh64(headers + start, stop - start, 1)
        return found

    @staticmethod
    def of_summary(Index index not None, block_id, const unsigned char[::1] ids not None,
                   const unsigned char[::1] expiries not None):
        """What a summary's sections list. Rows ascend in both; those that the block does not have are left out."""
        cdef IdsAndExpiries found = IdsAndExpiries()
        cdef Block* block = index.find_block(block_id)
        cdef Py_ssize_t a = 0, b = 0, a_stop = ids.shape[0] - ids.shape[0] % ID_SIZE
        cdef Py_ssize_t b_stop = expiries.shape[0] - expiries.shape[0] % EXPIRY_SIZE
        cdef uint32_t a_row = 0, b_row = 0, row
        cdef IdAndExpiry* entry
        while a < a_stop or b < b_stop:
            if a < a_stop:
                memcpy(&a_row, &ids[a], 4)
            if b < b_stop:
                memcpy(&b_row, &expiries[b], 4)
            row = a_row if b >= b_stop or (a < a_stop and a_row <= b_row) else b_row
            if row < block.count:
                entry = found.add()
                entry.seq = index.seq_of(block, row)
                entry.time = entry.expiry = 0
                entry.low = entry.high = 0
                entry.has_id = a < a_stop and a_row == row
                if entry.has_id:
                    memcpy(&entry.time, &ids[a + 4], 8)
                    memcpy(&entry.low, &ids[a + 12], 16)
                if b < b_stop and b_row == row:
                    memcpy(&entry.expiry, &expiries[b + 4], 8)
            if a < a_stop and a_row == row:
                a += ID_SIZE
            if b < b_stop and b_row == row:
                b += EXPIRY_SIZE
        return found

    def sections(self, Index index not None, block_id):
        """The ids and the expiries of a block's rows, as its summary holds them."""
        cdef Block* block = index.find_block(block_id)
        cdef Py_ssize_t n, id_count = 0, expiry_count = 0
        cdef int64_t row
        cdef uint32_t short_row
        cdef IdAndExpiry* entry
        cdef bytes ids = PyBytes_FromStringAndSize(NULL, self.count * ID_SIZE)
        cdef bytes expiries = PyBytes_FromStringAndSize(NULL, self.count * EXPIRY_SIZE)
        cdef char* out
        for n in range(self.count):
            entry = &self.items[n]
            row = index.row_of(block, entry.seq)
            if row < 0:
                continue
            short_row = <uint32_t>row
            if entry.has_id:
                out = PyBytes_AS_STRING(ids) + id_count * ID_SIZE
                memcpy(out, &short_row, 4)
                memcpy(out + 4, &entry.time, 8)
                memcpy(out + 12, &entry.low, 16)
                id_count += 1
            if entry.expiry:
                out = PyBytes_AS_STRING(expiries) + expiry_count * EXPIRY_SIZE
                memcpy(out, &short_row, 4)
                memcpy(out + 4, &entry.expiry, 8)
                expiry_count += 1
        return ids[:id_count * ID_SIZE], expiries[:expiry_count * EXPIRY_SIZE]


def rows_with_id_or_ttl(BlockScan scan not None, const unsigned char[::1] data not None):
    """[(row, seq, time, flags, headers)] of the messages with a TTL or an id."""
    cdef Py_ssize_t n
    cdef ScanRow* row
    found = []
    if not scan.flags & (FLAG_TTL | FLAG_MSG_ID):
        return found
    for n in range(scan.count):
        row = &scan.rows[n]
        if row.flags & (FLAG_TTL | FLAG_MSG_ID) and not row.flags & FLAG_ERASED:
            found.append((n, row.seq, row.time, row.flags,
                          (<const char*>&data[0])[row.headers:row.headers + row.headers_size]))
    return found


def read_ids_and_expiries(rows):
    """[(seq, time, id hash, expiry)] from the headers of messages with a TTL or an id, as `rows_with_id_or_ttl` lists them."""
    found = []
    for _row, seq, time, flags, headers in rows:
        msg_id = find(headers, b"Nats-Msg-Id") if flags & FLAG_MSG_ID else None
        ttl = parse_ttl(find(headers, b"Nats-TTL") or b"") if flags & FLAG_TTL else 0
        expiry = NEVER if ttl == TTL_NEVER else min(time + ttl, NEVER) if ttl else 0
        found.append((seq, time, hash_id(msg_id) if msg_id else None, expiry))
    return found
