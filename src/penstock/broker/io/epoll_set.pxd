# The sockets of one loop, and one of them: a transport that reads for a Link without asking Python.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.routing.link cimport Link
from penstock.broker.routing.router cimport Router
from penstock.broker.io.send_buffer cimport SendBuffer

cdef class EpollSet:
    cdef readonly int fd                   # of their epoll: readable when one of them is
    cdef set members                       # keeps them alive: epoll has only their addresses
    cdef list gone                         # those that left: events of the look under way may still name them
    cdef readonly bint is_told             # the descriptor that `hear` was given has something to say
    cdef object call_soon
    cdef bint is_looking
    cdef public int64_t look_ns            # so long a look takes, about
    cdef public int64_t end_ns             # so long the ends of connections are told in one turn
    cdef object ended                      # a deque of (socket, whether it is its input's end, error) to be told
    cdef void* next_one                    # the socket that the next look begins with; only an address. NULL: any
    cdef readonly object first             # a deque of (callback, arguments): to be called before anything more is read

    cdef int end_soon(self, Socket socket, bint is_eof, object error) except -1
    cdef int wait(self, void* events, int64_t spin_ns) except -1
    cdef int look_once(self, int64_t spin_ns) except -1
    cdef int call_first(self) except -1

cdef class Socket:
    cdef EpollSet sockets
    cdef object connected                  # the Python socket, which owns the descriptor; None: closed
    cdef object protocol                   # SocketProtocol of epoll_set.pyi
    cdef Link link                         # the protocol, where it is read for straight
    cdef int fd
    cdef uint32_t interest                 # what epoll looks for; 0: it does not know us
    cdef bint is_paused
    cdef bint is_eof                       # the peer says nothing more: the protocol has been told, or will be
    cdef bint is_over                      # closing: nothing is read any more
    cdef bint is_lost                      # the protocol has been told, or will be
    cdef bint is_full                      # it was told to pause
    cdef readonly SendBuffer waiting                 # what the socket has not taken; None: nothing

    cdef int look_for(self) except -1
    cdef int ready(self, uint32_t events) except -1
    cdef int read(self) except -1
    cdef int wait_for_room(self) except -1
    cdef int drain(self) except -1
    cdef int end_of_input(self) except -1
    cdef int end(self, object error) except -1
    cdef int lose(self, object error) except -1
