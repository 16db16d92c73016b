# EpollSet: the sockets of one loop. Socket: one of them, a transport that reads for a Link without calling Python.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.routing.link cimport Link
from penstock.broker.routing.router cimport Router
from penstock.broker.io.send_buffer cimport SendBuffer

cdef class EpollSet:
    cdef readonly int fd                   # of their epoll: readable when one of them is
    cdef set members                       # keeps them alive: epoll has only their addresses
    cdef list gone                         # sockets that left: events of the running poll may still name them
    cdef readonly bint is_signalled        # the descriptor of `watch` is readable
    cdef object call_soon
    cdef bint is_polling
    cdef public int64_t poll_ns            # about how long a poll takes
    cdef public int64_t end_ns             # about how long `connection_lost` is called in one turn
    cdef object ended                      # a deque of (socket, whether only its input has ended, error)
    cdef void* next_one                    # address of the socket with which the next poll begins; NULL: any
    cdef readonly object first             # a deque of (callback, arguments) to call before anything more is read

    cdef int end_soon(self, Socket socket, bint is_eof, object error) except -1
    cdef int wait(self, void* events, int64_t spin_ns) except -1
    cdef int poll_once(self, int64_t spin_ns) except -1
    cdef int call_first(self) except -1

cdef class Socket:
    cdef EpollSet sockets
    cdef object connected                  # the Python socket, which owns the descriptor; None: closed
    cdef object protocol                   # SocketProtocol of epoll_set.pyi
    cdef Link link                         # the protocol, if the router reads for it directly
    cdef int fd
    cdef uint32_t interest                 # the events that epoll reports; 0: it does not know this socket
    cdef bint is_paused
    cdef bint is_eof                       # the peer sends nothing more: `eof_received` was called, or will be
    cdef bint is_over                      # closing: nothing is read any more
    cdef bint is_lost                      # `connection_lost` was called, or will be
    cdef bint is_full                      # `pause_writing` was called
    cdef readonly SendBuffer waiting     # what the socket has not taken; None: nothing

    cdef int watch_events(self) except -1
    cdef int ready(self, uint32_t events) except -1
    cdef int read(self) except -1
    cdef int watch_writable(self) except -1
    cdef int drain(self) except -1
    cdef int end_of_input(self) except -1
    cdef int end(self, object error) except -1
    cdef int lose(self, object error) except -1
