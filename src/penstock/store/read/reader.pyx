"""Reader: iterates messages in order. Query: answers questions from the index, without reading messages."""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc, realloc
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.store.write.engine cimport StreamEngine
from penstock.format.constants cimport FLAG_ERASED
from penstock.store.index.index cimport SECTION_OFFSETS, Block, Index, Matcher
from penstock.store.read.message cimport Message, make_message
from penstock.format.record cimport Record, record_decode
from penstock.base.seq_set cimport SeqSet
from penstock.base.subject cimport Filters, as_filters
from penstock.base.subject_dictionary cimport NO_NUMBER, TreeCursor

cdef enum:
    WINDOW = 262144
    MATCHERS_MAX = 8

cdef uint64_t SEQ_MAX = 0x7FFFFFFFFFFFFFFFULL


cdef class Reader:
    """An iterator over the live, committed messages from a sequence on that match some filters.

    After its end it may be called again, and continues with messages that were committed since.
    """
    def __cinit__(self, StreamEngine engine not None, filters, start, stop=SEQ_MAX):
        self.engine = engine
        self.filters = filters
        self.matcher = Matcher(Filters(filters))
        self.next_seq = max(1, min(start, SEQ_MAX))
        self.stop_seq = max(0, min(stop, SEQ_MAX))

    def __dealloc__(self):
        free(self.window)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Record record
        cdef const uint8_t* found = self.step(&record)
        if found == NULL:
            raise StopIteration
        return make_message(found, &record)

    cdef const uint8_t* step(self, Record* record) except? NULL:
        """The next record, valid until the next call; NULL at the end. A later call continues from there."""
        cdef Index index = self.engine.index
        cdef uint64_t seq, stop
        cdef Block* block
        cdef const uint8_t* found
        cdef int64_t row
        self.engine.check()
        self.matcher.fit(index)
        while True:
            stop = min(self.stop_seq, min(index.last_seq, self.engine.log.committed_seq()) + 1)
            seq = index.next_live(self.next_seq, stop, self.matcher)
            if seq == 0:
                if stop > self.next_seq:
                    self.next_seq = stop
                return NULL
            self.next_seq = seq + 1
            block = index.blocks[index.block_of(seq)]
            row = index.row_of(block, seq)
            if row < 0:
                continue                   # the checkpoint is wrong about where its blocks begin
            found = self.fetch(block, <uint32_t>row, record)
            if found == NULL and index.doubt(block):
                self.next_seq = seq        # the block's rows will be loaded again: look up the next message again, too
                continue
            if found == NULL:
                self.engine.store.note_damage(block.id, index.section(block, SECTION_OFFSETS)[row], seq)
                continue
            if record.flags & FLAG_ERASED:
                continue                   # another process erased it after the lookup
            return found

    def take(self, Py_ssize_t most):
        """Up to `most` messages as a list."""
        found = []
        for message in self:
            found.append(message)
            if len(found) == most:
                break
        return found

    cdef const uint8_t* fetch(self, Block* block, uint32_t row, Record* record) except? NULL:
        """The row's record, from the block's image or from the window; NULL when it is damaged."""
        cdef uint32_t* offsets = self.engine.index.section(block, SECTION_OFFSETS)
        cdef uint64_t start = offsets[row]
        cdef uint64_t stop = offsets[row + 1] if row + 1 < block.count else block.size
        cdef const uint8_t* base
        cdef int64_t got
        cdef int fd
        if block.file.image != NULL:
            base = block.file.image + start
        elif stop - start > WINDOW:
            base = self.engine.bytes_at(block, start, stop)
        else:
            if self.window == NULL:
                self.window = <uint8_t*>malloc(WINDOW)
                if self.window == NULL:
                    raise MemoryError
            if self.window_block != block.id or start < self.window_start or stop > self.window_stop:
                if block.file.fd < 0 and self.engine.log.opened >= self.engine.open_max:
                    self.engine.store.close_idle()
                fd = self.engine.log.open_for_read(block.file)
                if fd < 0:
                    raise OSError(-fd, os.strerror(-fd), os.fsdecode(block.file.path))
                got = self.engine.log.disk.pread(fd, self.window, min(<uint64_t>WINDOW, block.size - start), start)
                if got < 0:
                    self.window_block = 0
                    raise OSError(-got, os.strerror(-got), os.fsdecode(block.file.path))
                self.window_block = block.id
                self.window_start = start
                self.window_stop = start + got
                if self.window_stop < stop:
                    self.window_block = 0
                    return NULL
            base = self.window + (start - self.window_start)
        if (record_decode(base, 0, stop - start, &block.base, record) != 1
                or record.seq != self.engine.index.seq_of(block, row)):
            self.window_block = 0
            return NULL
        return base

    def forget_window(self):
        """Drop the window, as bytes of its file were overwritten: the next fetch reads the file."""
        self.window_block = 0


cdef uint64_t total_wanted(Index index, Matcher matcher) noexcept nogil:
    cdef uint64_t total = 0, word
    cdef uint32_t at, number
    for at in range((index.tree.number_stop + 63) // 64):
        word = matcher.wanted[at]
        number = at * 64
        while word:
            if word & 1:
                total += index.stats[number].total
            word >>= 1
            number += 1
    return total


cdef class Query:
    """Questions to the index of one stream."""
    cdef StreamEngine engine
    cdef dict matchers

    def __cinit__(self, StreamEngine engine not None):
        self.engine = engine
        self.matchers = {}

    def next_seq(self, filters, start, stop=SEQ_MAX):
        """The lowest live sequence in [start, stop) that matches, or 0."""
        cdef Matcher matcher = Matcher(as_filters(filters))
        self.engine.check()
        matcher.fit(self.engine.index)
        return self.engine.index.next_live(max(start, 1), min(stop, self.engine.index.last_seq + 1), matcher)

    def prev_seq(self, filters, start):
        """The highest live sequence at or below `start` that matches, or 0."""
        cdef Matcher matcher = Matcher(as_filters(filters))
        self.engine.check()
        matcher.fit(self.engine.index)
        if start < 1:
            return 0
        return self.engine.index.prev_live(min(start, SEQ_MAX), 1, matcher)

    def last_seq(self, filters):
        """The highest live sequence that matches, or 0."""
        cdef Index index = self.engine.index
        cdef Matcher matcher = Matcher(as_filters(filters))
        self.engine.check()
        matcher.fit(index)
        if not matcher.filters.is_all and matcher.filters.is_literal:
            if matcher.number == NO_NUMBER or index.stats[matcher.number].total == 0:
                return 0
            return index.last_of(matcher.number)
        return index.prev_live(index.last_seq, 1, matcher)

    def total(self, bytes subject not None):
        """The number of live messages of this literal subject."""
        cdef Index index = self.engine.index
        cdef uint32_t number = index.tree.find(<const uint8_t*>PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        return 0 if number == NO_NUMBER else index.stats[number].total

    def pending(self, filters, start, last_per_subject=False):
        """The number of matching live messages from `start` on; with last_per_subject only the last of each subject."""
        cdef Index index = self.engine.index
        cdef Matcher matcher
        cdef uint64_t seq = max(min(start, SEQ_MAX), 1)
        cdef uint64_t total = 0, before, after
        cdef uint32_t number
        self.engine.check()
        if seq > index.last_seq:
            return 0
        matcher = self.filled(filters)
        if last_per_subject:
            for number in range(index.tree.number_stop):
                if index.stats[number].total and self.wants(matcher, number):
                    total += index.last_of(number) >= seq
            return total
        if matcher.filters.is_all:
            return index.count_between(seq, index.last_seq + 1, matcher)
        # Count on the side with fewer sequences.
        before = seq - index.first_seq if seq > index.first_seq else 0
        after = index.last_seq - seq
        if before >= after:
            return index.count_between(seq, index.last_seq + 1, matcher)
        if matcher.filters.is_literal:
            if matcher.number == NO_NUMBER:
                return 0
            total = index.stats[matcher.number].total
        else:
            total = total_wanted(index, matcher)
        if before == 0 or total == 0:
            return total
        return total - index.count_between(index.first_seq, seq, matcher)

    cdef Matcher filled(self, filters):
        """A matcher filled with every subject. The last few are kept, as callers repeat the same filters."""
        cdef Matcher matcher
        key = tuple(filters)
        matcher = self.matchers.pop(key, None)
        if matcher is None:
            matcher = Matcher(Filters(filters))
        matcher.refill(self.engine.index)
        self.matchers[key] = matcher
        if len(self.matchers) > MATCHERS_MAX:
            del self.matchers[next(iter(self.matchers))]
        return matcher

    cdef bint wants(self, Matcher matcher, uint32_t number) noexcept nogil:
        if matcher.filters.is_all:
            return True
        if matcher.filters.is_literal:
            return number == matcher.number
        return (matcher.wanted[number >> 6] >> (number & 63)) & 1

    def filtered_state(self, filters, start=1, with_last=True):
        """(messages, first, last) of the matches from `start` on; zeros when there are none."""
        cdef Index index = self.engine.index
        cdef Matcher matcher = Matcher(Filters(filters))
        cdef uint64_t seq = max(min(start, SEQ_MAX), 1), first
        count = self.pending(filters, seq)
        if count == 0:
            return 0, 0, 0
        matcher.fit(index)
        first = index.next_live(seq, index.last_seq + 1, matcher)
        return count, first, self.last_seq(filters) if with_last else 0

    def totals(self, filters):
        """subject -> number of live messages, in order of subject."""
        return {name: total for name, total, _ in self._subjects(filters, False)}

    def live_numbers(self, filters):
        """The numbers of the matching subjects that have messages, in order of subject, as an array for `totals_of`.

        The GIL is released meanwhile: the caller's lock keeps the index unchanged.
        """
        cdef Index index = self.engine.index
        cdef Filters wanted = Filters(filters)
        cdef Py_ssize_t count, n, kept = 0
        cdef uint32_t* numbers
        self.engine.check()
        numbers = <uint32_t*>malloc((index.tree.count + 1) * 4)
        if numbers == NULL:
            raise MemoryError
        try:
            with nogil:
                count = index.tree.match(wanted, numbers, index.tree.count)
                for n in range(count):
                    if index.stats[numbers[n]].total:
                        numbers[kept] = numbers[n]
                        kept += 1
            return (<const char*>numbers)[:kept * 4]
        finally:
            free(numbers)

    def totals_of(self, bytes numbers not None, Py_ssize_t start, Py_ssize_t stop):
        """subject -> number of live messages, for numbers[start:stop]; subjects removed meanwhile are left out."""
        cdef Index index = self.engine.index
        cdef const uint32_t* found = <const uint32_t*>PyBytes_AS_STRING(numbers)
        cdef Py_ssize_t n
        cdef uint32_t size
        cdef const uint8_t* name
        self.engine.check()
        totals = {}
        for n in range(max(start, 0), min(stop, PyBytes_GET_SIZE(numbers) // 4)):
            if found[n] < index.tree.number_stop and index.stats[found[n]].total:
                name = index.tree.name(found[n], &size)
                totals[(<const char*>name)[:size].decode("utf-8", "backslashreplace")] = index.stats[found[n]].total
        return totals

    def subjects_state(self, filters):
        """subject -> (messages, first, last), in order of subject."""
        return {name: (total, self.engine.index.first_of(number), self.engine.index.last_of(number))
                for name, total, number in self._subjects(filters, True)}

    def _subjects(self, filters, bint with_state):
        cdef Index index = self.engine.index
        cdef Filters wanted = Filters(filters)
        cdef Py_ssize_t count, n
        cdef uint32_t* numbers
        cdef uint32_t size
        cdef const uint8_t* name
        self.engine.check()
        numbers = <uint32_t*>malloc((index.tree.count + 1) * 4)
        if numbers == NULL:
            raise MemoryError
        found = []
        try:
            count = index.tree.match(wanted, numbers, index.tree.count)
            for n in range(count):
                if index.stats[numbers[n]].total:
                    name = index.tree.name(numbers[n], &size)
                    found.append(((<const char*>name)[:size].decode("utf-8", "backslashreplace"), index.stats[numbers[n]].total,
                                  numbers[n]))
        finally:
            free(numbers)
        return found

    def last_seqs(self, filters, upto=0, limit=0):
        """The last sequence (at or below `upto`) of each matching subject, ascending; None when more than `limit`."""
        cdef Index index = self.engine.index
        cdef Matcher matcher = Matcher(Filters(filters)), one = Matcher(Filters(["a"]))
        cdef uint32_t number
        cdef uint64_t seq, high = upto
        self.engine.check()
        found = []
        matcher.fill(index)
        for number in range(index.tree.number_stop):
            if index.stats[number].total == 0 or not self.wants(matcher, number):
                continue
            seq = index.last_of(number)
            if high and seq > high:
                one.number = number
                seq = index.prev_live(high, 1, one)
            if seq:
                found.append(seq)
                if limit and len(found) > limit:
                    return None
        found.sort()
        return found

    def deleted(self):
        """The sequences between first and last that hold no live message, as a SeqSet."""
        cdef Index index = self.engine.index
        cdef SeqSet gone = SeqSet()
        cdef uint64_t seq = index.first_seq, live, row_seq
        cdef Py_ssize_t at
        cdef Block* block
        cdef uint32_t row
        self.engine.check()
        if index.messages == 0:
            return gone
        for at in range(max(index.block_of(seq), 0), index.block_count):
            block = index.blocks[at]
            if block.live == block.count and block.is_dense and block.count:
                if block.seq_base + block.count <= seq:
                    continue
                if block.seq_base > seq:
                    gone.put_range(seq, block.seq_base - 1)
                seq = max(seq, block.seq_base + block.count)
                continue
            for row in range(<uint32_t>index.row_from(block, seq), block.count):
                if index.is_dead(block, row):
                    continue
                row_seq = index.seq_of(block, row)
                if row_seq > seq:
                    gone.put_range(seq, row_seq - 1)
                seq = row_seq + 1
        if seq <= index.last_seq:
            gone.put_range(seq, index.last_seq)
        return gone

    def blocks(self):
        """What is known of each block: a list of dicts."""
        return [_facts(self.engine.index.blocks[at]) for at in range(self.engine.index.block_count)]

    def block(self, block_id):
        """What is known of one block."""
        cdef Index index = self.engine.index
        cdef Py_ssize_t at
        for at in range(index.block_count - 1, -1, -1):
            if index.blocks[at].id == block_id:
                return _facts(index.blocks[at])
        raise KeyError(block_id)

    def disk_bytes(self):
        """Bytes that the blocks take."""
        cdef uint64_t total = 0
        cdef Py_ssize_t at
        for at in range(self.engine.index.block_count):
            total += self.engine.index.blocks[at].size
        return total


cdef dict _facts(Block* b):
    return {
        "id": b.id, "first_seq": b.first_seq, "last_seq": b.last_seq, "rows": b.count, "live": b.live,
        "bytes": b.bytes, "live_bytes": b.live_bytes, "size": b.size, "time_min": b.time_min,
        "time_max": b.time_max, "is_sealed": b.is_sealed, "is_dense": b.is_dense, "seq_base": b.seq_base,
        "base_seq": b.base.seq, "base_time": b.base.time, "salt": b.base.salt, "target_low": b.target_low,
        "target_high": b.target_high, "last_checksum": b.last_checksum,
    }
