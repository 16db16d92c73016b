"""BlockScan: the records of a block's bytes as packed arrays, with what was damaged. Rules: docs/format.md, "Record"."""
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock.format.constants cimport BODY_SIZE_MIN, KIND_MESSAGE, KIND_SKIP
from penstock.format.record cimport RECORD_NEWER, record_decode, record_fields, record_measure
from penstock.base.xxh64 cimport xxh64

cdef uint64_t SEQ_MAX = 0x7FFFFFFFFFFFFFFFULL
cdef uint64_t SEQ_SPAN_MAX = 0xFFFFFFFFULL             # of a block's messages: rows hold differences of 32 bits


cdef Py_ssize_t next_whole(const uint8_t* block, Py_ssize_t start, Py_ssize_t stop, const Base* base,
                           uint64_t seq_min, uint64_t seq_max) noexcept nogil:
    """Offset of the next whole record at or after `start` with a sequence in [seq_min, seq_max]; -1: none.

    The fields come before the checksum: garbage rarely has a sequence that fits, so that little of it is hashed.
    """
    cdef Record record
    cdef Py_ssize_t body = 0, end
    cdef uint64_t checksum
    while start < stop:
        if block[start] >= BODY_SIZE_MIN:
            end = record_measure(block, start, stop, &body)
            if end > 0 and record_fields(block, body, end, base, &record) == 1 and seq_min <= record.seq <= seq_max:
                memcpy(&checksum, block + end - 8, 8)
                if xxh64(block + start, end - 8 - start, base.salt) == checksum:
                    return start
        start += 1
    return -1


cdef bint _is_zero(const uint8_t* block, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    while start < stop:
        if block[start]:
            return False
        start += 1
    return True


cdef int _pair(uint64_t** pairs, Py_ssize_t* count, Py_ssize_t* capacity, uint64_t a, uint64_t b) noexcept nogil:
    cdef uint64_t* grown
    if count[0] == capacity[0]:
        grown = <uint64_t*>realloc(pairs[0], (capacity[0] * 2 + 16) * 16)
        if grown == NULL:
            return -1
        pairs[0] = grown
        capacity[0] = capacity[0] * 2 + 16
    pairs[0][2 * count[0]] = a
    pairs[0][2 * count[0] + 1] = b
    count[0] += 1
    return 0


cdef class BlockScan:
    """The records between two offsets of a block.

    Always true: rows ascend in offset and strictly in seq; every byte between start and stop belongs to a whole record,
    to a damaged range or to the torn tail.
    """

    def __dealloc__(self):
        free(self.rows)
        free(self.controls)
        free(self.damage)

    cdef int walk(self, const uint8_t* block, Py_ssize_t start, Py_ssize_t stop, const Base* base,
                  uint64_t seq_min, uint64_t seq_stop) noexcept nogil:
        """Walk [start, stop); records at or above `seq_stop` end the block. 0, or -1 when memory is out."""
        cdef Record record
        cdef ScanRow* row
        cdef ScanRow* grown
        cdef Py_ssize_t at = start, found
        cdef int answer
        self.stop = start
        while at < stop:
            answer = record_decode(block, at, stop, base, &record)
            if answer == 1 and record.kind == KIND_MESSAGE and (record.subject_size == 0
                                                                or record.seq - base.seq > SEQ_SPAN_MAX):
                answer = 0                 # whole, and yet nothing that a writer of ours has written
            if answer == 1 and record.seq >= seq_min:
                # A control record may speak of the next block's first sequence: it names the next one to be given out.
                if record.seq > seq_stop or (record.seq == seq_stop and record.kind <= KIND_SKIP):
                    break
                if record.kind == KIND_SKIP and record.value > seq_stop - record.seq:
                    break                  # it reaches beyond
                if record.kind == KIND_MESSAGE:
                    if self.count == self.capacity:
                        grown = <ScanRow*>realloc(self.rows, (self.capacity * 2 + 1024) * sizeof(ScanRow))
                        if grown == NULL:
                            return -1
                        self.rows = grown
                        self.capacity = self.capacity * 2 + 1024
                    row = &self.rows[self.count]
                    row.seq = record.seq
                    row.time = record.time
                    row.offset = <uint32_t>at
                    row.size = <uint32_t>(record.stop - at)
                    row.subject = <uint32_t>record.subject
                    row.subject_size = <uint16_t>record.subject_size
                    row.headers = <uint32_t>record.headers
                    row.headers_size = record.headers_size
                    row.payload_size = record.payload_size
                    row.flags = record.flags
                    self.flags |= record.flags
                    self.count += 1
                    seq_min = record.seq + 1
                else:
                    if _pair(&self.controls, &self.control_count, &self.control_capacity, at, record.stop - at) < 0:
                        return -1
                    seq_min = record.seq
                    if record.kind == KIND_SKIP:
                        seq_min += min(record.value, SEQ_MAX - record.seq)
                self.last_checksum = record.checksum
                at = record.stop
                self.stop = at
                continue
            if answer == RECORD_NEWER:
                self.is_newer = True
                return 0
            found = next_whole(block, at + 1, stop, base, seq_min, seq_stop)
            if found < 0:
                break
            if _pair(&self.damage, &self.damage_count, &self.damage_capacity, at, found - at) < 0:
                return -1
            at = found
        self.torn = stop - self.stop
        if self.torn and _is_zero(block, self.stop, stop):
            self.torn = 0                  # room that was never written
        return 0

    def drop_rows(self):
        """Forget the rows; what is known of damage and control records stays."""
        free(self.rows)
        self.rows = NULL
        self.count = self.capacity = 0

    def damaged(self):
        """The damaged ranges as (offset, size)."""
        return [(self.damage[2 * n], self.damage[2 * n + 1]) for n in range(self.damage_count)]

    def control_spans(self):
        """The control records as (offset, size)."""
        return [(self.controls[2 * n], self.controls[2 * n + 1]) for n in range(self.control_count)]

    def messages(self):
        """The message records as (offset, size, seq, time, flags)."""
        cdef Py_ssize_t n
        return [(self.rows[n].offset, self.rows[n].size, self.rows[n].seq, self.rows[n].time, self.rows[n].flags)
                for n in range(self.count)]


def scan_block(const unsigned char[::1] block not None, Py_ssize_t start, Py_ssize_t stop, *, base_seq=0, base_time=0,
               salt=0, seq_min=0, seq_stop=2**63 - 1):
    """Walk and verify the records in block[start:stop]."""
    cdef Base base
    cdef BlockScan scan = BlockScan()
    cdef uint64_t low = seq_min, high = seq_stop
    cdef int answer = 0
    base.seq = base_seq
    base.time = base_time
    base.salt = salt
    if not 0 <= start <= stop <= block.shape[0]:
        raise ValueError(f"[{start}, {stop}) is not inside the {block.shape[0]} bytes given")
    if stop > 0xFFFFFFFF:
        raise ValueError(f"a block of {stop} bytes: at most 4 GiB")
    if start < stop:
        with nogil:
            answer = scan.walk(&block[0], start, stop, &base, low, high)
    else:
        scan.stop = start
    if answer < 0:
        raise MemoryError
    return scan
