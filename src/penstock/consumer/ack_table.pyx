"""AckTable: the messages that a consumer has delivered and not yet seen acknowledged.

First deliveries rise in sequence, so the entries lie in a ring in that order and are found by interpolation, which is
exact if there are no gaps. First deliveries mostly rise in deadline too: those entries form the lane, which is the ring
itself read by a cursor. All other deadlines (redeliveries, naks, backoff) are in a heap of positions. An entry that is
acknowledged out of order stays in the ring as dead until an end of the ring passes it or the ring is rebuilt.
tests/twins/ack_table.py defines the rules, the floors and the deltas.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from penstock.base.clock cimport STILL, Clock
from penstock.format.consumer_state cimport PendingItem, RedeliveredItem, StateHead, StateItems, decode_items, encode_items
from penstock.base.arrow_buffer cimport buffer_reserve
from penstock.base.varint cimport read_varint, unzigzag, write_varint, zigzag

from penstock.format import consumer_state

NONE = ACK_NONE
EXPLICIT = ACK_EXPLICIT
ALL = ACK_ALL

cdef enum:
    ROOM_KEPT = 1024                       # entries: a ring up to this size is kept when it becomes empty
    DELTA_SIZE_MAX = 96                    # bytes that one change may append
    RUN_MAX = 65536                        # a longer run is damaged

cdef enum:                                 # deltas: the two low bits of the first number
    TOKEN_ACK = 0
    TOKEN_DELIVER = 1
    TOKEN_ACK_RUN = 2
    TOKEN_OTHER = 3                        # the bits above select one of OTHER_…

cdef enum:
    OTHER_TIME = 0
    OTHER_REDELIVER = 1
    OTHER_DEADLINE = 2
    OTHER_ACK_ALL = 3
    OTHER_GIVE_UP = 4
    OTHER_DROP = 5
    OTHER_PURGE = 6
    OTHER_REWIND = 7

cdef enum:                                 # open runs
    RUN_NONE = 0
    RUN_DELIVER = 1
    RUN_ACK = 2
    RUN_REDELIVER = 3

REASONS = (
    "",
    "no whole varint in its shortest form",
    "a kind that is not known",
    "a run of none or of too many",
    "a sequence passes 2^64 - 1",
    "a delivery that does not rise",
    "a message that is not pending",
    "a change that changes nothing",
    "a change that this ack policy does not have",
)
cdef enum:
    BAD_VARINT = -1
    BAD_KIND = -2
    BAD_RUN = -3
    BAD_OVERFLOW = -4
    BAD_RISE = -5
    BAD_PENDING = -6
    BAD_CHANGE = -7
    BAD_POLICY = -8
    NO_MEMORY = -9

cdef uint64_t SEQ_MAX = ~<uint64_t>0
cdef uint32_t IN_LANE = 0xffffffff         # special values of an entry's `place`; smaller numbers are positions in the heap
cdef uint32_t TAKEN = 0xfffffffe           # it was due, and is held by the caller
cdef uint32_t GIVEN_UP = 0xfffffffd        # it reached max_deliver: not pending, but still counted as redelivered
cdef uint32_t DEAD = 0xfffffffc
cdef Py_ssize_t ROOM_MAX = 0xfffffff0
cdef int64_t FOREVER = 0x3FFFFFFFFFFFFFFFLL    # a deadline that never comes


cdef inline bint is_pending(const AckEntry* entry) noexcept nogil:
    return entry.place != DEAD and entry.place != GIVEN_UP


cdef inline uint64_t redelivered(const AckEntry* entry) noexcept nogil:
    """The reported number of redeliveries; giving up counts as one, in place of the attempt that was not made."""
    return entry.deliveries if entry.place == GIVEN_UP else entry.deliveries - 1


cdef class AckTable:
    """The deliveries of one consumer.

    Always true: the ring rises in sequence and neither its first nor its last entry is dead; the heap's entries know
    their position in it; the entries in the lane rise by deadline and then sequence.
    """

    def __cinit__(self, policy: int = ACK_EXPLICIT, start_seq: int = 1):
        if policy not in (ACK_NONE, ACK_EXPLICIT, ACK_ALL):
            raise ValueError(f"ack policy {policy}: 0 (none), 1 (explicit) or 2 (all) is needed")
        if start_seq < 1:
            raise ValueError(f"start_seq {start_seq}: sequences begin at 1")
        self.policy = policy
        self.clock = STILL
        self.delivered_stream_seq = start_seq - 1
        self.ack_floor_stream_seq = start_seq - 1

    def __dealloc__(self):
        free(self.entries)
        free(self.heap)
        free(self.log.base)

    # The ring.

    cdef Py_ssize_t position(self, Py_ssize_t index) noexcept nogil:
        cdef Py_ssize_t position = self.start + index
        return position if position < self.room else position - self.room

    cdef AckEntry* at(self, Py_ssize_t index) noexcept nogil:
        return &self.entries[self.position(index)]

    cdef Py_ssize_t lower_bound(self, uint64_t seq) noexcept nogil:
        """Index of the first entry at or above `seq`, dead ones included."""
        cdef uint64_t first, last
        cdef Py_ssize_t low = 0, high = self.used - 1, guess, step = 1
        if self.used == 0:
            return 0
        first = self.at(0).seq
        if seq <= first:
            return 0
        last = self.at(high).seq
        if seq >= last:
            return high if seq == last else self.used
        # `low` is below `seq`, and `high` at or above it. Guess its place as if gaps were even, then widen the search.
        guess = <Py_ssize_t>(<double>(seq - first) / <double>(last - first) * <double>high)
        guess = min(max(guess, <Py_ssize_t>1), high)
        if self.at(guess).seq >= seq:
            high = guess
            while high - step > low:
                if self.at(high - step).seq < seq:
                    low = high - step
                    break
                high -= step
                step *= 2
        else:
            low = guess
            while low + step < high:
                if self.at(low + step).seq >= seq:
                    high = low + step
                    break
                low += step
                step *= 2
        while high - low > 1:
            guess = low + (high - low) // 2
            if self.at(guess).seq < seq:
                low = guess
            else:
                high = guess
        return high

    cdef Py_ssize_t find(self, uint64_t seq) noexcept nogil:
        """Index of the entry, pending or given up; -1 if there is none."""
        cdef Py_ssize_t index = self.lower_bound(seq)
        cdef AckEntry* entry
        if index == self.used:
            return -1
        entry = self.at(index)
        return index if entry.seq == seq and entry.place != DEAD else -1

    cdef Py_ssize_t next_pending(self, Py_ssize_t index) noexcept nogil:
        """Index of the first pending entry at or after `index`, or `used`."""
        while self.low < self.used and not is_pending(self.at(self.low)):
            self.low += 1
        index = max(index, self.low)
        while index < self.used and not is_pending(self.at(index)):
            index += 1
        return index

    cdef bint append(self, AckEntry* entry) noexcept nogil:
        """Append `entry` to the ring; False if there is no memory."""
        cdef AckEntry* entries
        cdef Py_ssize_t room
        if self.used == self.room:
            if self.dead * (8 if self.room > ROOM_KEPT else 4) >= self.room and self.dead > 0:
                if not self.rebuild(self.room):
                    return False
            else:
                # A large ring grows by a sixteenth, since moving its pages is cheap; a small one doubles.
                room = self.room + (self.room // 16 if self.room > ROOM_KEPT else self.room) + 16
                if room > ROOM_MAX:
                    return False
                if self.start == 0:
                    entries = <AckEntry*>realloc(self.entries, room * sizeof(AckEntry))
                    if entries == NULL:
                        return False
                    self.entries = entries
                    self.room = room
                elif not self.rebuild(room):
                    return False
        self.entries[self.position(self.used)] = entry[0]
        self.used += 1
        return True

    cdef bint rebuild(self, Py_ssize_t room) noexcept nogil:
        """Move what is not dead into a ring of `room`, which holds it; False, and nothing changed, without memory."""
        cdef bint is_wrapped = self.start + self.used > self.room
        cdef AckEntry* entries = self.entries
        cdef AckEntry* entry
        cdef Py_ssize_t index, kept = 0, low = 0, lane = 0
        if is_wrapped:
            entries = <AckEntry*>malloc(room * sizeof(AckEntry))
            if entries == NULL:
                return False
        for index in range(self.used):
            entry = self.at(index)
            if entry.place == DEAD:
                continue
            entries[kept] = entry[0]       # safe in place: it never overtakes the entries still to be read
            if entry.place < DEAD:
                self.heap[entry.place] = <uint32_t>kept
            kept += 1
            low += index < self.low
            lane += index < self.lane
        self.start = 0
        self.used = kept
        self.dead = 0
        self.low = low
        self.lane = lane
        if is_wrapped:
            free(self.entries)
        elif room != self.room:
            entries = <AckEntry*>realloc(self.entries, room * sizeof(AckEntry))
            if entries == NULL:
                return False               # as it was, but without dead entries
        self.entries = entries
        self.room = room
        return True

    cdef void bury(self, Py_ssize_t index) noexcept nogil:
        """The entry is no more; `trim` is due before the next search ends."""
        cdef AckEntry* entry = self.at(index)
        self.redelivered_count -= redelivered(entry) > 0
        self.pending_count -= is_pending(entry)
        if entry.place < DEAD:
            self.heap_remove(entry.place)
        entry.place = DEAD
        self.dead += 1

    cdef void trim(self) noexcept nogil:
        """Drop dead entries at both ends, and free memory that is mostly unused."""
        cdef Py_ssize_t live
        cdef uint32_t* heap
        while self.used > 0 and self.at(0).place == DEAD:
            self.start = self.position(1)
            self.used -= 1
            self.dead -= 1
            self.low -= self.low > 0
            self.lane -= self.lane > 0
        while self.used > 0 and self.at(self.used - 1).place == DEAD:
            self.used -= 1
            self.dead -= 1
        self.low = min(self.low, self.used)
        self.lane = min(self.lane, self.used)
        if self.used == 0:
            self.start = 0
        if self.room > ROOM_KEPT:
            live = self.used - self.dead
            if live == 0:
                free(self.entries)
                self.entries = NULL
                self.room = 0
            elif live * 6 < self.room * 5:
                self.rebuild(live + live // 32 + 16)       # if there is no memory, the old ring stays
        if self.heap_room > ROOM_KEPT and self.heap_count * 4 < self.heap_room:
            live = self.heap_count * 2 + 16
            heap = <uint32_t*>realloc(self.heap, live * sizeof(uint32_t))
            if heap != NULL:
                self.heap = heap
                self.heap_room = live

    cdef bint reserve(self) noexcept nogil:
        """Make room in the heap for one more entry, and in the log for one change."""
        cdef uint32_t* heap
        cdef Py_ssize_t room
        if self.heap_count == self.heap_room:
            room = self.heap_room + (self.heap_room // 16 if self.heap_room > ROOM_KEPT else self.heap_room) + 16
            heap = <uint32_t*>realloc(self.heap, room * sizeof(uint32_t))
            if heap == NULL:
                return False
            self.heap = heap
            self.heap_room = room
        return not self.logged or buffer_reserve(&self.log, DELTA_SIZE_MAX)

    # Deadlines.

    cdef bint is_before(self, uint32_t one, uint32_t other) noexcept nogil:
        cdef AckEntry* a = &self.entries[one]
        cdef AckEntry* b = &self.entries[other]
        return a.seq < b.seq if a.deadline_ns == b.deadline_ns else a.deadline_ns < b.deadline_ns

    cdef void sift(self, Py_ssize_t hole, uint32_t moved) noexcept nogil:
        """Put `moved` into the heap, starting at the free place `hole`."""
        cdef Py_ssize_t parent, child
        while hole > 0:
            parent = (hole - 1) // 2
            if not self.is_before(moved, self.heap[parent]):
                break
            self.heap[hole] = self.heap[parent]
            self.entries[self.heap[hole]].place = <uint32_t>hole
            hole = parent
        while True:
            child = 2 * hole + 1
            if child >= self.heap_count:
                break
            if child + 1 < self.heap_count and self.is_before(self.heap[child + 1], self.heap[child]):
                child += 1
            if not self.is_before(self.heap[child], moved):
                break
            self.heap[hole] = self.heap[child]
            self.entries[self.heap[hole]].place = <uint32_t>hole
            hole = child
        self.heap[hole] = moved
        self.entries[moved].place = <uint32_t>hole

    cdef void heap_push(self, uint32_t position) noexcept nogil:
        self.heap_count += 1
        self.sift(self.heap_count - 1, position)

    cdef void heap_remove(self, Py_ssize_t hole) noexcept nogil:
        self.heap_count -= 1
        if hole < self.heap_count:
            self.sift(hole, self.heap[self.heap_count])

    cdef void skip_lane(self) noexcept nogil:
        while self.lane < self.used and self.at(self.lane).place != IN_LANE:
            self.lane += 1

    cdef Py_ssize_t take_due(self, int64_t now_ns, uint64_t* out, Py_ssize_t out_max) noexcept nogil:
        cdef Py_ssize_t taken = 0
        cdef AckEntry* entry
        while taken < out_max:
            self.skip_lane()
            if self.lane < self.used and (
                self.heap_count == 0 or self.is_before(<uint32_t>self.position(self.lane), self.heap[0])
            ):
                entry = self.at(self.lane)
                if entry.deadline_ns > now_ns:
                    break
            elif self.heap_count > 0:
                entry = &self.entries[self.heap[0]]
                if entry.deadline_ns > now_ns:
                    break
                self.heap_remove(0)
            else:
                break
            entry.place = TAKEN
            out[taken] = entry.seq
            taken += 1
        return taken

    cdef bint earliest(self, int64_t* deadline_ns) noexcept nogil:
        self.skip_lane()
        cdef bint found = self.lane < self.used
        if found:
            deadline_ns[0] = self.at(self.lane).deadline_ns
        if self.heap_count > 0 and (not found or self.entries[self.heap[0]].deadline_ns < deadline_ns[0]):
            deadline_ns[0] = self.entries[self.heap[0]].deadline_ns
            found = True
        return found

    # Deliveries and acks.

    cdef uint64_t put(self, uint64_t seq, int64_t now_ns, int64_t deadline_ns) noexcept nogil:
        cdef AckEntry entry
        cdef uint64_t gap = seq - self.delivered_stream_seq
        if seq <= self.delivered_stream_seq or self.delivered_consumer_seq == SEQ_MAX or not self.reserve():
            return 0
        if self.policy != ACK_NONE:
            entry.seq = seq
            entry.dseq = self.delivered_consumer_seq + 1
            entry.last_ns = now_ns
            entry.deadline_ns = deadline_ns
            entry.deliveries = 1
            entry.place = IN_LANE
            self.skip_lane()
            if self.lane < self.used and deadline_ns < self.lane_deadline:
                entry.place = TAKEN                        # until it is pushed onto the heap below
            else:
                self.lane_deadline = deadline_ns
            if not self.append(&entry):
                return 0
            if entry.place == TAKEN:
                self.heap_push(<uint32_t>self.position(self.used - 1))
            self.pending_count += 1
        self.delivered_consumer_seq += 1
        self.delivered_stream_seq = seq
        if self.policy == ACK_NONE:
            self.ack_floor_consumer_seq = self.delivered_consumer_seq
            self.ack_floor_stream_seq = seq
        if self.logged:
            if self.policy != ACK_NONE:
                self.log_times(now_ns, deadline_ns)
            self.extend_run(RUN_DELIVER, seq, gap)
        return self.delivered_consumer_seq

    cdef AckEntry* pending_entry(self, uint64_t seq) noexcept nogil:
        cdef Py_ssize_t index = self.find(seq)
        if index < 0 or not is_pending(self.at(index)):
            return NULL
        return self.at(index)

    cdef uint64_t put_again(self, uint64_t seq, int64_t now_ns, int64_t deadline_ns, uint32_t* deliveries) noexcept nogil:
        """The consumer sequence of this redelivery; 0 if the message is not pending."""
        cdef AckEntry* entry = self.pending_entry(seq)
        if entry == NULL or self.delivered_consumer_seq == SEQ_MAX or not self.reserve():
            return 0
        if entry.place < DEAD:
            self.heap_remove(entry.place)
        entry.last_ns = now_ns
        entry.deadline_ns = deadline_ns
        self.heap_push(<uint32_t>(entry - self.entries))
        self.redelivered_count += entry.deliveries == 1
        entry.deliveries += entry.deliveries < <uint32_t>0xffffffff
        deliveries[0] = entry.deliveries
        self.delivered_consumer_seq += 1
        if self.logged:
            self.log_times(now_ns, deadline_ns)
            self.extend_run(RUN_REDELIVER, seq, 1)
        return self.delivered_consumer_seq

    cdef int wait_until(self, uint64_t seq, int64_t deadline_ns) noexcept nogil:
        cdef AckEntry* entry = self.pending_entry(seq)
        cdef uint64_t deadline
        if entry == NULL:
            return 0
        if not self.reserve():
            return -1
        if entry.place < DEAD:
            self.heap_remove(entry.place)
        entry.deadline_ns = deadline_ns
        self.heap_push(<uint32_t>(entry - self.entries))
        if self.logged:
            self.log_one(OTHER_DEADLINE, seq)
            deadline = <uint64_t>deadline_ns + <uint64_t>self.clock.offset_ns
            self.emit(zigzag(<int64_t>(deadline - self.log_deadline)))
            self.log_deadline = deadline
            self.has_moved = True
        return 1

    cdef int abandon(self, uint64_t seq) noexcept nogil:
        cdef AckEntry* entry = self.pending_entry(seq)
        if entry == NULL:
            return 0
        if not self.reserve():
            return -1
        if entry.place < DEAD:
            self.heap_remove(entry.place)
        self.redelivered_count += entry.deliveries == 1
        entry.place = GIVEN_UP
        self.pending_count -= 1
        if self.logged:
            self.log_one(OTHER_GIVE_UP, seq)
        return 1

    cdef void settle(self, Py_ssize_t index, uint64_t dseq, uint64_t seq) noexcept nogil:
        """Move the ack floor after the entry at `index` was acknowledged or removed."""
        cdef Py_ssize_t after
        if self.policy == ACK_ALL:
            if dseq > self.ack_floor_consumer_seq and seq > self.ack_floor_stream_seq and self.next_pending(0) >= index:
                self.ack_floor_consumer_seq = dseq
                self.ack_floor_stream_seq = seq
        elif self.pending_count == 0:
            self.ack_floor_consumer_seq = self.delivered_consumer_seq
            self.ack_floor_stream_seq = self.delivered_stream_seq
        elif dseq == self.ack_floor_consumer_seq + 1:
            after = self.next_pending(index)
            if after < self.used:
                dseq = self.at(after).dseq - 1
                seq = self.at(after).seq - 1
            self.ack_floor_consumer_seq = dseq
            self.ack_floor_stream_seq = seq

    cdef int ack_one(self, uint64_t seq) noexcept nogil:
        cdef Py_ssize_t index = self.find(seq)
        cdef AckEntry* entry
        cdef uint64_t dseq
        cdef bint was_pending
        if index < 0:
            return 0
        if not self.reserve():
            return -1
        entry = self.at(index)
        dseq = entry.dseq
        was_pending = is_pending(entry)
        self.bury(index)
        if was_pending:
            self.settle(index, dseq, seq)
        self.trim()
        if self.logged:
            self.extend_run(RUN_ACK, seq, 1)
        return 1 if was_pending else 2

    cdef Py_ssize_t ack_through(self, uint64_t seq, uint64_t dseq) noexcept nogil:
        cdef Py_ssize_t index, acked = 0
        cdef bint is_known = False, moves = False
        cdef uint64_t floor = self.ack_floor_consumer_seq
        if seq > self.delivered_stream_seq or seq <= self.ack_floor_stream_seq:
            return 0
        index = self.find(seq)
        if index >= 0:
            is_known = True
            moves = is_pending(self.at(index))
        if dseq == 0:
            dseq = self.at(index).dseq if moves else floor + 1
        dseq = min(dseq, self.delivered_consumer_seq)
        if dseq <= floor:
            return 0
        if not self.reserve():
            return -1
        if is_known and not moves:
            self.bury(index)
        index = self.next_pending(0)
        while index < self.used and self.at(index).seq <= seq:
            self.bury(index)
            acked += 1
            index = self.next_pending(index)
        if moves:
            self.ack_floor_consumer_seq = dseq
            self.ack_floor_stream_seq = seq
        self.trim()
        if self.logged and (is_known or acked > 0):
            self.log_one(OTHER_ACK_ALL, seq)
            self.emit(dseq - floor)
        return acked

    cdef Py_ssize_t remove(self, uint64_t first, uint64_t last) noexcept nogil:
        cdef Py_ssize_t index = self.lower_bound(first), removed = 0
        cdef AckEntry* entry
        cdef bint was_pending
        if not self.reserve():
            return -1
        while index < self.used and self.at(index).seq <= last:
            entry = self.at(index)
            if entry.place != DEAD:
                was_pending = is_pending(entry)
                self.bury(index)
                if was_pending:
                    self.settle(index, entry.dseq, entry.seq)
                removed += 1
            index += 1
        if removed > 0:
            self.trim()
            if self.logged:
                self.log_one(OTHER_DROP, first)
                self.emit(last - first)
        return removed

    cdef Py_ssize_t purge_below(self, uint64_t first) noexcept nogil:
        cdef Py_ssize_t index = 0, removed = 0
        cdef AckEntry* entry
        cdef uint64_t highest = 0
        cdef bint was_pending
        if first == 0:
            return 0
        if not self.reserve():
            return -1
        while index < self.used and self.at(index).seq < first:
            entry = self.at(index)
            if entry.place != DEAD:
                was_pending = is_pending(entry)
                self.bury(index)
                if was_pending:
                    highest = max(highest, entry.dseq)
                    self.settle(index, entry.dseq, entry.seq)
                removed += 1
            index += 1
        self.trim()
        self.delivered_stream_seq = max(self.delivered_stream_seq, first - 1)
        if self.ack_floor_stream_seq < first - 1:
            self.ack_floor_stream_seq = first - 1
            self.ack_floor_consumer_seq = max(self.ack_floor_consumer_seq, highest)
        if self.pending_count == 0:
            self.ack_floor_consumer_seq = self.delivered_consumer_seq
            self.ack_floor_stream_seq = self.delivered_stream_seq
        if self.logged:
            self.close_log()
            self.emit(OTHER_PURGE << 2 | TOKEN_OTHER)
            self.emit(first)
        return removed

    cdef int rewind_to(self, uint64_t last) noexcept nogil:
        cdef Py_ssize_t index
        if self.delivered_stream_seq <= last:
            return 0
        if not self.reserve():
            return -1
        for index in range(self.lower_bound(last + 1), self.used):
            if self.at(index).place != DEAD:
                self.bury(index)
        self.trim()
        self.delivered_stream_seq = last
        if self.pending_count == 0 or self.ack_floor_stream_seq > last:
            self.ack_floor_consumer_seq = self.delivered_consumer_seq
            self.ack_floor_stream_seq = last
        if self.logged:
            self.close_log()
            self.emit(OTHER_REWIND << 2 | TOKEN_OTHER)
            self.emit(last)
        return 1

    # The log of changes. `reserve` was called before.

    cdef void emit(self, uint64_t value) noexcept nogil:
        self.log.used = write_varint(self.log.data, self.log.used, value)

    cdef void close_log(self) noexcept nogil:
        cdef uint64_t difference = zigzag(<int64_t>(self.run.first - self.log_seq))
        if self.run.kind == RUN_NONE:
            return
        if self.run.kind == RUN_DELIVER:
            self.emit(self.run.count << 2 | TOKEN_DELIVER)
            self.emit(self.run.stride)
        else:
            if self.run.kind == RUN_REDELIVER:
                self.emit(OTHER_REDELIVER << 2 | TOKEN_OTHER)
                self.emit(self.run.count)
                self.emit(difference)
            elif self.run.count == 1 and difference >> 62 == 0:
                self.emit(difference << 2 | TOKEN_ACK)
            else:
                self.emit(self.run.count << 2 | TOKEN_ACK_RUN)
                self.emit(difference)
            self.log_seq = self.run.first + self.run.count - 1
        self.run.kind = RUN_NONE

    cdef void extend_run(self, int kind, uint64_t seq, uint64_t stride) noexcept nogil:
        if (self.run.kind == kind and self.run.stride == stride and self.run.count < RUN_MAX
                and (kind == RUN_DELIVER or seq == self.run.first + self.run.count)):
            self.run.count += 1
            return
        self.close_log()
        self.run.kind = kind
        self.run.first = seq
        self.run.stride = stride
        self.run.count = 1

    cdef void log_times(self, int64_t now_ns, int64_t deadline_ns) noexcept nogil:
        cdef uint64_t time = <uint64_t>now_ns + <uint64_t>self.clock.offset_ns, wait = <uint64_t>deadline_ns - <uint64_t>now_ns
        if time != self.log_time or wait != self.log_wait:
            self.close_log()
            self.emit(OTHER_TIME << 2 | TOKEN_OTHER)
            self.emit(zigzag(<int64_t>(time - self.log_time)))
            self.emit(zigzag(<int64_t>(wait - self.log_wait)))
            self.log_time = time
            self.log_wait = wait

    cdef void log_one(self, int kind, uint64_t seq) noexcept nogil:
        self.close_log()
        self.emit(<uint64_t>kind << 2 | TOKEN_OTHER)
        self.emit(zigzag(<int64_t>(seq - self.log_seq)))
        self.log_seq = seq

    cdef void clear_log(self) noexcept nogil:
        if self.log.capacity > 65536:      # one busy moment must not hold memory for ever
            free(self.log.base)
            memset(&self.log, 0, sizeof(ArrowBuffer))
        self.log.used = 0
        self.run.kind = RUN_NONE
        self.log_seq = 0
        self.log_time = 0
        self.log_wait = 0
        self.log_deadline = 0
        self.has_moved = False

    cdef int replay(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* offset) noexcept nogil:
        """Apply the changes in `data`; returns 0, or what is wrong with the one at `offset`. Nothing is logged."""
        cdef Py_ssize_t at = 0, known
        cdef uint64_t token, kind, difference, more, seq = 0, time = 0, wait = 0, deadline = 0
        cdef int outcome
        while at < size:
            offset[0] = at
            at = read_varint(data, at, size, &token)
            if at < 0:
                return BAD_VARINT
            kind = token & 3
            token >>= 2
            if kind == TOKEN_ACK:
                difference = token
                token = 1
            elif kind == TOKEN_OTHER and token > OTHER_REWIND:
                return BAD_KIND
            else:
                at = read_varint(data, at, size, &difference)
                if at < 0:
                    return BAD_VARINT
            if kind == TOKEN_DELIVER:
                outcome = self.replay_run(RUN_DELIVER, 0, difference, token, time, wait)
            elif kind != TOKEN_OTHER:
                seq += <uint64_t>unzigzag(difference)
                outcome = self.replay_run(RUN_ACK, seq, 1, token, time, wait)
                seq += token - 1
            elif token == OTHER_PURGE:
                if difference == 0:
                    return BAD_CHANGE
                outcome = NO_MEMORY if self.purge_below(difference) < 0 else 0
            elif token == OTHER_REWIND:
                outcome = self.rewind_to(difference)
                outcome = NO_MEMORY if outcome < 0 else (0 if outcome else BAD_CHANGE)
            elif token == OTHER_GIVE_UP:
                seq += <uint64_t>unzigzag(difference)
                outcome = self.abandon(seq)
                outcome = NO_MEMORY if outcome < 0 else (0 if outcome else BAD_PENDING)
            else:
                at = read_varint(data, at, size, &more)
                if at < 0:
                    return BAD_VARINT
                if token == OTHER_TIME:
                    time += <uint64_t>unzigzag(difference)
                    wait += <uint64_t>unzigzag(more)
                    self.latest_ns = max(self.latest_ns, <int64_t>time)
                    outcome = 0
                elif token == OTHER_REDELIVER:
                    seq += <uint64_t>unzigzag(more)
                    outcome = self.replay_run(RUN_REDELIVER, seq, 1, difference, time, wait)
                    seq += difference - 1
                elif token == OTHER_DEADLINE:
                    seq += <uint64_t>unzigzag(difference)
                    deadline += <uint64_t>unzigzag(more)
                    outcome = self.wait_until(seq, <int64_t>deadline)
                    outcome = NO_MEMORY if outcome < 0 else (0 if outcome else BAD_PENDING)
                elif token == OTHER_ACK_ALL:
                    seq += <uint64_t>unzigzag(difference)
                    if self.policy != ACK_ALL:
                        return BAD_POLICY
                    if more > SEQ_MAX - self.ack_floor_consumer_seq:
                        return BAD_OVERFLOW
                    known = self.used - self.dead
                    if more == 0:
                        return BAD_CHANGE
                    if self.ack_through(seq, self.ack_floor_consumer_seq + more) < 0:
                        return NO_MEMORY
                    outcome = 0 if self.used - self.dead < known else BAD_CHANGE
                else:
                    seq += <uint64_t>unzigzag(difference)
                    if more > SEQ_MAX - seq:
                        return BAD_OVERFLOW
                    outcome = <int>min(self.remove(seq, seq + more), <Py_ssize_t>1)
                    outcome = NO_MEMORY if outcome < 0 else (0 if outcome else BAD_CHANGE)
            if outcome < 0:
                return outcome
        return 0

    cdef int replay_run(self, int kind, uint64_t first, uint64_t stride, uint64_t count, uint64_t now_ns, uint64_t wait) noexcept nogil:
        cdef uint64_t each
        cdef uint32_t deliveries
        cdef int outcome
        if self.policy != ACK_EXPLICIT and kind == RUN_ACK:
            return BAD_POLICY
        if count == 0 or count > RUN_MAX:
            return BAD_RUN
        if kind != RUN_DELIVER and first > SEQ_MAX - (count - 1):
            return BAD_OVERFLOW
        for each in range(count):
            if kind == RUN_DELIVER:
                if stride == 0:
                    return BAD_RISE
                if stride > SEQ_MAX - self.delivered_stream_seq or self.delivered_consumer_seq == SEQ_MAX:
                    return BAD_OVERFLOW
                if self.put(self.delivered_stream_seq + stride, <int64_t>now_ns, <int64_t>(now_ns + wait)) == 0:
                    return NO_MEMORY
            elif kind == RUN_REDELIVER:
                if self.delivered_consumer_seq == SEQ_MAX:
                    return BAD_OVERFLOW
                if self.pending_entry(first + each) == NULL:
                    return BAD_PENDING
                if self.put_again(first + each, <int64_t>now_ns, <int64_t>(now_ns + wait), &deliveries) == 0:
                    return NO_MEMORY
            else:
                outcome = self.ack_one(first + each)
                if outcome <= 0:
                    return BAD_PENDING if outcome == 0 else NO_MEMORY
        return 0

    cdef int load(self, AckEntry* entry) noexcept nogil:
        """Add an entry from a stored state, above all earlier ones; -1 without memory."""
        cdef bint waits = entry.place != GIVEN_UP
        if not self.reserve():
            return -1
        if waits:
            self.skip_lane()
            entry.place = IN_LANE
            if self.lane < self.used and entry.deadline_ns < self.lane_deadline:
                entry.place = TAKEN
            else:
                self.lane_deadline = entry.deadline_ns
        if not self.append(entry):
            return -1
        if entry.place == TAKEN:
            self.heap_push(<uint32_t>self.position(self.used - 1))
        self.pending_count += waits
        self.redelivered_count += redelivered(entry) > 0
        return 0

    cdef Py_ssize_t nbytes(self) noexcept nogil:
        """The memory held, including unused capacity and the log."""
        return (self.room * <Py_ssize_t>sizeof(AckEntry) + self.heap_room * <Py_ssize_t>sizeof(uint32_t)
                + self.log.capacity)

    # Python API.

    def deliver(self, seq: int, now_ns: int, deadline_ns: int) -> int:
        cdef uint64_t number = seq, dseq
        if number <= self.delivered_stream_seq:
            raise ValueError(f"message {seq}: {self.delivered_stream_seq} was delivered already")
        if self.delivered_consumer_seq == SEQ_MAX:
            raise OverflowError("a consumer sequence passes 2^64 - 1")
        dseq = self.put(number, now_ns, deadline_ns)
        if dseq == 0:
            raise MemoryError
        return dseq

    def redeliver(self, seq: int, now_ns: int, deadline_ns: int) -> tuple[int, int]:
        cdef uint32_t deliveries = 0
        cdef int64_t now = now_ns, deadline = deadline_ns
        cdef uint64_t dseq
        if self.pending_entry(seq) == NULL:
            raise ValueError(f"message {seq} is not pending")
        if self.delivered_consumer_seq == SEQ_MAX:
            raise OverflowError("a consumer sequence passes 2^64 - 1")
        dseq = self.put_again(seq, now, deadline, &deliveries)
        if dseq == 0:
            raise MemoryError
        return dseq, deliveries

    def ack(self, seq: int) -> bool:
        cdef int outcome
        if self.policy != ACK_EXPLICIT:
            raise ValueError("ack: this consumer's ack policy is not explicit")
        outcome = self.ack_one(seq)
        if outcome < 0:
            raise MemoryError
        return outcome == 1

    def ack_all(self, seq: int, dseq: int = 0) -> int:
        cdef Py_ssize_t acked
        if self.policy != ACK_ALL:
            raise ValueError("ack_all: this consumer's ack policy is not all")
        acked = self.ack_through(seq, dseq)
        if acked < 0:
            raise MemoryError
        return acked

    def term(self, seq: int, dseq: int = 0) -> bool:
        if self.policy == ACK_ALL:
            return self.ack_all(seq, dseq) > 0
        return self.ack(seq)

    def set_deadline(self, seq: int, deadline_ns: int) -> bool:
        cdef int outcome = self.wait_until(seq, deadline_ns)
        if outcome < 0:
            raise MemoryError
        return outcome == 1

    def give_up(self, seq: int) -> bool:
        cdef int outcome = self.abandon(seq)
        if outcome < 0:
            raise MemoryError
        return outcome == 1

    def drop(self, start: int, stop: int) -> int:
        cdef Py_ssize_t removed
        cdef uint64_t first = start
        if stop <= start:
            return 0
        removed = self.remove(first, stop - 1)
        if removed < 0:
            raise MemoryError
        return removed

    def purge(self, first_seq: int) -> int:
        cdef Py_ssize_t removed = self.purge_below(first_seq)
        if removed < 0:
            raise MemoryError
        return removed

    def rewind(self, last_seq: int) -> bool:
        cdef int outcome = self.rewind_to(last_seq)
        if outcome < 0:
            raise MemoryError
        return outcome == 1

    def get(self, seq: int) -> tuple[int, int, int, int] | None:
        cdef AckEntry* entry = self.pending_entry(seq)
        if entry == NULL:
            return None
        return entry.dseq, entry.deadline_ns, entry.deliveries, entry.last_ns

    def redelivered(self, seq: int) -> int:
        cdef Py_ssize_t index = self.find(seq)
        return redelivered(self.at(index)) if index >= 0 else 0

    def due(self, now_ns: int, limit: int) -> list[int]:
        cdef uint64_t part[256]
        cdef Py_ssize_t taken, at, left = limit
        cdef int64_t now = now_ns
        cdef list out = []
        while left > 0:
            taken = self.take_due(now, part, min(left, <Py_ssize_t>256))
            for at in range(taken):
                out.append(part[at])
            left -= taken
            if taken < 256:
                break
        return out

    def next_due(self) -> int | None:
        cdef int64_t deadline_ns = 0
        return deadline_ns if self.earliest(&deadline_ns) else None

    def changes(self) -> bytes:
        self.close_log()
        cdef bytes out = PyBytes_FromStringAndSize(<const char*>self.log.data, self.log.used)
        self.clear_log()
        return out

    def apply(self, const uint8_t[::1] buffer not None) -> None:
        cdef Py_ssize_t offset = 0, size = buffer.shape[0]
        cdef const uint8_t* data = &buffer[0] if size > 0 else NULL
        cdef bint logged = self.logged
        cdef int outcome
        self.logged = False
        with nogil:
            outcome = self.replay(data, size, &offset)
        self.logged = logged
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome != 0:
            raise ValueError(f"consumer changes at byte {offset}: {REASONS[-outcome]}")

    def note_time(self, now_ns: int) -> None:
        """Add the current time to the changes, as a delivery does: a later reader can then tell that the clock had
        reached it."""
        cdef int64_t now = now_ns
        if self.logged and self.reserve():
            self.log_times(now, <int64_t>(<uint64_t>now + self.log_wait))

    def follow(self, Clock clock not None, int64_t now_ns, int64_t wait_max_ns) -> None:
        """Convert what was read from files, which has the machine clock's times, to a clock's times.

        If the files contain a time later than now, the machine's clock went back since. Then messages delivered after
        now count as delivered now, and no deadline is farther off than `wait_max_ns`, because nobody knows how far the
        clock went back.
        """
        cdef Py_ssize_t n
        cdef AckEntry* entry
        cdef int64_t offset = clock.offset_ns, late
        cdef bint is_back = self.latest_ns - offset > now_ns, is_planned = True
        self.clock = clock
        if offset == 0 and not is_back:
            return
        for n in range(self.used):
            entry = self.at(n)
            if not is_pending(entry):
                continue
            is_planned = False
            entry.last_ns -= offset
            if entry.deadline_ns >= FOREVER // 2:
                entry.deadline_ns = FOREVER
                entry.last_ns = min(entry.last_ns, now_ns)
                continue
            entry.deadline_ns -= offset
            late = entry.last_ns - now_ns
            if late > 0:
                entry.last_ns = now_ns
                entry.deadline_ns -= late
            if is_back:
                entry.deadline_ns = min(entry.deadline_ns, now_ns + wait_max_ns)
        if not is_planned:
            self.plan()

    cdef int plan(self) except -1:
        """Sort all pending entries into the lane and the heap again, because their deadlines have changed."""
        cdef Py_ssize_t n, room = self.used + 16
        cdef uint32_t* heap
        cdef AckEntry* entry
        cdef bint has_lane = False
        if self.heap_room < room:
            heap = <uint32_t*>realloc(self.heap, room * sizeof(uint32_t))
            if heap == NULL:
                raise MemoryError
            self.heap = heap
            self.heap_room = room
        self.heap_count = self.lane = 0
        for n in range(self.used):
            entry = self.at(n)
            if not is_pending(entry):
                continue
            if has_lane and entry.deadline_ns < self.lane_deadline:
                self.heap_push(<uint32_t>self.position(n))
            else:
                entry.place = IN_LANE
                self.lane_deadline = entry.deadline_ns
                has_lane = True
        return 0

    def memory(self) -> int:
        return self.nbytes()

    def state(self) -> consumer_state.ConsumerState:
        cdef dict pending = {}, counts = {}, deadlines = {}
        cdef Py_ssize_t index
        cdef AckEntry* entry
        for index in range(self.used):
            entry = self.at(index)
            if entry.place == DEAD:
                continue
            if redelivered(entry) > 0:
                counts[entry.seq] = redelivered(entry)
            if is_pending(entry):
                pending[entry.seq] = (entry.dseq, entry.last_ns)
                deadlines[entry.seq] = entry.deadline_ns
        return consumer_state.ConsumerState(
            self.delivered_consumer_seq, self.delivered_stream_seq,
            self.ack_floor_consumer_seq, self.ack_floor_stream_seq, pending, counts, deadlines,
        )

    def encode(self) -> bytes:
        cdef StateHead head
        cdef PendingItem* pending = <PendingItem*>malloc((self.pending_count + 1) * sizeof(PendingItem))
        cdef RedeliveredItem* again = <RedeliveredItem*>malloc((self.redelivered_count + 1) * sizeof(RedeliveredItem))
        cdef Py_ssize_t index, pending_at = 0, again_at = 0
        cdef uint64_t offset = <uint64_t>self.clock.offset_ns
        cdef AckEntry* entry
        head.floor_consumer = self.ack_floor_consumer_seq
        head.floor_stream = self.ack_floor_stream_seq
        head.delivered_consumer = self.delivered_consumer_seq
        head.delivered_stream = self.delivered_stream_seq
        try:
            if pending == NULL or again == NULL:
                raise MemoryError
            for index in range(self.used):
                entry = self.at(index)
                if entry.place == DEAD:
                    continue
                if redelivered(entry) > 0:
                    again[again_at].stream_seq = entry.seq
                    again[again_at].count = redelivered(entry)
                    again_at += 1
                if is_pending(entry):
                    pending[pending_at].stream_seq = entry.seq
                    pending[pending_at].consumer_seq = entry.dseq
                    pending[pending_at].time_ns = <int64_t>(<uint64_t>entry.last_ns + offset)
                    pending[pending_at].deadline_ns = <int64_t>(<uint64_t>entry.deadline_ns + offset)
                    pending_at += 1
            return encode_items(head, pending, pending_at, again, again_at, True)
        finally:
            free(pending)
            free(again)

    @staticmethod
    def decode(const uint8_t[::1] buffer not None, policy: int = ACK_EXPLICIT) -> AckTable:
        cdef AckTable out = AckTable(policy)
        cdef StateItems state = decode_items(buffer)
        cdef PendingItem* pending = state.pending
        cdef PendingItem* pending_stop = pending + state.pending_count
        cdef RedeliveredItem* again = state.redelivered
        cdef RedeliveredItem* again_stop = again + state.redelivered_count
        cdef AckEntry entry
        cdef uint64_t before = state.head.floor_consumer if policy == ACK_EXPLICIT else 0, count
        if policy == ACK_NONE and (pending != pending_stop or again != again_stop):
            raise ValueError("consumer state: pending messages, where the ack policy is none")
        out.delivered_consumer_seq = state.head.delivered_consumer
        out.delivered_stream_seq = state.head.delivered_stream
        out.ack_floor_consumer_seq = state.head.floor_consumer
        out.ack_floor_stream_seq = state.head.floor_stream
        while pending != pending_stop or again != again_stop:
            if pending == pending_stop or (again != again_stop and again.stream_seq < pending.stream_seq):
                entry.seq = again.stream_seq
                entry.place = GIVEN_UP
            else:
                entry.seq = pending.stream_seq
                entry.place = TAKEN
            count = 0
            if again != again_stop and again.stream_seq == entry.seq:
                count = again.count
                again += 1
            if entry.seq > out.delivered_stream_seq:
                raise ValueError(f"consumer state: message {entry.seq} is above what was delivered")
            if count >= <uint64_t>0xffffffff:
                raise ValueError(f"consumer state: message {entry.seq} was delivered too often: {count}")
            entry.dseq = 0
            entry.last_ns = 0
            entry.deadline_ns = 0
            entry.deliveries = <uint32_t>count
            if entry.place == TAKEN:
                entry.dseq = pending.consumer_seq
                if entry.dseq <= before or entry.dseq > out.delivered_consumer_seq:
                    raise ValueError(f"consumer state: message {entry.seq} has the consumer sequence {entry.dseq}")
                before = entry.dseq
                entry.last_ns = pending.time_ns
                out.latest_ns = max(out.latest_ns, pending.time_ns)
                entry.deadline_ns = pending.deadline_ns if state.has_deadlines else pending.time_ns
                entry.deliveries += 1
                pending += 1
            if out.load(&entry) < 0:
                raise MemoryError
        return out

    def __len__(self):
        return self.pending_count
