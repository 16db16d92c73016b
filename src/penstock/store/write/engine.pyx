"""StreamEngine: the compiled heart of a store. Appends, commits, deletes and reads, for one stream. Rules: ARCHITECTURE.md.

Appending and committing are separate. An append changes the index at once and puts records into the active block's image; reads by
others stop at the committed sequence; a commit that fails is rolled back, so that nothing unsaved is ever acknowledged.

One class and one file although it is long: what happens per message calls the engine's own cdef methods, and Cython cannot divide
a class between modules. What happens once per block is in engine_blocks.pyx.
"""
import os
import resource

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from penstock.store.write.batch cimport (
    STATUS_BAD_SUBJECT, STATUS_DUPLICATE, STATUS_HEADERS_TOO_LARGE, STATUS_JUDGED, STATUS_MAX_BYTES, STATUS_MAX_MSGS, STATUS_MAX_MSGS_PER_SUBJECT,
    STATUS_NO_MATCH, STATUS_NOT_SEQUENTIAL, STATUS_OK, STATUS_RECORD_TOO_LARGE, STATUS_TOO_LARGE,
)
from penstock.base.clock cimport STILL
from penstock.format.constants cimport (
    DELETE_RANGES_MAX, FLAG_ERASED, FLAG_HEADERS, KIND_DELETE, KIND_ERASE, KIND_FLOOR, KIND_MESSAGE, KIND_SKIP,
    REASON_MAX_BYTES, REASON_MAX_MSGS, REASON_MAX_MSGS_PER_SUBJECT, REASON_USER, RECORDS_START, RECORD_SIZE_MAX,
)
from penstock.store.index.index cimport (
    SECTION_OFFSETS, SECTION_SEQS, SECTION_SIZES, SECTION_SUBJECTS, Change,
)
from penstock.store.write.commit_log cimport DURABLE_DISK, DURABLE_LAZY, DURABLE_MEMORY, DURABLE_OS, free_block_file
from penstock.store.index.ids_and_expiries cimport IdAndExpiry
from penstock.store.read.message cimport make_message
from penstock.base.prefetch cimport prefetch, prefetch_to_write
from penstock.format.record cimport (
    RECORD_TORN, control_write, message_size, message_write, record_decode, reference_size,
)
from penstock.base.seq_sort cimport sort_seqs
from penstock.base.subject cimport Filters, as_filters, name_is_valid, subject_is_valid
from penstock.base.subject_dictionary cimport NO_NUMBER
from penstock.base.varint cimport write_varint, zigzag
from penstock.base.xxh64 cimport xxh64

cdef extern from "sys/random.h" nogil:
    ssize_t getrandom(void* buffer, size_t size, unsigned int flags)

cdef enum:
    SENT_SIZE_MAX = 33554432               # of a message as clients publish it: files of nats-server hold no larger record
    WIDE = 4096                            # subjects above which a look-up waits for memory
    ROOM_AHEAD = 1024
    ROOM_MAX = 4096
    GROUP = 32
    AHEAD_MASK = 127
    IDS_AHEAD = 8
    IDS_MASK = 15

cdef uint64_t SEQ_MAX = 0x7FFFFFFFFFFFFFFFULL
cdef uint64_t _forks = 0

EOF, NOT_FOUND, DELETED = 1, 2, 3          # why a load gives no message


def _forked():
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


cdef inline void fetch_payload(Incoming* item) noexcept nogil:
    """Prefetch the lines of a payload before they are copied: it may lie anywhere in memory."""
    cdef uint32_t at = 0
    cdef uint32_t stop = min(item.payload_size, <uint32_t>4096)
    while at < stop:
        prefetch(item.payload + at)
        at += 64


cdef inline void fetch_room(uint8_t* at, uint8_t* stop, Py_ssize_t size) noexcept nogil:
    """Prefetch where the records after the next will go: an image is larger than the cache, and writes wait for memory, too."""
    cdef uint8_t* end
    at += ROOM_AHEAD
    end = min(at + min(size, <Py_ssize_t>ROOM_MAX), stop)
    while at < end:
        prefetch_to_write(at)
        at += 64


cdef class StreamEngine:
    """The log and the index of one stream.

    Always true: every live row's record is in an image or in a file; rows above the committed sequence are in an image.
    """

    def __cinit__(self, object store, Index index not None, CommitLog log not None):
        self.store = store
        self.clock = STILL
        self.index = index
        self.log = log
        log.file_owner = index
        self.generation_count = _forks
        self.accepts = Matcher(Filters([]))
        self.spans = []
        self.block_size = 8 << 20
        # A quarter of what the process may open.
        self.open_max = min(1024, max(32, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self.max_msgs = self.max_bytes = self.max_per_subject = self.max_msg_size = -1

    def __dealloc__(self):
        free(self.scratch)

    def configure(self, limits):
        self.accepts = Matcher(Filters(list(limits.subjects)))
        self.block_size = limits.block_size
        self.max_msgs = limits.max_msgs
        self.max_bytes = limits.max_bytes
        self.max_per_subject = limits.max_msgs_per_subject
        self.max_msg_size = limits.max_msg_size
        self.discard_new = limits.discard_new
        self.discard_new_per_subject = limits.discard_new_per_subject

    cdef int check(self) except -1:
        if self.generation_count != _forks:
            self.store.refuse_forked()
        if self.is_closed:
            self.store.refuse_closed()
        return 0

    # Appending.

    def append(self, Batch batch not None, Py_ssize_t start, Py_ssize_t stop, int64_t now, DedupeWindow ids=None,
               IdsAndExpiries ids_and_expiries=None):
        """Append batch[start:stop]; each gets its sequence or its status. How many were taken. Commit comes after.

        `now` is, here and everywhere below, the monotonic time (clock.pyx); what is written is the machine's.
        A message that is refused already (`Batch.refuse`) is left out.
        Messages whose id the batch has found (`sift_rules`) are looked up in `ids`, and noted there and in `ids_and_expiries`.
        """
        cdef Py_ssize_t n
        cdef int64_t stamp
        cdef Py_ssize_t taken = 0
        cdef bint is_wide = self.index.tree.count > WIDE
        self.check()
        if self.log.fail_errno:
            self.store.retry()
        stamp = self.time_for(now)
        self.takes_names = batch.takes_names
        self.accepts.fit(self.index)
        memset(self.ahead, 0, sizeof(self.ahead))   # it describes the batch before
        memset(self.hashed, 0, sizeof(self.hashed))
        try:
            for n in range(start, stop):
                if ids is not None and n + IDS_AHEAD < stop and batch.items[n + IDS_AHEAD].id_size:
                    self.hash_ahead(&batch.items[n + IDS_AHEAD], n + IDS_AHEAD, ids)
                if is_wide and (n - start) & (GROUP - 1) == 0:
                    self.fetch_ahead(batch, n, start, stop)
                if n + 2 < stop:
                    fetch_payload(&batch.items[n + 2])
                if batch.items[n].status == STATUS_JUDGED:
                    continue               # a rule has refused it
                if ids is not None and batch.items[n].id_size:
                    taken += self.store_new(&batch.items[n], n, stamp, now, ids, ids_and_expiries)
                elif self.store_one(&batch.items[n], n, stamp) == STATUS_OK:
                    taken += 1
            if start == stop:
                self.enforce()             # the limits themselves have changed
            if self.index.change_stop != self.index.change_start:
                self.log_changes(now)
        except BaseException as error:
            self.store.undo_failed(error)
            raise
        return taken

    cdef int64_t time_for(self, int64_t now) except? -1:
        """The time of the messages that are taken now: what the machine's clock says, and no less than the last one's.

        When its lead over `now` has changed, because the machine's clock was set, the store is told.
        """
        cdef int64_t wall = now + self.clock.offset_ns
        cdef int64_t stamp = max(wall, self.last_time), lead = stamp - now
        self.append_ns = now
        if lead > self.lead_ns or lead < self.lead_ns - self.lead_slack_ns:
            self.lead_slack_ns = self.store.note_lead(self.index.last_seq + 1, lead, now, stamp > wall)
            self.lead_ns = lead
        return stamp

    # With many subjects every look-up misses the cache several times, one miss after the other: slot, totals and place, name
    # and the row that goes. So each of them is prefetched for a group of messages, in small loops of their own: the processor
    # then waits for the page tables of all of them together.

    cdef void fetch_ahead(self, Batch batch, Py_ssize_t n, Py_ssize_t start, Py_ssize_t stop) noexcept:
        """Prefetch for the group that begins with message n; the batch begins with message `start`."""
        if n == start:
            self.fetch_slots(batch, n, min(n + 3 * GROUP, stop))
            self.fetch_places(n, min(n + 2 * GROUP, stop))
            self.fetch_rows(n, min(n + GROUP, stop))
        self.fetch_slots(batch, n + 3 * GROUP, min(n + 4 * GROUP, stop))
        self.fetch_places(n + 2 * GROUP, min(n + 3 * GROUP, stop))
        self.fetch_rows(n + GROUP, min(n + 2 * GROUP, stop))

    cdef void fetch_slots(self, Batch batch, Py_ssize_t start, Py_ssize_t stop) noexcept:
        cdef Incoming* item
        cdef Ahead* ahead
        cdef Py_ssize_t n
        for n in range(start, stop):
            item = &batch.items[n]
            ahead = &self.ahead[n & AHEAD_MASK]
            ahead.subject = NULL
            ahead.block = -1
            if 0 < item.subject_size <= 65535:
                ahead.subject = item.subject
                ahead.hash = self.index.tree.hint_slot(item.subject, item.subject_size)

    cdef void fetch_places(self, Py_ssize_t start, Py_ssize_t stop) noexcept:
        cdef Ahead* ahead
        cdef Py_ssize_t n
        for n in range(start, stop):
            ahead = &self.ahead[n & AHEAD_MASK]
            ahead.number = NO_NUMBER if ahead.subject == NULL else self.index.tree.hint_place(ahead.hash)
            if ahead.number < self.index.number_capacity:
                self.index.hint_stats(ahead.number)
                if ahead.number < <uint64_t>self.accepts.words * 64:
                    prefetch(&self.accepts.wanted[ahead.number >> 6])

    cdef void fetch_rows(self, Py_ssize_t start, Py_ssize_t stop) noexcept:
        cdef Ahead* ahead
        cdef Py_ssize_t n
        for n in range(start, stop):
            self.index.tree.hint_name(self.ahead[n & AHEAD_MASK].number)
        if self.max_per_subject <= 0:
            return
        for n in range(start, stop):
            ahead = &self.ahead[n & AHEAD_MASK]
            if ahead.number < self.index.number_capacity:
                ahead.block = self.index.hint_first(ahead.number, self.max_per_subject)

    cdef uint32_t look_up(self, Incoming* item, Py_ssize_t n) noexcept:
        """The number of message n's subject, with what was worked out ahead if it was."""
        cdef Ahead* ahead = &self.ahead[n & AHEAD_MASK]
        if ahead.subject == item.subject:
            ahead.subject = NULL
            if self.index.tree.has_at(ahead.number, item.subject, item.subject_size):
                return ahead.number
            return self.index.tree.find_hashed(item.subject, item.subject_size, ahead.hash)
        return self.index.tree.find(item.subject, item.subject_size)

    cdef void hash_ahead(self, Incoming* item, Py_ssize_t n, DedupeWindow ids) noexcept:
        """Hash message n's id, and prefetch the memory where it will be looked up."""
        cdef HashedId* hashed = &self.hashed[n & IDS_MASK]
        cdef const uint8_t* msg_id = item.headers + item.id_start
        hashed.item = item
        hashed.low = xxh64(msg_id, item.id_size, 0)
        hashed.high = xxh64(msg_id, item.id_size, 1)
        ids.hint(hashed.low, hashed.high)

    cdef int store_new(self, Incoming* item, Py_ssize_t n, int64_t stamp, int64_t now, DedupeWindow ids,
                       IdsAndExpiries ids_and_expiries) except -1:
        """Append a message with an id unless that is known; 1 when it was taken."""
        cdef HashedId* hashed = &self.hashed[n & IDS_MASK]
        cdef uint64_t low, high, known
        cdef IdAndExpiry* entry
        if hashed.item != item:
            self.hash_ahead(item, n, ids)
        low = hashed.low
        high = hashed.high
        known = ids.known(low, high, now)
        if known:
            item.status = STATUS_DUPLICATE
            item.seq = known
            return 0
        if self.store_one(item, n, stamp) != STATUS_OK:
            return 0
        ids.note(low, high, item.seq, now)
        if ids_and_expiries is not None:
            entry = ids_and_expiries.add()
            entry.seq = item.seq
            entry.time = self.last_time
            entry.low = low
            entry.high = high
            entry.expiry = 0
            entry.has_id = True
        return 1

    cdef int store_one(self, Incoming* item, Py_ssize_t n, int64_t stamp) except -1:
        """Append one message, the n-th of its batch: its status."""
        cdef Index index = self.index
        cdef uint32_t number, size
        cdef uint64_t seq, first, body_size, checksum, delta, when
        cdef int64_t time
        cdef Py_ssize_t taken
        cdef uint8_t* out
        cdef uint8_t flags
        cdef bint is_over = False
        item.status = STATUS_OK
        if item.subject_size > 65535:
            item.status = STATUS_BAD_SUBJECT
            return STATUS_BAD_SUBJECT
        number = self.look_up(item, n)
        if number != NO_NUMBER and index.tree.has_wild and not self.takes_names:
            if not subject_is_valid(item.subject, item.subject_size):
                item.status = STATUS_BAD_SUBJECT
                return STATUS_BAD_SUBJECT
        if number == NO_NUMBER:
            if not (name_is_valid(item.subject, item.subject_size) if self.takes_names
                    else subject_is_valid(item.subject, item.subject_size)):
                item.status = STATUS_BAD_SUBJECT
                return STATUS_BAD_SUBJECT
            if not (self.accepts.filters.is_all or self.accepts.filters.matches(item.subject, item.subject_size)):
                item.status = STATUS_NO_MATCH
                return STATUS_NO_MATCH
        elif not self.accepts.filters.is_all:
            if self.accepts.filters.is_literal:
                if not self.accepts.filters.matches(item.subject, item.subject_size):
                    item.status = STATUS_NO_MATCH
                    return STATUS_NO_MATCH
            else:
                if number >= <uint64_t>self.accepts.words * 64 or self.accepts.version != index.version:
                    self.accepts.fit(index)
                if not self.accepts.test(index, number):
                    item.status = STATUS_NO_MATCH
                    return STATUS_NO_MATCH
        if self.max_msg_size >= 0 and <int64_t>item.headers_size + item.payload_size > self.max_msg_size:
            item.status = STATUS_TOO_LARGE
            return STATUS_TOO_LARGE
        if item.headers_size > 65535:
            item.status = STATUS_HEADERS_TOO_LARGE
            return STATUS_HEADERS_TOO_LARGE
        if <uint64_t>item.subject_size + item.headers_size + item.payload_size > RECORD_SIZE_MAX - 65536:
            item.status = STATUS_RECORD_TOO_LARGE
            return STATUS_RECORD_TOO_LARGE
        size = reference_size(item.subject_size, item.headers_size, item.payload_size, index.in_memory)
        if self.takes_names and not index.in_memory and size > SENT_SIZE_MAX:
            item.status = STATUS_RECORD_TOO_LARGE
            return STATUS_RECORD_TOO_LARGE
        if self.max_per_subject > 0 and number != NO_NUMBER:
            is_over = <int64_t>index.stats[number].total >= self.max_per_subject
        if self.discard_new:
            # The order and the exceptions are those of nats-server.
            if is_over and self.discard_new_per_subject and not item.is_rollup:
                item.status = STATUS_MAX_MSGS_PER_SUBJECT
                return item.status
            if self.max_msgs > 0 and <int64_t>index.messages >= self.max_msgs and not is_over:
                item.status = STATUS_MAX_MSGS
                return item.status
            if self.max_bytes > 0 and <int64_t>(index.bytes + size) > self.max_bytes:
                if not is_over or self.size_of(index.first_of(number)) < size:
                    item.status = STATUS_MAX_BYTES
                    return item.status
        seq = item.seq
        if seq == 0:
            seq = index.last_seq + 1
        elif seq != index.last_seq + 1:
            item.status = STATUS_NOT_SEQUENTIAL
            return STATUS_NOT_SEQUENTIAL
        if seq >= SEQ_MAX:                 # ranges are half open: the end of one that holds it could not be written
            item.status = STATUS_NOT_SEQUENTIAL
            return STATUS_NOT_SEQUENTIAL
        time = item.time if item.time else stamp
        if self.file != NULL and seq - self.active.base.seq <= 0xFFFFFFFF:
            delta = seq - self.active.base.seq
            when = zigzag(<int64_t>(<uint64_t>time - <uint64_t>self.active.base.time))
            taken = message_size(delta, when, item.subject_size, item.headers_size, item.headers != NULL,
                                 item.payload_size, &body_size)
            if self.file.size > RECORDS_START and self.file.size + taken > RECORDS_START + self.block_size:
                self.roll(seq, time, taken)
        else:
            self.roll(seq, time, item.subject_size + <uint64_t>item.headers_size + item.payload_size + 64)
        delta = seq - self.active.base.seq
        when = zigzag(<int64_t>(<uint64_t>time - <uint64_t>self.active.base.time))
        taken = message_size(delta, when, item.subject_size, item.headers_size, item.headers != NULL,
                             item.payload_size, &body_size)
        if self.file.size + taken > self.file.capacity:
            self.roll(seq, time, taken)
            delta = 0
            when = 0
            taken = message_size(0, 0, item.subject_size, item.headers_size, item.headers != NULL,
                                 item.payload_size, &body_size)
        if number == NO_NUMBER:
            number = index.number_of(item.subject, item.subject_size)
        flags = item.flags
        if item.headers != NULL:
            flags |= FLAG_HEADERS
        index.add_row(self.active, seq, time, <uint32_t>self.file.size, size, number)
        index.names.meet(&index.stats[number].named_in, &index.stats[number].named_at, number, item.subject,
                         item.subject_size)
        out = self.file.image + self.file.size
        message_write(out, &self.active.base, delta, when, flags, item.subject, item.subject_size, item.headers,
                      item.headers_size, item.payload, item.payload_size, body_size, &checksum)
        fetch_room(out + taken, self.file.image + self.file.capacity, taken)
        self.active.last_checksum = checksum
        self.file.size += taken
        self.active.size = self.file.size
        self.log.appended += taken
        self.log.appended_seq = seq
        index.last_seq = seq
        index.count_row(seq, size, number)
        item.seq = seq
        if time > self.last_time:
            self.last_time = time
        if is_over:
            while <int64_t>index.stats[number].total > self.max_per_subject:
                first = index.first_of(number)
                if first >= seq:
                    break
                index.remove_near(first, REASON_MAX_MSGS_PER_SUBJECT, self.ahead[n & AHEAD_MASK].block, number)
        # Message by message, as nats-server does: how messages were batched must not show.
        if (self.max_msgs > 0 and <int64_t>index.messages > self.max_msgs) or (
                self.max_bytes > 0 and <int64_t>index.bytes > self.max_bytes):
            self.enforce()
        return STATUS_OK

    cdef uint8_t* control_space(self, uint64_t seq, int64_t time, uint64_t size) except NULL:
        """Where a control record of up to `size` bytes goes; `seq` is the next sequence."""
        if (self.file == NULL or self.file.size + size > self.file.capacity or seq - self.active.base.seq > 0xFFFFFFFF
                or (self.file.size > RECORDS_START and self.file.size + size > RECORDS_START + self.block_size + 65536)):
            self.roll(seq, time, size)
        return self.file.image + self.file.size

    cdef int roll(self, uint64_t first_seq, int64_t time, uint64_t size) except -1:
        """Seal the active block and begin the next, with space for at least `size` bytes of records."""
        cdef uint64_t capacity = RECORDS_START + max(self.block_size, size) + 131072
        cdef Block* block
        cdef BlockFile* file
        if self.active != NULL:
            self.seal_active()
        block_id, path, header, salt = self.store.new_block(first_seq, time)
        file = self.log.new_file(block_id, path, capacity)
        memcpy(file.image, <const char*>(<bytes>header), RECORDS_START)
        file.size = RECORDS_START
        block = self.index.add_block(block_id, first_seq)
        block.base.seq = first_seq
        block.base.time = time
        block.base.salt = salt
        block.last_seq = first_seq - 1
        block.seq_base = first_seq
        block.size = RECORDS_START
        block.file = file
        self.active = block
        self.file = file
        if not self.index.in_memory:
            self.index.names.begin(block_id)
        self.log.appended += RECORDS_START
        self.log.start_file(file)
        return 0

    def seal_active(self):
        """No more goes into the active block; the next append begins a new one."""
        cdef Block* block = self.active
        if block == NULL:
            return
        self.active = NULL
        self.file = NULL
        block.is_sealed = True
        self.sealed_count += 1
        spans = self.spans
        self.spans = []
        self.store.block_sealed(block.id, spans)

    cdef int enforce(self) except -1:
        """Drop the oldest while there are more messages or bytes than allowed."""
        cdef Index index = self.index
        cdef uint64_t seq, messages = index.messages, size = index.bytes, floor = 0
        cdef uint8_t reason = REASON_MAX_MSGS
        cdef Py_ssize_t at
        cdef Block* block
        cdef uint32_t row
        cdef uint32_t* sizes
        if self.discard_new or not ((self.max_msgs > 0 and <int64_t>messages > self.max_msgs)
                                    or (self.max_bytes > 0 and <int64_t>size > self.max_bytes)):
            return 0                       # with discard new, stored messages stay, also when the limits are lowered
        at = max(index.block_of(index.first_seq), 0)
        while at < index.block_count:
            block = index.blocks[at]
            at += 1
            if block.live == 0:
                continue
            row = <uint32_t>index.row_from(block, index.first_seq)
            sizes = index.section(block, SECTION_SIZES)
            while row < block.count:
                if not index.is_dead(block, row):
                    if self.max_msgs > 0 and <int64_t>messages > self.max_msgs:
                        reason = REASON_MAX_MSGS
                    elif self.max_bytes > 0 and <int64_t>size > self.max_bytes:
                        reason = REASON_MAX_BYTES
                    else:
                        index.raise_floor(index.seq_of(block, row), reason)
                        return 0
                    messages -= 1
                    size -= sizes[row]
                row += 1
        index.raise_floor(index.last_seq + 1, reason)
        return 0

    # Control records.

    cdef int log_control(self, uint8_t kind, uint8_t reason, int64_t now, uint64_t value, const uint8_t* ranges,
                         Py_ssize_t size, uint64_t low, uint64_t high) except -1:
        cdef uint64_t checksum
        cdef int64_t time = now + self.clock.offset_ns
        cdef uint64_t seq = self.index.last_seq + 1
        cdef uint8_t* out = self.control_space(seq, time, 64 + size)
        cdef Py_ssize_t taken = control_write(out, &self.active.base, kind, reason, seq, time, value, ranges, size,
                                              &checksum)
        self.active.last_checksum = checksum
        self.spans.append((self.file.size, taken))
        self.file.size += taken
        self.active.size = self.file.size
        self.log.appended += taken
        self.active.target_low = min(self.active.target_low, low)
        self.active.target_high = max(self.active.target_high, high)
        return 0

    cdef int log_changes(self, int64_t now) except -1:
        """Append the delete and floor records of the changes that have none yet."""
        cdef Index index = self.index
        cdef Change* change
        cdef Py_ssize_t n, count = 0
        cdef uint64_t* seqs = <uint64_t*>malloc((index.change_stop - index.change_start + 1) * 8)
        cdef uint64_t floor = 0
        cdef uint8_t reason = 0, floor_reason = 0
        cdef Py_ssize_t start = index.change_stop
        if seqs == NULL:
            raise MemoryError
        try:
            while start > index.change_start and index.changes[start - 1].position == 0:
                start -= 1
            for n in range(start, index.change_stop):
                change = &index.changes[n]
                if change.is_floor:
                    if change.stop > floor:
                        floor = change.stop
                        floor_reason = change.reason
                    continue
                if count and change.reason != reason:
                    self.log_deletes(seqs, count, reason, now)
                    count = 0
                reason = change.reason
                seqs[count] = change.start
                count += 1
            if count:
                self.log_deletes(seqs, count, reason, now)
            if floor:
                self.log_control(KIND_FLOOR, floor_reason, now, floor, NULL, 0, 0, floor - 1)
        finally:
            free(seqs)
        for n in range(start, index.change_stop):
            index.changes[n].position = self.log.appended
        return 0

    cdef int log_deletes(self, uint64_t* seqs, Py_ssize_t count, uint8_t reason, int64_t now) except -1:
        """Append delete records for `seqs`: runs as ranges."""
        cdef uint8_t* packed = <uint8_t*>malloc(DELETE_RANGES_MAX * 20)
        cdef Py_ssize_t n = 0, at = 0
        cdef uint64_t ranges = 0, position = 0, start, low = 0
        if packed == NULL:
            raise MemoryError
        try:
            sort_seqs(seqs, count)
            while n < count:
                start = seqs[n]
                n += 1
                while n < count and seqs[n] <= seqs[n - 1] + 1:
                    n += 1
                if ranges == 0:
                    low = start
                at = write_varint(packed, at, start - position)
                at = write_varint(packed, at, seqs[n - 1] + 1 - start)
                position = seqs[n - 1] + 1
                ranges += 1
                if ranges == DELETE_RANGES_MAX or n == count:
                    self.log_control(KIND_DELETE, reason, now, ranges, packed, at, low, position - 1)
                    ranges = 0
                    at = 0
                    position = 0
        finally:
            free(packed)
        return 0

    def log_ranges(self, ranges, int reason, int64_t now):
        """Append delete records for half open ranges whose messages are gone already."""
        cdef uint8_t* packed = <uint8_t*>malloc(DELETE_RANGES_MAX * 20)
        cdef Py_ssize_t at = 0
        cdef uint64_t count = 0, position = 0, low = 0
        if packed == NULL:
            raise MemoryError
        try:
            for start, stop in ranges:
                if count == 0:
                    low = start
                at = write_varint(packed, at, start - position)
                at = write_varint(packed, at, stop - start)
                position = stop
                count += 1
                if count == DELETE_RANGES_MAX:
                    self.log_control(KIND_DELETE, reason, now, count, packed, at, low, position - 1)
                    count = position = 0
                    at = 0
            if count:
                self.log_control(KIND_DELETE, reason, now, count, packed, at, low, position - 1)
        finally:
            free(packed)

    def skip(self, first, count, int reason, int64_t now):
        """Reserve `count` sequences from `first`, which is the next one: they never hold a message."""
        cdef uint64_t start = first, length = count, checksum
        cdef int64_t time = now + self.clock.offset_ns
        cdef uint8_t* out
        cdef Py_ssize_t taken
        self.check()
        if self.log.fail_errno:
            self.store.retry()
        if start != self.index.last_seq + 1:
            raise ValueError(f"skip at {start}: the next sequence is {self.index.last_seq + 1}")
        if length == 0 or length > SEQ_MAX - start:
            raise ValueError(f"skip of {length} sequences from {start}: they stay below 2^63")
        out = self.control_space(start, time, 64)
        taken = control_write(out, &self.active.base, KIND_SKIP, reason, start, time, length, NULL, 0, &checksum)
        self.active.last_checksum = checksum
        self.spans.append((self.file.size, taken))
        self.file.size += taken
        self.active.size = self.file.size
        self.active.last_seq = start + length - 1
        self.log.appended += taken
        self.index.last_seq = start + length - 1
        self.log.appended_seq = self.index.last_seq
        if reason == REASON_USER and time > self.last_time:
            self.last_time = time          # a message was published, but no consumer was interested
        if self.index.messages == 0:
            self.index.first_seq = self.index.last_seq + 1

    # Deleting.

    def delete(self, seq, int reason, int64_t now):
        """Delete one message; False when there is none."""
        cdef uint64_t one = seq
        cdef bint is_found
        self.check()
        if self.log.fail_errno:
            self.store.retry()
        try:
            is_found = self.index.remove(one, reason)
            if is_found:
                self.log_changes(now)
        except BaseException as error:
            self.store.undo_failed(error)
            raise
        return is_found

    def delete_all(self, seqs, int reason, int64_t now):
        """Delete many; how many there were."""
        cdef uint64_t seq
        cdef Py_ssize_t n, count = 0, size
        cdef uint64_t found = 0
        cdef uint64_t* sorted_seqs
        self.check()
        if self.log.fail_errno:
            self.store.retry()
        if not isinstance(seqs, (list, tuple)):
            seqs = list(seqs)
        size = len(seqs)
        sorted_seqs = <uint64_t*>malloc((size + 1) * 8)
        if sorted_seqs == NULL:
            raise MemoryError
        try:
            for one in seqs:
                if 0 < one <= SEQ_MAX:
                    sorted_seqs[count] = one
                    count += 1
            sort_seqs(sorted_seqs, count)   # block by block: each array is loaded once
            for n in range(count):
                found += self.index.remove(sorted_seqs[n], reason)
            if found:
                self.log_changes(now)
        except BaseException as error:
            self.store.undo_failed(error)
            raise
        finally:
            free(sorted_seqs)
        return found

    def delete_matching(self, filters, start, stop, keep, limit, int reason, int64_t now):
        """Delete the messages in [start, stop) that match, all but the newest `keep` of them; how many, at most `limit`."""
        cdef Matcher matcher = Matcher(as_filters(filters))
        cdef uint64_t seq = start, end = stop, found = 0, left, most = limit
        self.check()
        if self.log.fail_errno:
            self.store.retry()
        matcher.fill(self.index)
        end = min(end, self.index.last_seq + 1)
        if keep:
            left = self.index.count_between(seq, end, matcher)
            if left <= keep:
                return 0
            most = min(most, left - <uint64_t>keep)
        try:
            while found < most:
                seq = self.index.next_live(seq, end, matcher)
                if seq == 0:
                    break
                self.index.remove(seq, reason)
                found += 1
                seq += 1
            if found:
                self.log_changes(now)
        except BaseException as error:
            self.store.undo_failed(error)
            raise
        return found

    def subjects_over(self, per_subject, Py_ssize_t most):
        """The names of the subjects that have more than `per_subject` messages; None where they are more than `most`."""
        cdef Index index = self.index
        cdef uint64_t limit = per_subject
        cdef uint32_t number, size
        cdef const uint8_t* name
        cdef list found = []
        for number in range(index.tree.number_stop):
            if index.stats[number].total > limit:
                if len(found) == most:
                    return None
                name = index.tree.name(number, &size)
                if name != NULL:           # else a summary lies about its subjects
                    found.append(name[:size])
        return found

    def trim_subjects(self, start, stop, per_subject, int reason, int64_t now):
        """Delete the oldest messages in [start, stop) of each subject that has more than `per_subject`: how many.

        To be called from the beginning of the stream, part by part, so that each subject loses its oldest messages.
        """
        cdef Index index = self.index
        cdef uint64_t seq = max(start, index.first_seq), end = min(stop, index.last_seq + 1), limit = per_subject, found = 0
        cdef Py_ssize_t at
        cdef int64_t row
        cdef uint32_t number
        self.check()
        if self.log.fail_errno:
            self.store.retry()
        try:
            while True:
                seq = index.next_live(seq, end, None)
                if seq == 0:
                    break
                at = index.block_of(seq)
                row = index.row_of(index.blocks[at], seq)
                number = index.section(index.blocks[at], SECTION_SUBJECTS)[row]
                if index.stats[number].total > limit:
                    index.remove_near(seq, reason, at, number)
                    found += 1
                seq += 1
            if found:
                self.log_changes(now)
        except BaseException as error:
            self.store.undo_failed(error)
            raise
        return found

    def log_floor(self, uint64_t floor, int reason, int64_t now):
        """Append the record that says that everything below `floor` is gone, as it is already."""
        self.log_control(KIND_FLOOR, reason, now, floor, NULL, 0, 0, floor - 1)

    def log_erase(self, uint64_t seq, int64_t now):
        """Append the record that says that `seq` is erased."""
        self.log_control(KIND_ERASE, 0, now, seq, NULL, 0, seq, seq)

    def set_floor(self, floor, int reason, int64_t now):
        """Everything below `floor` goes; how many messages."""
        cdef uint64_t before = self.index.messages, to = floor
        self.check()
        if self.log.fail_errno:
            self.store.retry()
        if to > SEQ_MAX:
            raise ValueError(f"sequence {floor}: sequences stay below 2^63")
        if to > self.index.last_seq + 1:
            self.skip(self.index.last_seq + 1, to - self.index.last_seq - 1, reason, now)
        if to <= self.index.floor:
            return 0
        try:
            self.index.raise_floor(to, reason)
            self.log_changes(now)
        except BaseException as error:
            self.store.undo_failed(error)
            raise
        return before - self.index.messages

    # Committing.

    @property
    def position(self):
        """What a commit is counted in: bytes appended so far."""
        return self.log.appended

    @property
    def committed_position(self):
        return self.log.committed()

    @property
    def synced_position(self):
        return self.log.synced

    @property
    def committed_seq(self):
        return self.log.committed_seq()

    def commit(self):
        """Make all that was appended durable, waiting for it; rolls back and raises when that fails."""
        self.end_commit(self.begin_commit(), self.wait())

    def begin_commit(self):
        """Submit all that was appended: (position, failures so far), for `wait` and `end_commit`."""
        if self.log.durability != DURABLE_MEMORY:
            self.log.submit()
        return self.log.appended, self.log.fail_count

    def wait(self):
        """Commit what is submitted, in this thread: 0 or -errno. Needs no lock."""
        cdef int answer = 0
        cdef CommitLog log = self.log
        if log.durability == DURABLE_DISK:
            with nogil:
                answer = log.flush(True)
        elif log.durability == DURABLE_OS:
            if log.appended - log.written <= 65536:
                answer = log.flush(False)
            else:
                with nogil:
                    answer = log.flush(False)
        elif log.durability == DURABLE_LAZY and log.appended - log.written >= 16384:
            log.committer.ask(log)
        return answer

    def end_commit(self, token, int answer):
        """Handle the result of `wait`: raise when what was appended up to the token was not kept."""
        if answer < 0 or token[1] != self.log.fail_count:
            self.store.commit_failed(token[0])
        if self.index.change_start != self.index.change_stop:
            self.index.drop_committed_changes(self.log.committed())

    def submit(self, bint begins=False):
        """Hand all that was appended to the commit threads; `committed_position` tells when it is durable.

        With `begins` this thread begins the commit itself: for a caller that has nothing else to do until it is durable.
        """
        cdef CommitLog log = self.log
        if log.durability == DURABLE_MEMORY:
            return log.appended
        log.submit()
        if begins and log.durability == DURABLE_DISK:
            with nogil:
                log.begin()
        if log.durability == DURABLE_DISK or log.appended - log.written > 65536:
            log.committer.ask(log)
        elif log.durability == DURABLE_OS:
            log.flush(False)
        elif log.appended - log.written >= 16384:
            log.committer.ask(log)
        return log.appended

    def note_committed(self):
        self.index.drop_committed_changes(self.log.committed())

    def sync(self):
        """Write and sync everything, whatever the durability: 0 or -errno."""
        cdef int answer
        cdef CommitLog log = self.log
        if log.durability == DURABLE_MEMORY:
            return 0
        log.submit()
        with nogil:
            answer = log.flush(True)
        if answer == 0:
            self.index.drop_committed_changes(log.committed())
        return answer

    def write_out(self):
        """Write everything without a sync: 0 or -errno."""
        cdef int answer
        cdef CommitLog log = self.log
        log.submit()
        with nogil:
            answer = log.flush(False)
        return answer

    def undo(self, told=None):
        """Forget all that is not committed. The block it was in is closed; a new one begins with the next append.

        `told(low, high)` is called before the positions in between count as finished: whoever checks one of them finds why it
        was not kept.
        """
        with nogil:
            self.log.pause_flush()
        try:
            return self.undo_held(told)
        finally:
            self.log.resume_flush()

    cdef tuple undo_held(self, told):
        cdef Index index = self.index
        cdef CommitLog log = self.log
        cdef Block* block
        cdef BlockFile* file
        kept = []
        gone = []
        index.drop_committed_changes(log.committed())      # what an earlier commit covered stays as it is
        index.rollback(log.committed_seq())
        self.active = NULL
        self.file = NULL
        # Files from the last committed byte on: cut the first, drop those that hold nothing committed.
        while index.block_count:
            block = index.blocks[index.block_count - 1]
            file = block.file
            if file == NULL or not file.is_listed:
                break
            # In `lazy` and in memory what is appended is committed.
            size = file.committed if log.durability in (DURABLE_DISK, DURABLE_OS) else file.size
            if size == file.size:
                block.is_sealed = True     # a new one begins with the next append
                break
            if size <= RECORDS_START:
                gone.append((<bytes>file.path, file.is_created))
                log.unlist(file)
                log.free_file(file)
                block.file = NULL
                index.drop_block(index.block_count - 1)
                continue
            file.size = file.submitted = size
            file.written = min(file.written, size)
            file.synced = min(file.synced, size)
            block.size = size
            block.is_sealed = True
            kept.append((block.id, size, file.is_created))
            break
        self.spans = []
        if told is not None:
            told(log.committed(), log.appended)
        log.skip_over()
        return kept, gone

    def close_files(self):
        """Close all files and free all images; nothing works after it."""
        cdef CommitLog log = self.log
        cdef Block** blocks = self.index.blocks
        cdef Py_ssize_t n, count = self.index.block_count
        with nogil:                        # freeing the images may take long
            log.pause_flush()               # a commit that is between two pieces finds no file any more
            self.active = NULL
            self.file = NULL
            log.forget_files()
            for n in range(count):
                if blocks[n].file != NULL:
                    log.trim_file(blocks[n].file)
                    free_block_file(blocks[n].file)
                    blocks[n].file = NULL
            log.resume_flush()
        log.close_head()

    def release(self, store):
        """Close the files and free the memory for good; from now on `store` answers, with StoreClosed.

        The caller has the stream's lock, and the log is detached. Readers and consumers that still exist keep only themselves.
        """
        self.is_closed = True
        self.close_files()
        self.index.release()
        self.log.file_owner = None
        self.accepts = Matcher(Filters([]))
        self.spans = []
        free(self.scratch)
        self.scratch = NULL
        self.scratch_size = 0
        self.store = store

    # Reading.

    cdef const uint8_t* bytes_at(self, Block* block, uint64_t start, uint64_t stop) except NULL:
        """Bytes [start, stop) of a block, from its image or its file; good until the next read."""
        cdef int64_t got
        cdef int fd
        cdef BlockFile* file = block.file
        if file == NULL:
            self.check()                   # it is closed, and so are its files
        if file.image != NULL:
            return file.image + start
        if self.scratch == NULL or <Py_ssize_t>(stop - start) > self.scratch_size:
            free(self.scratch)
            self.scratch_size = stop - start + 4096
            self.scratch = <uint8_t*>malloc(self.scratch_size)
            if self.scratch == NULL:
                self.scratch_size = 0
                raise MemoryError
        if file.fd < 0 and self.log.opened >= self.open_max:
            self.store.close_idle()
        fd = self.log.open_for_read(file)
        if fd < 0:
            raise OSError(-fd, os.strerror(-fd), os.fsdecode(file.path))
        got = self.log.disk.pread(fd, self.scratch, stop - start, start)
        if got < 0:
            raise OSError(-got, os.strerror(-got), os.fsdecode(file.path))
        if got < <int64_t>(stop - start):
            memset(self.scratch + got, 0, stop - start - got)
        return self.scratch

    cdef const uint8_t* record_at(self, Block* block, uint32_t row, uint64_t seq, Record* record) except NULL:
        """The record of a row; `record` gets offsets into the bytes returned."""
        cdef uint32_t* offsets = self.index.section(block, SECTION_OFFSETS)
        cdef uint64_t start = offsets[row]
        cdef uint64_t stop = offsets[row + 1] if row + 1 < block.count else block.size
        cdef const uint8_t* found = self.bytes_at(block, start, stop)
        if record_decode(found, 0, stop - start, &block.base, record) != 1 or record.seq != seq:
            if self.index.doubt(block):
                return self.record_at(block, row, seq, record)
            self.store.damaged_record(block.id, start, seq)
        return found

    def load(self, seq):
        """The message at `seq`, or why there is none: EOF, NOT_FOUND, DELETED."""
        cdef Index index = self.index
        cdef uint64_t one
        cdef Py_ssize_t at
        cdef int64_t row
        cdef Record record
        cdef const uint8_t* found
        self.check()
        try:
            one = seq
        except OverflowError:
            return NOT_FOUND if seq < 1 else EOF
        if one > min(index.last_seq, self.log.committed_seq()):
            return EOF
        if one < index.first_seq or one == 0:
            return NOT_FOUND
        at = index.block_of(one)
        if at < 0:
            return NOT_FOUND
        row = index.row_of(index.blocks[at], one)
        if row < 0:
            return NOT_FOUND if self.store.was_skipped(one) else DELETED
        if index.is_dead(index.blocks[at], <uint32_t>row):
            return DELETED
        found = self.record_at(index.blocks[at], <uint32_t>row, one, &record)
        if record.flags & FLAG_ERASED:
            return DELETED                 # by another process, a moment ago
        return make_message(found, &record)

    def time_of(self, seq):
        """When a message, dead or alive, was stored; None when there is no record of it."""
        cdef Py_ssize_t at = self.index.block_of(seq)
        cdef int64_t row, time
        if at < 0:
            return None
        row = self.index.row_of(self.index.blocks[at], seq)
        if row < 0 or not self.row_time(self.index.blocks[at], <uint32_t>row, &time):
            return None
        return time

    cdef int row_time(self, Block* block, uint32_t row, int64_t* time) except -1:
        """When a row was stored; 0 when its record is damaged, which is noted and stops nobody."""
        cdef Record record
        cdef uint32_t* offsets = self.index.section(block, SECTION_OFFSETS)
        cdef uint64_t start = offsets[row]
        cdef uint64_t stop = offsets[row + 1] if row + 1 < block.count else block.size
        cdef const uint8_t* found = self.bytes_at(block, start, stop)
        cdef uint64_t seq = self.index.seq_of(block, row)
        if record_decode(found, 0, stop - start, &block.base, &record) != 1 or record.seq != seq:
            if self.index.doubt(block):
                return self.row_time(block, row, time)
            self.store.note_damage(block.id, start, seq)
            return 0
        time[0] = record.time
        return 1

    cdef uint32_t size_of(self, uint64_t seq) except? 0xffffffff:
        cdef Block* block = self.index.blocks[self.index.block_of(seq)]
        return self.index.section(block, SECTION_SIZES)[self.index.row_of(block, seq)]

    def seq_from_time(self, int64_t time):
        """The first live sequence stored at or after `time`; the next sequence when there is none."""
        cdef Index index = self.index
        cdef Py_ssize_t at
        cdef Block* block
        cdef int64_t when = 0
        cdef uint32_t low, high, middle, probe
        cdef uint64_t seq
        for at in range(index.block_count):
            block = index.blocks[at]
            if block.count == 0 or block.time_max < time or block.last_seq < index.first_seq:
                continue
            low = 0
            high = block.count
            while low < high:
                middle = (low + high) >> 1
                probe = middle             # skip damaged records, whose time is not known
                while probe < high and not self.row_time(block, probe, &when):
                    probe += 1
                if probe < high and when < time:
                    low = probe + 1
                else:
                    high = middle
            if low == block.count:
                continue
            seq = index.next_live(max(index.seq_of(block, low), index.first_seq), index.last_seq + 1, None)
            return seq if seq else index.last_seq + 1
        return index.last_seq + 1
