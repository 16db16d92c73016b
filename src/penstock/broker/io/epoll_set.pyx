"""EpollSet: reads what the clients of one loop have sent, all in one go. The loop watches one descriptor for all of them.

The transports of asyncio call Python twice for each read, which costs more than one small message. Here one poll reads every
socket that has something straight into the router.
"""
import logging
import os
from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t

from penstock.broker.routing.client cimport Client
from penstock.base.monotonic cimport monotonic_ns

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll_fd, int what, int fd, epoll_event* event)
    int epoll_wait(int epoll_fd, epoll_event* events, int count, int timeout_ms)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD
    uint32_t EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR

cdef extern from "unistd.h" nogil:
    int c_close "close"(int fd)

cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv"(int fd, void* data, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef enum:
    EVENTS_MAX = 128                       # of one look: the others come with the next
    POLL_SIZE = 1048576                    # after so much of one client the others come, …
    POLL_MSGS = 500                        # … or after so many messages: a turn costs as much as a hundred of them
    POLL_NS = 1500000                      # after so long a turn ends first, and the others come with the next look
    TAKEN_MIN = 8                          # so many are appended while others are waited for
    END_NS = 500000                        # about how long `connection_lost` is called in one turn
    READ_SIZE = 65536                      # for protocols that are not links
    FULL = 65536                           # so much waiting, and the protocol is told to pause; a quarter, and it goes on

cdef int64_t NO_END = 0x3FFFFFFFFFFFFFFFLL
log = logging.getLogger("penstock")


cdef class EpollSet:
    """The sockets of one loop. Everything happens on its thread."""

    def __cinit__(self, *_):
        self.fd = -1
        self.members = set()
        self.gone = []
        self.first = deque()
        self.ended = deque()
        self.poll_ns = POLL_NS
        self.end_ns = END_NS

    def __init__(self, loop):
        self.call_soon = loop.call_soon
        self.fd = epoll_create1(EPOLL_CLOEXEC)
        if self.fd < 0:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)

    def close(self):
        """Close the sockets that are still there."""
        cdef Socket socket
        for socket in tuple(self.members):
            socket.lose(None)
        self.end_ns = NO_END               # no client is served any more that would wait meanwhile
        if self.fd >= 0:
            c_close(self.fd)
            self.fd = -1

    @property
    def count(self):
        """Sockets that are not lost."""
        return len(self.members)

    cdef int end_soon(self, Socket socket, bint is_eof, object error) except -1:
        """Have a socket's protocol called about its end: never within a call of its own, and only some ends in one turn."""
        self.ended.append((socket, is_eof, error))
        if len(self.ended) == 1:
            self.call_soon(self._tell_ends)
        return 0

    def _tell_ends(self):
        cdef Socket socket
        cdef int64_t until = monotonic_ns() + self.end_ns
        while self.ended:
            socket, is_eof, error = self.ended[0]
            try:
                if is_eof:
                    socket.end_of_input()
                else:
                    socket.end(error)
            except Exception:              # noqa: one connection's trouble is not the others'
                log.exception("%r: its end could not be told", socket.protocol)
            finally:
                self.ended.popleft()
            if monotonic_ns() > until:
                break
        if self.ended:
            self.call_soon(self._tell_ends)

    def watch(self, int fd):
        """Watch a descriptor that is no client's: `is_signalled` tells that it is readable."""
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.ptr = NULL
        if epoll_ctl(self.fd, EPOLL_CTL_ADD, fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))

    cdef int wait(self, void* events, int64_t spin_ns) except -1:
        cdef int count
        cdef int64_t until
        count = epoll_wait(self.fd, <epoll_event*>events, EVENTS_MAX, 0)
        if count == 0 and spin_ns > 0:
            with nogil:
                until = monotonic_ns() + spin_ns
                while count == 0 and monotonic_ns() < until:
                    count = epoll_wait(self.fd, <epoll_event*>events, EVENTS_MAX, 0)
        if count < 0:
            if errno == EINTR:
                return 0
            raise OSError(errno, os.strerror(errno))
        return count

    def poll(self, int64_t spin_ns=0):
        """Call those of `first`, read what has come, send what waited where there is room now: how many had something.

        Where there is nothing it looks again, without sleeping, for as long as is said. From within a look it does nothing.
        """
        if self.is_polling:
            return 0
        self.is_polling = True
        try:
            return self.poll_once(spin_ns)
        finally:
            self.is_polling = False

    def gather(self, Router router not None, Py_ssize_t wanted, int64_t quiet_ns, int64_t most_ns):
        """Read until `wanted` messages have come, no more come, or something else is to be done.

        Messages are appended meanwhile: few are left to append when the last one comes, for which all others wait.
        """
        cdef int64_t until = monotonic_ns() + most_ns
        while not router.has_others() and router.gathered() < wanted and monotonic_ns() < until:
            if router.gathered() >= TAKEN_MIN:
                wanted -= router.take_batches()
            if self.poll(quiet_ns) == 0 or self.is_signalled:
                break

    cdef int poll_once(self, int64_t spin_ns) except -1:
        cdef epoll_event events[EVENTS_MAX]
        cdef Socket socket
        cdef int n, at, count, begin = 0, called = 0
        cdef int64_t until
        cdef bint has_read = False
        self.gone.clear()
        self.is_signalled = False
        if self.fd < 0:                    # a tick that was requested before the end
            return 0
        if self.first:
            spin_ns = 0
        count = self.wait(events, spin_ns)
        until = monotonic_ns() + self.poll_ns
        called = self.call_first()
        for n in range(count):
            if events[n].data.ptr == NULL:
                self.is_signalled = True
            elif events[n].data.ptr == self.next_one:
                begin = n                  # the last look came as far as this one
        self.next_one = NULL
        for n in range(count):
            at = begin + n if begin + n < count else begin + n - count
            if self.first:                 # what is read now may have been sent after it
                called += self.call_first()
            if events[at].data.ptr == NULL:
                continue
            if has_read and monotonic_ns() > until:
                self.next_one = events[at].data.ptr
                break
            has_read = True
            socket = <Socket>events[at].data.ptr
            try:
                socket.ready(events[at].events)
            except Exception:              # noqa: one connection's trouble is not the others'
                log.exception("%r: what it sent could not be taken", socket.protocol)
                socket.abort()
        return count + called

    cdef int call_first(self) except -1:
        """Run the callbacks of other threads before anything more is read: how many there were."""
        cdef int called = 0
        while self.first:
            callback, args = self.first.popleft()
            called += 1
            try:
                callback(*args)
            except Exception:              # noqa: the clients are read all the same
                log.exception("%r failed", callback)
        return called


cdef class Socket:
    """One connected socket, for the protocols that asyncio's transports serve; a Link is read for straight.

    Always true: epoll knows it while `interest` is not 0; `sockets` keeps it until it is lost.
    """

    def __init__(self, EpollSet sockets not None, connected, protocol):
        self.sockets = sockets
        self.connected = connected
        self.fd = connected.fileno()
        self.set_protocol(protocol)
        sockets.members.add(self)
        try:
            protocol.connection_made(self)
            self.watch_events()
        except BaseException:              # the caller has it: nothing of it stays here
            sockets.members.discard(self)
            raise

    def __repr__(self):
        return f"<Socket {self.fd} of {self.protocol!r}>"

    def set_protocol(self, protocol):
        """Call another protocol from now on."""
        self.protocol = protocol
        self.link = protocol if getattr(protocol, "is_straight", False) else None

    def get_extra_info(self, name, default=None):
        if name == "socket":
            return self.connected
        if name == "peername" and self.connected is not None:
            try:
                return self.connected.getpeername()
            except OSError:                # it is gone already
                return default
        return default

    cdef int watch_events(self) except -1:
        """Tell epoll which events we wait for."""
        cdef epoll_event event
        cdef uint32_t wanted = 0
        cdef int what
        if not self.is_lost and self.sockets.fd >= 0:
            if not self.is_paused and not self.is_over and not self.is_eof:
                wanted |= EPOLLIN
            if self.waiting is not None:
                wanted |= EPOLLOUT
        if wanted == self.interest:
            return 0
        what = EPOLL_CTL_MOD if wanted and self.interest else EPOLL_CTL_ADD if wanted else EPOLL_CTL_DEL
        event.events = wanted
        event.data.ptr = <void*>self
        if epoll_ctl(self.sockets.fd, what, self.fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        self.interest = wanted
        return 0

    cdef int ready(self, uint32_t events) except -1:
        if self.waiting is not None and events & (EPOLLOUT | EPOLLHUP | EPOLLERR):
            self.drain()
        if self.interest & EPOLLIN and events & (EPOLLIN | EPOLLHUP | EPOLLERR):
            self.read()
        return 0

    cdef int read(self) except -1:
        cdef ssize_t size, total
        cdef uint64_t stop
        cdef int64_t until = monotonic_ns() + self.sockets.poll_ns // 2
        cdef bytes data = None
        if self.link is not None:
            stop = self.link.in_msgs + POLL_MSGS
            total = size = self.link.receive(self.fd)
            while (size > 0 and self.interest & EPOLLIN and self.link is not None and self.link.is_full_read
                   and total < POLL_SIZE and self.link.in_msgs < stop and monotonic_ns() < until):
                size = self.link.receive(self.fd)
                total += size
        else:
            data = PyBytes_FromStringAndSize(NULL, READ_SIZE)
            size = c_recv(self.fd, PyBytes_AS_STRING(data), READ_SIZE, MSG_DONTWAIT)
        if size > 0:
            if data is not None:
                self.protocol.data_received(data[:size])
        elif size == 0:
            self.is_eof = True
            self.watch_events()
            self.sockets.end_soon(self, True, None)
        elif errno != EAGAIN and errno != EINTR:
            self.lose(OSError(errno, os.strerror(errno)))
        return 0

    # Out.

    def write(self, bytes data not None):
        """Send; what the socket does not take at once waits for it."""
        cdef ssize_t sent = 0
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        if self.is_lost or size == 0:
            return
        if self.waiting is None:
            sent = c_send(self.fd, PyBytes_AS_STRING(data), size, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent == size:
                return
            if sent < 0:
                if errno != EAGAIN and errno != EINTR:
                    self.lose(OSError(errno, os.strerror(errno)))
                    return
                sent = 0
            self.waiting = SendBuffer()
        self.waiting.add(<const uint8_t*>PyBytes_AS_STRING(data) + sent, size - sent)
        self.watch_writable()

    def take(self, Client client not None):
        """Send all that waits for a client, as `write` does: how much it was. Its buffers are ours from now on."""
        cdef Py_ssize_t size = client.out_size
        cdef bint is_first = self.waiting is None
        if self.is_lost or size == 0:
            client.drop_out()
            return size
        if is_first:
            self.waiting = SendBuffer()
        client.pass_on(self.waiting)
        if is_first:
            self.drain()
        if self.waiting is not None:
            self.watch_writable()
        return size

    cdef int watch_writable(self) except -1:
        """Bytes wait: watch for the socket to become writable, and pause the protocol if they are many."""
        self.watch_events()
        if not self.is_full and self.waiting.size > FULL:
            self.is_full = True
            self.protocol.pause_writing()
        return 0

    cdef int drain(self) except -1:
        """Send what waits: the socket is writable."""
        cdef ssize_t sent = self.waiting.send(self.fd)
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                self.lose(OSError(errno, os.strerror(errno)))
            return 0
        if self.waiting.size == 0:
            self.waiting = None
            if self.is_over:
                self.lose(None)
                return 0
            self.watch_events()
        if self.is_full and self.get_write_buffer_size() <= FULL // 4:
            self.is_full = False
            self.protocol.resume_writing()
        return 0

    def get_write_buffer_size(self):
        return 0 if self.waiting is None else self.waiting.size

    # In.

    def pause_reading(self):
        self.is_paused = True
        self.watch_events()

    def resume_reading(self):
        self.is_paused = False
        self.watch_events()

    # The end.

    def is_closing(self):
        return self.is_over or self.is_lost

    def close(self):
        """Read nothing more; end once all that waits is sent."""
        if not self.is_over:
            self.is_over = True
            if self.waiting is None:
                self.lose(None)
            else:
                self.watch_events()

    def abort(self):
        """End at once."""
        self.lose(None)

    cdef int lose(self, object error) except -1:
        if not self.is_lost:
            self.is_lost = self.is_over = True
            self.waiting = None
            self.watch_events()
            self.sockets.members.discard(self)
            self.sockets.gone.append(self)
            self.sockets.end_soon(self, False, error)
        return 0

    cdef int end_of_input(self) except -1:
        if not self.is_lost:
            self.protocol.eof_received()
            self.close()
        return 0

    cdef int end(self, object error) except -1:
        try:
            self.protocol.connection_lost(error)
        finally:
            self.connected.close()
            self.connected = self.protocol = self.link = None
            self.sockets = None            # which may have us in `gone` for as long as it is there
        return 0
