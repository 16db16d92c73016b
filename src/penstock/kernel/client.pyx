"""Client: one connection's compiled side: its buffers, its flags, its subscriptions by sid. The hub drives it."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from penstock.kernel.xxh64 cimport xxh64

cdef enum:
    OUT_KEPT = 65536                       # a larger buffer is handed on once it is sent
    SPARES_MAX = 16
    SPARE_SIZE_MAX = 2097152


cdef inline uint32_t _home(const uint8_t* sid, uint32_t size, uint32_t capacity) noexcept nogil:
    return <uint32_t>xxh64(sid, size, 1) & (capacity - 1)


cdef uint8_t* _spares[SPARES_MAX]          # of all hubs: they are used by threads that hold the GIL
cdef size_t _spare_sizes[SPARES_MAX]
cdef int _spare_count = 0


cdef class Client:
    """What a connection is allowed, hears, and has waiting for it."""

    def __cinit__(self, *args, **kwargs):
        self.has_echo = self.is_verbose = self.is_pedantic = True
        self.takes_headers = True
        self.max_payload = 1048576
        self.max_control_line = 4096
        self.max_pending = 64 << 20

    def __dealloc__(self):
        free(self.out)
        free(self.held)
        free(self.subs)                    # the subscriptions themselves went with `forget_subs`

    # Out.

    cdef int choke(self, object hearer) except -1:
        """`hearer` waits until more is read here."""
        if self.choked is None:
            self.choked = [hearer]
        elif hearer not in self.choked:
            self.choked.append(hearer)
        return 0

    cdef void release_out(self) noexcept:
        """The buffer is empty: a large one goes to whoever needs one next. Warm memory, and who rests has none."""
        global _spare_count
        if self.out_capacity > OUT_KEPT:
            if _spare_count < SPARES_MAX and self.out_capacity <= SPARE_SIZE_MAX:
                _spares[_spare_count] = self.out
                _spare_sizes[_spare_count] = self.out_capacity
                _spare_count += 1
            else:
                free(self.out)
            self.out = NULL
            self.out_capacity = 0

    cdef uint8_t* room(self, size_t size) except NULL:
        """Where the next `size` bytes go; the caller moves `out_size`."""
        cdef size_t capacity = self.out_capacity
        cdef void* grown
        global _spare_count
        if self.out_size + size > capacity:
            capacity = max(capacity * 2, 512)
            while capacity < self.out_size + size:
                capacity *= 2
            if capacity > OUT_KEPT and _spare_count and _spare_sizes[_spare_count - 1] >= capacity:
                _spare_count -= 1
                grown = _spares[_spare_count]
                capacity = _spare_sizes[_spare_count]
                if self.out_size:
                    memcpy(grown, self.out, self.out_size)
                free(self.out)
            else:
                grown = realloc(self.out, capacity)
            if grown == NULL:
                raise MemoryError
            self.out = <uint8_t*>grown
            self.out_capacity = capacity
        return self.out + self.out_size

    cdef int put(self, const uint8_t* data, size_t size) except -1:
        memcpy(self.room(size), data, size)
        self.out_size += size
        return 0

    @property
    def pending(self):
        """Bytes that wait to be sent."""
        return self.out_size + self.backlog

    def take_out(self):
        """What waits to be sent, as bytes; the buffer is empty afterwards."""
        taken = PyBytes_FromStringAndSize(<char*>self.out, self.out_size)
        self.out_size = 0
        self.release_out()
        return taken

    # In.

    cdef int hold(self, const uint8_t* data, size_t size) except -1:
        """Keep bytes for the next time."""
        cdef void* grown
        if self.held_size + size > self.held_capacity:
            grown = realloc(self.held, max(self.held_size + size, 256))
            if grown == NULL:
                raise MemoryError
            self.held = <uint8_t*>grown
            self.held_capacity = max(self.held_size + size, 256)
        memcpy(self.held + self.held_size, data, size)
        self.held_size += size
        return 0

    # Subscriptions by sid.

    cdef Sub* find(self, const uint8_t* sid, uint32_t size) noexcept nogil:
        cdef uint32_t at
        cdef Sub* sub
        if self.sub_count == 0:
            return NULL
        at = _home(sid, size, self.sub_capacity)
        while self.subs[at] != NULL:
            sub = self.subs[at]
            if sub.sid_size == size and memcmp(sub.sid, sid, size) == 0:
                return sub
            at = (at + 1) & (self.sub_capacity - 1)
        return NULL

    cdef int keep(self, Sub* sub) except -1:
        cdef uint32_t at, n, capacity
        cdef Sub** grown
        if (self.sub_count + 1) * 4 > self.sub_capacity * 3:
            capacity = max(self.sub_capacity * 2, 4)
            grown = <Sub**>calloc(capacity, sizeof(Sub*))
            if grown == NULL:
                raise MemoryError
            for n in range(self.sub_capacity):
                if self.subs[n] != NULL:
                    at = _home(self.subs[n].sid, self.subs[n].sid_size, capacity)
                    while grown[at] != NULL:
                        at = (at + 1) & (capacity - 1)
                    grown[at] = self.subs[n]
            free(self.subs)
            self.subs = grown
            self.sub_capacity = capacity
        at = _home(sub.sid, sub.sid_size, self.sub_capacity)
        while self.subs[at] != NULL:
            at = (at + 1) & (self.sub_capacity - 1)
        self.subs[at] = sub
        self.sub_count += 1
        return 0

    cdef void drop(self, Sub* sub) noexcept:
        cdef uint32_t at, hole, home, mask = self.sub_capacity - 1
        at = _home(sub.sid, sub.sid_size, self.sub_capacity)
        while self.subs[at] != sub:
            if self.subs[at] == NULL:
                return
            at = (at + 1) & mask
        self.subs[at] = NULL
        self.sub_count -= 1
        hole = at
        at = (at + 1) & mask
        while self.subs[at] != NULL:       # those behind it move up, so that a search does not stop at the hole
            home = _home(self.subs[at].sid, self.subs[at].sid_size, self.sub_capacity)
            if ((at - home) & mask) >= ((at - hole) & mask):
                self.subs[hole] = self.subs[at]
                self.subs[at] = NULL
                hole = at
            at = (at + 1) & mask

    def subscriptions(self):
        """(subject, queue, sid, msgs, max_msgs) of each, in no order."""
        cdef uint32_t n
        cdef Sub* sub
        found = []
        for n in range(self.sub_capacity):
            sub = self.subs[n]
            if sub != NULL:
                found.append((sub.subject[:sub.subject_size], sub.queue[:sub.queue_size], sub.sid[:sub.sid_size],
                              sub.msgs, sub.max_msgs))
        return found

    def join(self, account, Sublist sublist):
        """Belong to an account from now on. Before the first subscription."""
        assert self.sub_count == 0
        self.account = account
        self.sublist = sublist

    def withdraw(self):
        """After a change of permissions: end the subscriptions that are not allowed any more, and give them."""
        cdef uint32_t n
        cdef Sub* sub
        cdef list gone = []
        doomed = []
        for n in range(self.sub_capacity):
            sub = self.subs[n]
            if sub == NULL:
                continue
            if self.permissions is not None and not self.permissions.may_subscribe(
                    sub.subject, sub.subject_size, sub.queue, sub.queue_size):
                doomed.append(<size_t>sub)
            else:
                sub.is_checked = self.permissions is not None and self.permissions.filters_delivery(
                    sub.subject, sub.subject_size)
        for at in doomed:
            sub = <Sub*><size_t>at
            gone.append((sub.subject[:sub.subject_size], sub.queue[:sub.queue_size], sub.sid[:sub.sid_size]))
            self.drop(sub)
            self.sublist.remove(sub)
        return gone

    def leave(self):
        """Leave the account: nothing is heard any more."""
        cdef uint32_t n
        for n in range(self.sub_capacity):
            if self.subs[n] != NULL:
                self.sublist.remove(self.subs[n])
        self.sub_count = 0
        free(self.subs)
        self.subs = NULL
        self.sub_capacity = 0
        self.sublist = None

    def forget_subs(self):
        """The connection is gone. `held` stays until we go: batches of the read that closed us may point into it."""
        self.is_closed = True
        self.leave()
