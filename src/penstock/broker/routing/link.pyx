"""Link: a client whose bytes a transport reads: commands go to the router, unfinished ones wait for their rest.

Reads use one buffer of the router; a client has memory of its own only for a command that is not whole yet.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memmove

from penstock.base.monotonic cimport monotonic_ns
from penstock.broker.io.send_buffer cimport free_aside
from penstock.broker.routing.router cimport LEAVE_MAX, READ_LARGE

cdef extern from "Python.h":
    int PyBUF_WRITE

cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv"(int fd, void* data, size_t size, int flags)
    int MSG_DONTWAIT

cdef enum:
    READ_SIZE = 262144                     # messages that stay in the cache until they are appended
    READ_MIN = 8192                        # for clients whose messages have many subscribers: …
    LARGE = 32768                          # what a large one is
    HELD_KEPT = 16384


cdef class Link(Client):
    """A client whose bytes a transport reads. A subclass implements the `ClientHooks` (client.pyi).

    Always true: `held` begins with the bytes of the first command that is not whole yet, or that waits for a decision.
    """

    def __init__(self, Router router not None, uint64_t cid):
        self.router = router
        self.cid = cid
        self.fd = -1
        self.read_max = READ_LARGE

    # Reading.

    cdef size_t place(self, uint8_t** at) except 0:
        """Where to read the next bytes to, and how many: into the router's buffer, behind the bytes of an unfinished command.

        Only a command that is too large for that buffer is read into a buffer of its own. The caller reads at once and calls
        `taken` before any other link uses the router's buffer.
        """
        cdef Router router = self.router
        cdef void* grown
        cdef size_t space
        self.is_reading_held = False
        if max(self.held_wanted if self.held_size else 0, self.held_size) <= READ_SIZE // 2:
            if self.held_size:
                memcpy(router.read_buffer, self.held, self.held_size)
            at[0] = router.read_buffer + self.held_size
            space = (READ_LARGE if self.held_size and self.held_wanted >= LARGE else READ_SIZE) - self.held_size
            if space > self.read_max:       # the rest of the command that has begun is read in one go, though
                space = min(space, max(self.read_max, self.held_wanted - min(self.held_size, self.held_wanted)))
            return space
        if max(self.held_wanted, self.held_size + 65536) > self.held_capacity:
            grown = realloc(self.held, max(self.held_wanted, self.held_size + 65536))
            if grown == NULL:
                raise MemoryError
            self.held = <uint8_t*>grown
            self.held_capacity = max(self.held_wanted, self.held_size + 65536)
        self.is_reading_held = True
        at[0] = self.held + self.held_size
        return self.held_capacity - self.held_size

    cdef int taken(self, size_t size) except -1:
        """Handle `size` bytes, which were read to where `place` said."""
        cdef int64_t took = monotonic_ns()
        cdef size_t came = size
        if self.is_closed:
            return 0
        if self.is_reading_held:
            self.held_size += size
            self._feed_held()
        else:
            size += self.held_size
            self.held_size = 0
            self._feed(self.router.read_buffer, size)
        took = monotonic_ns() - took
        if took > self.router.read_ns:
            self.read_max = max(<size_t>READ_MIN, came * <size_t>self.router.read_ns // <size_t>took)
        elif self.read_max < READ_LARGE and took < self.router.read_ns // 2:
            self.read_max = min(self.read_max * 2, <size_t>READ_LARGE)
        if self.out_size and self.fd >= 0 and len(self.router.dirty) == 1 and not self.is_slow and not self.is_closed:
            self.router.send_now(self)        # no other client has anything to get: a client that asks one thing at a time has its answer sooner
        return self.after_read()

    cdef ssize_t receive(self, int fd) except -2:
        """Read once from the socket; returns what `recv` does."""
        cdef uint8_t* at
        cdef size_t space = self.place(&at)
        cdef ssize_t size = c_recv(fd, at, space, MSG_DONTWAIT)
        self.is_full_read = size == <ssize_t>space
        if size > 0:
            self.taken(size)
        return size

    def get_buffer(self, hint):
        """`place` for a transport that reads by itself, as asyncio's BufferedProtocol has it."""
        cdef uint8_t* at
        cdef size_t space = self.place(&at)
        return PyMemoryView_FromMemory(<char*>at, space, PyBUF_WRITE)

    def buffer_updated(self, Py_ssize_t size):
        self.taken(size)

    cdef int after_read(self) except -1:
        """Call the hooks for what the commands of this read have brought up."""
        if self.is_throttled and not self.is_closed:
            self.throttled()
        if self.is_stalled:
            self.is_stalled = False
            self.stalls += 1
            self.stalled()
        if self.half_full_ingest is not None:
            ingest, self.half_full_ingest = self.half_full_ingest, None
            if not self.is_closed:
                self.wait_for_stream(ingest)
        return 0

    def data_received(self, bytes data not None):
        """The same for a transport that hands over the bytes that it has read."""
        self.feed(data)

    def feed(self, bytes data not None):
        """Handle bytes of the protocol, which may come from a WebSocket's frames."""
        if self.is_closed:
            return
        if self.held_size:
            self.hold(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            self._feed_held()
        else:
            self._feed(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self.after_read()

    def resume(self):
        """Go on with the commands that waited for the decision about CONNECT."""
        self.is_paused = False
        if self.held_size and not self.is_closed:
            self._feed_held()
            self.after_read()

    def unthrottle(self):
        """Go on with the commands that waited for those of other clients."""
        self.is_throttled = False
        self.slow_count = 0
        if self.held_size and not self.is_closed:
            self._feed_held()
            self.after_read()

    cdef int _feed(self, const uint8_t* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t taken
        if self.is_paused or self.is_throttled:
            self.hold(data, size)
            return 0
        taken = self.router.consume(self, data, size)
        if taken < size and not self.is_closed:
            self.hold(data + taken, size - taken)
        elif self.held_capacity > HELD_KEPT:
            free_aside(self.held, self.held_capacity)
            self.held = NULL
            self.held_capacity = 0
        return 0

    cdef int _feed_held(self) except -1:
        cdef Py_ssize_t taken
        if self.is_paused or self.is_throttled:
            return 0
        taken = self.router.consume(self, self.held, self.held_size)
        if self.is_closed:
            return 0
        self.held_size -= taken
        if self.held_size:
            memmove(self.held, self.held + taken, self.held_size)
        elif self.held_capacity > HELD_KEPT:
            free_aside(self.held, self.held_capacity)
            self.held = NULL
            self.held_capacity = 0
        return 0

    def forget_subs(self):
        """The connection is gone. Many subscriptions are removed in parts: a closed client receives nothing anyway."""
        if self.sub_count <= LEAVE_MAX:
            Client.forget_subs(self)
        elif not self.is_closed:
            self.is_closed = True
            self.router.leaving.append(self)
            self.router.request_tick()

    def send_straight(self):
        """Send what waits straight to the socket, at once: whether the socket took all of it."""
        return self.router.send_now(self)

    def write(self, bytes data not None):
        """Send bytes to the client, with the rest of this turn."""
        self.put(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self.router.mark_dirty(self)
