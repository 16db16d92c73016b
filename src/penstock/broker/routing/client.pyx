"""Client: one connection's compiled side: its buffers, its flags, its subscriptions by sid. The router drives it."""
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from penstock.broker.io.send_buffer cimport PIECE_SIZE, SMALL_MAX, SendBuffer, free_aside, give_buffer, take_buffer
from penstock.base.xxh64 cimport xxh64
from penstock.broker.routing.subscriber cimport Subscriber

cdef enum:
    HANDED_MIN = 16384                     # a buffer with so much in it is handed on as it is; less is copied


cdef inline uint32_t _home(const uint8_t* sid, uint32_t size, uint32_t capacity) noexcept nogil:
    return <uint32_t>xxh64(sid, size, 1) & (capacity - 1)


cdef class Client:
    """What a connection is allowed, what it subscribes to, and what waits for it."""

    def __cinit__(self, *args, **kwargs):
        self.has_echo = self.is_verbose = self.is_pedantic = True
        self.takes_headers = True
        self.max_payload = 1048576
        self.max_control_line = 4096
        self.max_pending = 64 << 20

    def __dealloc__(self):
        give_buffer(self.out, self.out_capacity)
        free_aside(self.held, self.held_capacity)
        free(self.subs)                    # the subscriptions themselves went with `forget_subs`

    # Hooks: a subclass implements them. Rules: `ClientHooks` in client.pyi.

    def connected(self, bytes text not None):
        raise NotImplementedError

    def faulted(self, int fault, bytes snippet not None):
        raise NotImplementedError

    def unauthorized(self):
        raise NotImplementedError

    def pinged(self):
        raise NotImplementedError

    def ponged(self):
        raise NotImplementedError

    def protocol_error(self, bytes text not None):
        raise NotImplementedError

    def unexpected_op(self, bint is_error, bytes text not None):
        raise NotImplementedError

    def refused_publish(self, bytes subject not None):
        raise NotImplementedError

    def refused_reply(self, bytes reply not None):
        raise NotImplementedError

    def refused_subscribe(self, bytes subject not None, bytes queue not None):
        raise NotImplementedError

    def refused_tokens(self, bytes subject not None):
        raise NotImplementedError

    def flush(self):
        raise NotImplementedError

    def stalled(self):
        raise NotImplementedError

    def throttled(self):
        raise NotImplementedError

    def wait_for_stream(self, ingest):
        raise NotImplementedError

    # Out.

    def drained(self):
        """All was sent: resume the consumers that waited for that."""
        cdef Subscriber subscriber
        if self.drain_waiters is not None:
            waiters, self.drain_waiters = self.drain_waiters, None
            for subscriber in waiters:
                subscriber.resume()

    @property
    def has_drain_waiters(self):
        """A consumer waits until this client is drained."""
        return self.drain_waiters is not None

    cdef int add_drain_waiter(self, object subscriber) except -1:
        """`subscriber` is resumed when this client is drained."""
        if self.drain_waiters is None:
            self.drain_waiters = [subscriber]
        elif subscriber not in self.drain_waiters:
            self.drain_waiters.append(subscriber)
        return 0

    cdef void release_out(self) noexcept:
        """The buffer is empty: a large one goes to the next client that needs one. Its memory is in the cache, and an idle client has none."""
        if self.out_capacity > SMALL_MAX:
            give_buffer(self.out, self.out_capacity)
            self.out = NULL
            self.out_capacity = 0

    cdef uint8_t* reserve(self, size_t size) except NULL:
        """Space for the next `size` bytes; `wrote` tells how many were written."""
        cdef size_t capacity = self.out_capacity
        cdef void* grown
        if self.out_fill + size <= capacity:
            return self.out + self.out_fill
        if self.out_fill + size > PIECE_SIZE and self.out_fill:
            self.pile(0)                   # a full buffer is not copied
            capacity = 0
        if self.out_fill + size > SMALL_MAX:
            grown = take_buffer(max(self.out_fill + size, <size_t>PIECE_SIZE), &capacity)
            if grown == NULL:
                raise MemoryError
            if self.out_fill:
                memcpy(grown, self.out, self.out_fill)
            give_buffer(self.out, self.out_capacity)
        else:
            capacity = max(capacity * 2, <size_t>512)
            while capacity < self.out_fill + size:
                capacity *= 2
            grown = realloc(self.out, capacity)
            if grown == NULL:
                raise MemoryError
        self.out = <uint8_t*>grown
        self.out_capacity = capacity
        return self.out + self.out_fill

    cdef int put(self, const uint8_t* data, size_t size) except -1:
        memcpy(self.reserve(size), data, size)
        self.wrote(size)
        return 0

    cdef int pile(self, size_t start) except -1:
        """Put the buffer, from byte `start` on, behind the pieces that wait; the next bytes go into a new buffer."""
        if self.piled is None:
            self.piled = SendBuffer()
        self.piled.append(self.out, start, self.out_fill, self.out_capacity)
        self.out = NULL
        self.out_fill = self.out_capacity = 0
        return 0

    cdef int pass_on(self, SendBuffer to) except -1:
        """Put all that waits behind the pieces of a transport's buffer."""
        if self.piled is not None:
            to.move_from(self.piled)
        if self.out_fill >= HANDED_MIN or (self.out_fill and to.last == NULL):
            to.append(self.out, 0, self.out_fill, self.out_capacity)
            self.out = NULL
            self.out_capacity = 0
        elif self.out_fill:
            to.add(self.out, self.out_fill)
        self.out_fill = self.out_size = 0
        self.release_out()
        return 0

    @property
    def pending(self):
        """Bytes that wait to be sent."""
        return self.out_size + self.backlog

    def take_piece(self):
        """Some of what waits to be sent, as bytes; empty when nothing does."""
        if self.piled is not None and self.piled.size:
            taken = self.piled.take()
        else:
            taken = PyBytes_FromStringAndSize(<char*>self.out, self.out_fill)
            self.out_fill = 0
            self.release_out()
        self.out_size -= <size_t>PyBytes_GET_SIZE(taken)
        return taken

    def take_out(self):
        """All that waits to be sent, as bytes."""
        found = []
        while self.out_size:
            found.append(self.take_piece())
        return b"".join(found)

    def drop_out(self):
        """Drop all that waits to be sent."""
        if self.piled is not None:
            self.piled.clear()
        self.out_fill = self.out_size = 0
        self.release_out()

    # In.

    cdef int hold(self, const uint8_t* data, size_t size) except -1:
        """Keep bytes of a command that is not whole yet."""
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
        """Leave the account: all subscriptions end."""
        self.leave_some(self.sub_count)

    cdef bint leave_some(self, uint32_t most) except -1:
        """Take `most` of its subscriptions out of the account, all where there are not more: whether it has left."""
        cdef Sub* sub
        while self.left_at < self.sub_capacity:
            sub = self.subs[self.left_at]
            if sub != NULL:
                if most == 0:
                    return False
                most -= 1
                self.subs[self.left_at] = NULL
                self.sublist.remove(sub)
            self.left_at += 1
        self.left_at = 0
        self.sub_count = 0
        free(self.subs)
        self.subs = NULL
        self.sub_capacity = 0
        self.sublist = None
        return True

    def forget_subs(self):
        """The connection is gone. `held` stays until this object is freed: batches of the read that closed it may point into it."""
        self.is_closed = True
        self.leave()
