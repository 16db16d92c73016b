"""ConsumerEngine: one consumer's place in a stream: what comes next, what is pending, what is due. Rules:
docs/consumers.md.

The library takes messages from it, and the server writes frames from it. It uses neither sockets nor a clock, and its
owner holds the stream's lock. `look` finds what would be delivered now without changing anything that matters;
`hand_over` delivers it.
"""
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from penstock.consumer.ack_table cimport ACK_ALL, ACK_EXPLICIT, ACK_NONE, AckEntry
from penstock.format.constants cimport FLAG_ERASED
from penstock.wire.frame cimport write_decimal
from penstock.store.index.index cimport SECTION_OFFSETS, SECTION_SUBJECTS, Block
from penstock.store.read.message cimport Message
from penstock.store.read.reader cimport total_wanted
from penstock.format.record cimport Record
from penstock.base.seq_sort cimport sort_seqs
from penstock.base.subject cimport Filters
from penstock.base.subject_dictionary cimport NO_NUMBER

cdef uint64_t SEQ_MAX = 0x7FFFFFFFFFFFFFFFULL
cdef int64_t FOREVER = 0x3FFFFFFFFFFFFFFFLL    # a deadline that never comes
cdef uint32_t TAKEN = 0xfffffffe           # as in ack_table.pyx: it was due, and is held here


cdef class Delivered:
    """A delivered message, with its place among the consumer's deliveries."""
    cdef readonly Message message
    cdef readonly uint64_t consumer_seq
    cdef readonly uint32_t deliveries
    cdef readonly uint64_t pending

    def __repr__(self):
        return f"<Delivered {self.message.seq} as {self.consumer_seq}, {self.deliveries} times>"


cdef class ConsumerEngine(Watcher):
    """A consumer's place in a stream.

    Always true: a message that is live, matches and was not delivered is at or above `next_seq`, or in the rest of
    `lasts`; a message that was delivered and is neither acknowledged nor given up is pending in `table`.
    """

    def __cinit__(self, StreamEngine stream_engine not None, AckTable table not None, filters, BlockCache windows=None):
        self.stream_engine = stream_engine
        self.table = table
        table.clock = stream_engine.clock
        self.windows = windows if windows is not None else BlockCache()
        self.filters = tuple(filters)
        self.matcher = Matcher(Filters(self.filters))
        self.next_seq = table.delivered_stream_seq + 1
        self.given_up = []
        self.dropped = []
        self.max_deliver = self.max_ack_pending = -1
        self.has_deadlines = True
        stream_engine.index.watch(self)

    def __dealloc__(self):
        free(self.lasts)
        free(self.backoff)
        free(self.scratch)
        free(self.done)

    def close(self):
        """Stop counting the messages of the stream."""
        self.stream_engine.index.unwatch(self)

    def release(self):
        """Closed for good: free the memory, even if something still refers to the engine. From now on nothing is
        pending, and nothing comes."""
        self.close()
        self.table = AckTable(self.table.policy, 1)
        free(self.lasts)
        free(self.done)
        self.lasts = NULL
        self.done = NULL
        self.last_at = self.last_count = self.done_count = self.done_capacity = 0
        self.held = self.count = 0
        self.next_seq = self.counted_to = SEQ_MAX
        self.is_counted = True
        self.given_up = []
        self.dropped = []

    def configure(self, filters, ack_wait_ns, backoff, max_deliver, max_ack_pending, headers_only, has_deadlines=True,
                  is_change=True):
        """Apply a configuration. Changed filters are counted anew; if `is_change`, changed waits also apply to what is
        pending."""
        cdef Py_ssize_t n
        cdef int64_t* waits = NULL
        cdef AckEntry* entry
        moved = []
        if tuple(filters) != self.filters:
            self.filters = tuple(filters)
            self.matcher = Matcher(Filters(self.filters))
            self.is_counted = False
            self.fitted_to = 0
            self.stream_engine.index.watch(self)
        if backoff:
            waits = <int64_t*>malloc(len(backoff) * 8)
            if waits == NULL:
                raise MemoryError
            for n in range(len(backoff)):
                waits[n] = backoff[n]
        for n in range(self.table.used if is_change and has_deadlines else 0):
            entry = self.table.pending_entry(self.table.at(n).seq)
            if entry != NULL and entry.place != TAKEN:
                # A nak may have moved the deadline; without a deadline, the wait counts from the last delivery.
                is_due = entry.deadline_ns < FOREVER
                since = entry.deadline_ns - self.wait_of(entry.deliveries) if is_due else entry.last_ns
                moved.append((entry.seq, entry.deliveries, max(since, 0)))
        free(self.backoff)
        self.backoff = waits
        self.backoff_count = len(backoff)
        self.ack_wait_ns = ack_wait_ns
        self.max_deliver = max_deliver
        self.max_ack_pending = max_ack_pending
        self.headers_only = headers_only
        self.has_deadlines = has_deadlines
        for seq, deliveries, since in moved:
            self.table.set_deadline(seq, self.deadline(deliveries, since))

    def start_with(self, seqs, resume_seq):
        """Deliver `seqs` first, which rise, and then what matches from `resume_seq` on."""
        cdef Py_ssize_t n, count = len(seqs)
        free(self.lasts)
        self.lasts = <uint64_t*>malloc(max(count, 1) * 8)
        if self.lasts == NULL:
            raise MemoryError
        for n in range(count):
            self.lasts[n] = seqs[n]
        self.last_at = 0
        self.last_count = count
        self.next_seq = resume_seq
        self.is_counted = False
        self.stream_engine.index.watch(self)

    def replay(self, upto):
        """Deliver messages at the pace at which they were stored, up to a sequence."""
        self.replay_to = upto

    def go_to(self, AckTable table not None):
        """Start again with another table, after its last delivery."""
        table.clock = self.stream_engine.clock
        self.table = table
        self.next_seq = table.delivered_stream_seq + 1
        self.last_at = self.last_count = 0
        self.held = 0
        self.is_counted = False
        self.stream_engine.index.watch(self)

    # Finding messages.

    cdef uint64_t stop(self) noexcept:
        """The sequence after the last one that may be delivered."""
        return min(self.stream_engine.index.last_seq, self.stream_engine.log.committed_seq()) + 1

    cdef int fit(self) except -1:
        cdef uint64_t stop = self.stop()
        if stop != self.fitted_to or self.fitted_version != self.stream_engine.index.version:
            self.matcher.fit(self.stream_engine.index)
            self.fitted_to = stop
            self.fitted_version = self.stream_engine.index.version
        return 0

    cdef bint wants(self, uint32_t number) noexcept:
        """Whether a filter matches the subject. Call `fit` first."""
        if self.matcher.filters.is_all:
            return True
        if self.matcher.filters.is_literal:
            return number == self.matcher.number
        return <Py_ssize_t>(number >> 6) < self.matcher.words and self.matcher.test(self.stream_engine.index, number)

    cdef bint is_live(self, uint64_t seq) except -1:
        cdef Index index = self.stream_engine.index
        cdef Py_ssize_t at
        cdef int64_t row
        if seq < index.first_seq or seq > index.last_seq:
            return False
        at = index.block_of(seq)
        if at < 0:
            return False
        row = index.row_of(index.blocks[at], seq)
        return row >= 0 and not index.is_dead(index.blocks[at], <uint32_t>row)

    cdef int count_up(self) except -1:
        """Bring `count` up to date."""
        cdef Index index = self.stream_engine.index
        cdef uint64_t stop = self.stop(), start = self.next_seq
        cdef uint64_t before, after
        cdef Py_ssize_t n
        if self.is_counted:
            if stop <= self.counted_to + 1:
                return 0
            start = max(start, self.counted_to + 1)
            self.matcher.refill(index)
            self.count += index.count_between(start, stop, self.matcher)
            self.counted_to = stop - 1
            return 0
        self.matcher.refill(index)
        self.fitted_to = 0
        self.count = 0
        for n in range(self.last_at, self.last_count):
            self.count += self.is_live(self.lasts[n])
        if start < stop:
            before = start - index.first_seq if start > index.first_seq else 0
            after = stop - start
            if before >= after or self.matcher.filters.is_all:
                self.count += index.count_between(start, stop, self.matcher)
            else:                          # count on the shorter side
                if self.matcher.filters.is_literal:
                    if self.matcher.number != NO_NUMBER:
                        self.count += index.stats[self.matcher.number].total
                else:
                    self.count += total_wanted(index, self.matcher)
                self.count -= index.count_between(index.first_seq, start, self.matcher)
                self.count -= index.count_between(stop, index.last_seq + 1, self.matcher)
        self.counted_to = max(stop, start) - 1
        self.is_counted = True
        return 0

    cdef uint64_t find_next(self) except? 0:
        """The first sequence that was never delivered; 0: none."""
        cdef uint64_t seq, stop
        while self.last_at < self.last_count:
            seq = self.lasts[self.last_at]
            if self.is_live(seq):
                return seq
            self.last_at += 1
        stop = self.stop()
        if self.next_seq >= stop:
            return 0
        self.fit()
        seq = self.stream_engine.index.next_live(self.next_seq, stop, self.matcher)
        if seq == 0:
            self.next_seq = stop
        return seq

    cdef int fill(self, uint64_t seq, Candidate* candidate) except -1:
        """Fill `candidate` with the message; 0 if it is gone or damaged."""
        cdef Index index = self.stream_engine.index
        cdef Py_ssize_t at = index.block_of(seq)
        cdef Block* block
        cdef int64_t row
        cdef Record record
        cdef const uint8_t* base
        if at < 0 or seq < index.first_seq or seq > index.last_seq:
            return 0
        block = index.blocks[at]
        row = index.row_of(block, seq)
        if row < 0 or index.is_dead(block, <uint32_t>row):
            return 0
        base = self.windows.fetch(self.stream_engine, block, <uint32_t>row, &record, <void*>self, &self.window)
        if base == NULL and index.doubt(block):
            return self.fill(seq, candidate)
        if base == NULL:
            self.stream_engine.store.note_damage(block.id, index.section(block, SECTION_OFFSETS)[row], seq)
            return 0
        if record.flags & FLAG_ERASED:
            return 0
        candidate.seq = seq
        candidate.time = record.time
        candidate.subject = base + record.subject
        candidate.subject_size = record.subject_size
        candidate.headers = base + record.headers
        candidate.headers_size = record.headers_size
        candidate.payload = base + record.payload
        candidate.payload_size = record.payload_size
        candidate.dseq = self.table.delivered_consumer_seq + 1
        if self.headers_only:
            self.shorten(candidate)
        return 1

    cdef int shorten(self, Candidate* candidate) except -1:
        """Leave the payload out, and add a header with its size."""
        cdef size_t size = candidate.headers_size + 64
        cdef uint8_t* out
        cdef void* grown
        if size > self.scratch_size:
            grown = realloc(self.scratch, size)
            if grown == NULL:
                raise MemoryError
            self.scratch = <uint8_t*>grown
            self.scratch_size = size
        out = self.scratch
        if candidate.headers_size >= 2:
            memcpy(out, candidate.headers, candidate.headers_size - 2)
            out += candidate.headers_size - 2
        else:
            memcpy(out, b"NATS/1.0\r\n", 10)
            out += 10
        memcpy(out, b"Nats-Msg-Size: ", 15)
        out += 15
        out += write_decimal(out, candidate.payload_size)
        memcpy(out, b"\r\n\r\n", 4)
        candidate.headers = self.scratch
        candidate.headers_size = <uint32_t>(out + 4 - self.scratch)
        candidate.payload_size = 0
        return 0

    # Delivery.

    cdef int hold(self, int64_t now_ns) except -1:
        """Set `held` to the first message that is due; 0: none is. Messages that reached max_deliver are given up."""
        cdef AckEntry* entry
        cdef uint64_t seq
        while True:
            if self.held:
                entry = self.table.pending_entry(self.held)
                if entry == NULL or entry.place != TAKEN:
                    self.held = 0
            if self.held == 0:
                if self.table.take_due(now_ns, &seq, 1) == 0:
                    return 0
                self.held = seq
                entry = self.table.pending_entry(seq)
            if self.max_deliver <= 0 or <int64_t>entry.deliveries < self.max_deliver:
                return 1
            if self.tells:
                self.given_up.append((self.held, entry.deliveries))
            if self.table.abandon(self.held) < 0:
                raise MemoryError
            self.held = 0

    cpdef bint is_paused(self, int64_t now_ns) noexcept:
        """Whether the end of the pause, a time of the machine's clock, is still to come."""
        return now_ns + self.stream_engine.clock.offset_ns < self.paused_until_ns

    cdef int look(self, int64_t now_ns, Candidate* candidate) except -1:
        cdef uint64_t seq
        cdef AckEntry* entry
        self.wake_ns = 0
        if self.paused_until_ns:
            if self.is_paused(now_ns):
                self.wake_ns = self.paused_until_ns - self.stream_engine.clock.offset_ns
                return LOOK_NOTHING
        while self.table.pending_count and self.hold(now_ns):
            entry = self.table.pending_entry(self.held)
            if self.fill(self.held, candidate):
                self.count_up()
                candidate.deliveries = entry.deliveries + 1
                candidate.pending = self.count
                return LOOK_FOUND
            if self.tells:
                self.dropped.append((self.held, entry.dseq, entry.deliveries))
            if self.table.remove(self.held, self.held) < 0:
                raise MemoryError
            self.held = 0
        if (self.max_ack_pending > 0 and self.table.policy != ACK_NONE
                and <int64_t>self.table.pending_count >= self.max_ack_pending):
            return LOOK_NOTHING
        while True:
            seq = self.find_next()
            if seq == 0:
                return LOOK_NOTHING
            if self.fill(seq, candidate):
                break
            self.pass_over(seq)
        if self.replay_to >= seq and self.replay_ns:
            self.wake_ns = self.replay_ns + max(candidate.time - self.replay_time, 0)
            if now_ns < self.wake_ns:
                return LOOK_NOTHING
            self.wake_ns = 0
        self.count_up()
        candidate.deliveries = 1
        candidate.pending = self.count - 1 if self.count else 0
        return LOOK_FOUND

    cdef int pass_over(self, uint64_t seq) except -1:
        """Move on from the sequence that `find_next` returned."""
        if self.last_at < self.last_count:
            self.last_at += 1
            if self.is_counted and self.count:
                self.count -= 1
            return 0
        if self.is_counted and seq <= self.counted_to and self.count:
            self.count -= 1
        self.next_seq = seq + 1
        return 0

    cdef int64_t wait_of(self, uint32_t deliveries) noexcept:
        """How long to wait for an ack after this many deliveries."""
        if self.backoff_count:
            return self.backoff[min(<Py_ssize_t>deliveries, self.backoff_count) - 1]
        return self.ack_wait_ns

    cdef int64_t deadline(self, uint32_t deliveries, int64_t now_ns) noexcept:
        cdef int64_t wait = self.wait_of(deliveries)
        if not self.has_deadlines:
            return FOREVER
        return now_ns + wait if wait < FOREVER - now_ns else FOREVER   # an overflow would mean at once: centuries count as never

    cdef int hand_over(self, Candidate* candidate, int64_t now_ns) except -1:
        cdef uint32_t deliveries = 0
        if candidate.deliveries > 1:
            if self.table.put_again(candidate.seq, now_ns, self.deadline(candidate.deliveries, now_ns), &deliveries) == 0:
                raise MemoryError
            self.held = 0
        else:
            if self.table.put(candidate.seq, now_ns, self.deadline(1, now_ns)) == 0:
                raise MemoryError
            self.pass_over(candidate.seq)
            self.replay_time = candidate.time
            self.replay_ns = now_ns
            if self.collects and self.table.policy == ACK_NONE:
                self.finish(candidate.seq)
        self.last_delivered_ns = now_ns
        return 0

    # Acknowledgements.

    cdef int finish(self, uint64_t seq) except -1:
        """Note that this consumer is done with a message."""
        cdef void* grown
        if self.done_count == self.done_capacity:
            grown = realloc(self.done, (self.done_capacity * 2 + 64) * 8)
            if grown == NULL:
                raise MemoryError
            self.done = <uint64_t*>grown
            self.done_capacity = self.done_capacity * 2 + 64
        self.done[self.done_count] = seq
        self.done_count += 1
        return 0

    cpdef int ack(self, uint64_t seq, uint64_t dseq, int64_t now_ns) except -1:
        cdef Py_ssize_t n, before = self.done_count
        cdef AckEntry* entry
        cdef Py_ssize_t acked
        if self.table.policy == ACK_EXPLICIT:
            acked = self.table.ack_one(seq)
            if acked < 0:
                raise MemoryError
            if acked and self.collects:
                self.finish(seq)
        elif self.table.policy == ACK_ALL:
            if self.collects:
                for n in range(self.table.used):
                    entry = self.table.at(n)
                    if entry.seq > seq:
                        break
                    if self.table.pending_entry(entry.seq) != NULL:
                        self.finish(entry.seq)
            acked = self.table.ack_through(seq, dseq)
            if acked < 0:
                raise MemoryError
            if acked == 0:
                self.done_count = before
        else:
            return 0
        if acked:
            self.last_acked_ns = now_ns
        return acked != 0

    cpdef int term(self, uint64_t seq, uint64_t dseq, int64_t now_ns) except -1:
        return self.ack(seq, dseq, now_ns)

    cpdef int nak(self, uint64_t seq, int64_t due_ns) except -1:
        cdef int changed = self.table.wait_until(seq, due_ns)
        if changed < 0:
            raise MemoryError
        return changed

    cpdef int progress(self, uint64_t seq, int64_t now_ns) except -1:
        cdef AckEntry* entry = self.table.pending_entry(seq)
        if entry == NULL:
            return 0
        return self.nak(seq, self.deadline(entry.deliveries, now_ns))

    # Messages that leave the stream.

    cdef bint drop_last(self, uint64_t seq) noexcept:
        """Whether `seq` is in the rest of `lasts`."""
        cdef Py_ssize_t low = self.last_at, high = self.last_count, middle
        while low < high:
            middle = (low + high) >> 1
            if self.lasts[middle] < seq:
                low = middle + 1
            else:
                high = middle
        return low < self.last_count and self.lasts[low] == seq

    cdef int row_gone(self, uint64_t seq, uint32_t number) except -1:
        cdef AckEntry* entry
        if seq >= self.next_seq:
            if self.is_counted and seq <= self.counted_to and self.count:
                self.matcher.fit(self.stream_engine.index)
                if self.wants(number):
                    self.count -= 1
            return 0
        if self.last_at < self.last_count and self.drop_last(seq):
            if self.is_counted and self.count:
                self.count -= 1
            return 0
        if self.table.used and seq >= self.table.at(0).seq:
            entry = self.table.pending_entry(seq)
            if entry != NULL:              # as if it had been acknowledged
                self.last_acked_ns = self.stream_engine.store.clock.now_ns()
                if self.tells:
                    self.dropped.append((seq, entry.dseq, entry.deliveries))
            if self.table.remove(seq, seq) < 0:
                raise MemoryError
        return 0

    cdef int rows_gone(self, uint64_t start, uint64_t stop) except -1:
        cdef Py_ssize_t n
        cdef AckEntry* entry
        self.is_counted = False
        if self.tells:
            for n in range(self.table.lower_bound(start), self.table.used):
                entry = self.table.at(n)
                if entry.seq >= stop:
                    break
                if self.table.pending_entry(entry.seq) != NULL:
                    self.dropped.append((entry.seq, entry.dseq, entry.deliveries))
        if self.table.remove(start, stop - 1) < 0:
            raise MemoryError
        return 0

    cdef void rolled_back(self, uint64_t seq) noexcept:
        self.is_counted = False
        self.windows.clear()               # they may hold records that were rolled back and will be overwritten

    cdef uint64_t watched_from(self) noexcept:
        cdef uint64_t low = self.next_seq
        if self.last_at < self.last_count:
            low = min(low, self.lasts[self.last_at])
        if self.table.used:
            low = min(low, self.table.at(0).seq)
        return low

    def purged(self, first_seq):
        """The stream was purged, and now begins at `first_seq`."""
        if first_seq > self.next_seq:
            self.next_seq = first_seq
            self.is_counted = False
        while self.last_at < self.last_count and self.lasts[self.last_at] < first_seq:
            self.last_at += 1
        self.table.purge(first_seq)

    def reconcile(self):
        """After a crash, pending messages may be gone, and the stream may end before the last delivery; returns whether
        it did.

        A consumer that has delivered nothing stays at its start, even if that sequence is still to come.
        """
        cdef Index index = self.stream_engine.index
        cdef Py_ssize_t n
        cdef bint is_ahead = self.table.delivered_consumer_seq > 0 and self.table.rewind(index.last_seq)
        cdef list gone = []
        if is_ahead:
            self.next_seq = self.table.delivered_stream_seq + 1
            self.last_at = self.last_count = 0
        for n in range(self.table.used):
            if not self.is_live(self.table.at(n).seq):
                gone.append(self.table.at(n).seq)
        for seq in gone:
            self.table.drop(seq, seq + 1)
        self.is_counted = False
        self.held = 0
        self.stream_engine.index.watch(self)
        return is_ahead

    cdef bint needs(self, uint64_t seq, uint32_t number) noexcept:
        """Whether this consumer still has to deliver a live message, or to get an ack for it. Call `fit` first."""
        if not self.wants(number):
            return False
        if seq >= self.next_seq or (self.last_at < self.last_count and self.drop_last(seq)):
            return True
        return self.table.policy != ACK_NONE and self.table.find(seq) >= 0

    # Python API.

    def take(self, int64_t now_ns, Py_ssize_t most):
        """Deliver up to `most` messages."""
        cdef Candidate candidate
        cdef Delivered one
        found = []
        while len(found) < most and self.look(now_ns, &candidate) == LOOK_FOUND:
            one = Delivered.__new__(Delivered)
            one.message = _message(&candidate)
            one.deliveries = candidate.deliveries
            one.pending = candidate.pending
            self.hand_over(&candidate, now_ns)
            one.consumer_seq = self.table.delivered_consumer_seq
            found.append(one)
        return found

    def is_ready(self, int64_t now_ns):
        """Whether a message could be delivered now."""
        cdef Candidate candidate
        return self.look(now_ns, &candidate) == LOOK_FOUND

    def collect_due(self, int64_t now_ns):
        """Take the first message that is due; returns whether there is one that may be delivered again."""
        return self.table.pending_count > 0 and self.hold(now_ns) == 1

    @property
    def next_due_ns(self):
        """When the next pending message is due; None: none ever is. 0: one is due and waits to be delivered again."""
        cdef int64_t due = 0
        cdef AckEntry* entry
        if self.held:
            entry = self.table.pending_entry(self.held)
            if entry != NULL and entry.place == TAKEN:
                return 0
        if not self.table.earliest(&due) or due >= FOREVER:
            return None
        return due

    @property
    def offset_ns(self):
        """How far the machine's clock is ahead of the stream's times."""
        return self.stream_engine.clock.offset_ns

    @property
    def num_pending(self):
        """How many matching messages were not delivered yet."""
        self.count_up()
        return self.count

    @property
    def num_ack_pending(self):
        return self.table.pending_count

    @property
    def num_redelivered(self):
        return self.table.redelivered_count

    @property
    def is_full(self):
        """Whether max_ack_pending is reached: nothing new is delivered until a message is acknowledged."""
        return (self.max_ack_pending > 0 and self.table.policy != ACK_NONE
                and <int64_t>self.table.pending_count >= self.max_ack_pending)

    def take_given_up(self):
        """(seq, deliveries) of the messages that reached max_deliver since the last call."""
        taken, self.given_up = self.given_up, []
        return taken

    def take_dropped(self):
        """(seq, consumer seq, deliveries) of the messages that left the stream while pending, since the last call."""
        taken, self.dropped = self.dropped, []
        return taken


cdef Message _message(const Candidate* candidate):
    cdef Message message = Message.__new__(Message)
    message.seq = candidate.seq
    message.time_ns = candidate.time
    message.subject = candidate.subject[:candidate.subject_size].decode("utf-8", "backslashreplace")
    message.data = candidate.payload[:candidate.payload_size] if candidate.payload_size else b""
    if candidate.headers_size:
        message.raw_headers = candidate.headers[:candidate.headers_size]
    return message


def retire(StreamEngine stream_engine not None, list consumers not None, int reason, int64_t now_ns):
    """Delete the messages that the consumers finished since the last call, unless another consumer needs them; returns
    how many. The caller commits."""
    cdef ConsumerEngine consumer
    cdef Py_ssize_t total = 0, at = 0, n
    cdef uint64_t* seqs
    cdef Py_ssize_t removed = 0
    if stream_engine.log.fail_errno:
        return 0                           # a delete would be rolled back: keep the list until the disk works again
    for consumer in consumers:
        total += consumer.done_count
    if total == 0:
        return 0
    seqs = <uint64_t*>malloc(total * 8)
    if seqs == NULL:
        raise MemoryError
    try:
        for consumer in consumers:
            if consumer.done_count:
                memcpy(seqs + at, consumer.done, consumer.done_count * 8)
                at += consumer.done_count
                consumer.done_count = 0
            consumer.fit()
        sort_seqs(seqs, total)             # fast: acks mostly arrive in order
        for n in range(total):
            if n and seqs[n] == seqs[n - 1]:
                continue
            removed += _remove_unneeded(stream_engine, consumers, seqs[n], reason, False)
    finally:
        free(seqs)
    if removed:
        stream_engine.log_changes(now_ns)
    return removed


def sweep(StreamEngine stream_engine not None, list consumers not None, bint only_wanted, int reason, int64_t now_ns):
    """Delete every message that no consumer needs; with `only_wanted`, only messages that a consumer's filter matches.
    Returns how many. The caller commits."""
    cdef ConsumerEngine consumer
    cdef Index index = stream_engine.index
    cdef uint64_t seq = index.first_seq
    cdef Py_ssize_t removed = 0
    for consumer in consumers:
        consumer.fit()
    while seq:
        seq = index.next_live(seq, index.last_seq + 1, None)
        if seq == 0:
            break
        removed += _remove_unneeded(stream_engine, consumers, seq, reason, only_wanted)
        seq += 1
    if removed:
        stream_engine.log_changes(now_ns)
    return removed


def let_go(StreamEngine stream_engine not None, ConsumerEngine gone not None, list consumers not None, uint64_t start, Py_ssize_t most, int reason,
           int64_t now_ns):
    """Delete what only `gone`, a consumer that was removed, needed. Looks at up to `most` messages from `start` on (0:
    from the beginning). Returns the sequence to continue from; 0: all done. The caller commits."""
    cdef ConsumerEngine consumer
    cdef Index index = stream_engine.index
    cdef Py_ssize_t n, removed = 0, looked = 0
    for consumer in consumers:
        consumer.fit()
    gone.fit()
    if start == 0:
        for n in range(gone.table.used):
            removed += _remove_unneeded(stream_engine, consumers, gone.table.at(n).seq, reason, False)
        for n in range(gone.last_at, gone.last_count):
            removed += _remove_unneeded(stream_engine, consumers, gone.lasts[n], reason, False)
        for n in range(gone.done_count):
            removed += _remove_unneeded(stream_engine, consumers, gone.done[n], reason, False)
        start = max(gone.next_seq, <uint64_t>1)
        for consumer in consumers:         # a consumer with the same messages ahead, or more, needs all of the rest
            if consumer.next_seq <= start and (consumer.matcher.filters.is_all or consumer.filters == gone.filters):
                start = index.last_seq + 1
                break
    while looked < most:
        start = index.next_live(start, index.last_seq + 1, gone.matcher) if start <= index.last_seq else 0
        if start == 0:
            break
        removed += _remove_unneeded(stream_engine, consumers, start, reason, False)
        start += 1
        looked += 1
    if removed:
        stream_engine.log_changes(now_ns)
    return start


cdef int _remove_unneeded(StreamEngine stream_engine, list consumers, uint64_t seq, int reason, bint only_wanted) except -1:
    cdef Index index = stream_engine.index
    cdef ConsumerEngine consumer
    cdef Py_ssize_t at
    cdef Block* block
    cdef int64_t row
    cdef uint32_t number
    cdef bint is_wanted = False
    if seq < index.first_seq or seq > index.last_seq:
        return 0
    at = index.block_of(seq)
    if at < 0:
        return 0
    block = index.blocks[at]
    row = index.row_of(block, seq)
    if row < 0 or index.is_dead(block, <uint32_t>row):
        return 0
    number = index.section(block, SECTION_SUBJECTS)[row]
    for consumer in consumers:
        if consumer.needs(seq, number):
            return 0
        is_wanted = is_wanted or consumer.wants(number)
    if only_wanted and not is_wanted:
        return 0
    return index.remove(seq, <uint8_t>reason)
