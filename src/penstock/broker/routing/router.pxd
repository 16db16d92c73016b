# Router: turns the commands of clients into frames for other clients, batches for streams and calls of services.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.broker.routing.client cimport Client
from penstock.broker.streams.ingest cimport Ingest
from penstock.broker.routing.message_view cimport MessageView
from penstock.wire.parser cimport Command
from penstock.broker.io.io_uring cimport SendRing
from penstock.broker.routing.sublist cimport MatchResult, Sub, Sublist

cdef enum:
    READ_LARGE = 1048576                   # for clients that send large messages: a smaller read would hold few of them
    LEAVE_MAX = 400                        # subscriptions of a closed client that are removed in one turn

cdef class Router:
    cdef uint8_t* read_buffer              # what sockets are read into: one for all
    cdef uint8_t* tail
    cdef uint8_t* plain_tail
    cdef size_t tail_capacity
    cdef list dirty                        # clients with something to send
    cdef list touched                      # ingests with a batch
    cdef list calls                        # services to be called at the end of the read
    cdef list leaving                      # closed clients with many subscriptions
    cdef list sublists                     # with removed subscriptions to free
    cdef public object on_tick             # called once when something is to be done at the end of this turn of the loop
    cdef bint is_tick_due
    cdef bint has_borrowed                 # some batch points into the buffer of the read under way
    cdef bint is_small                     # the read under way
    cdef int depth                         # reads under way
    cdef uint64_t random
    cdef public uint64_t in_msgs
    cdef public uint64_t in_bytes
    cdef public uint64_t out_msgs
    cdef public uint64_t out_bytes
    cdef public bint no_stall
    cdef public int64_t read_ns            # about how long one read of a client may take
    cdef SendRing ring                         # None: one system call for each client

    cdef int request_tick(self) except -1
    cdef list send_all(self, list links)
    cdef bint send_now(self, Client client) except -1
    cdef bint sent(self, Client client, ssize_t size) except -1
    cdef int mark_dirty(self, Client client) except -1
    cdef Py_ssize_t gathered(self) noexcept
    cdef bint has_others(self) noexcept
    cdef Py_ssize_t consume(self, Client client, const uint8_t* data, Py_ssize_t size) except -1
    cdef void throttle(self, Client client) noexcept
    cdef int publish(self, Client client, Command* command) except -1
    cdef int subscribe(self, Client client, Command* command) except -1
    cdef int unsubscribe(self, Client client, Command* command) except -1
    cdef int route(self, Sublist sublist, Client publisher, MessageView* view, int origin, bint cached) except -1
    cdef int deliver_all(self, MatchResult* result, Sublist sublist, Client publisher, MessageView* view, MessageView* inner) except -1
    cdef int route_to(self, Sublist sublist, const uint8_t* subject, uint32_t size, MessageView* view, int origin) except -1
    cdef bint deliver(self, Sub* sub, Sublist sublist, Client publisher, MessageView* view) except -1
    cdef int write(self, Client client, Sub* sub, MessageView* view) except -1
    cdef int written(self, Client client, size_t size) except -1
    cdef void count(self, Client client, uint64_t size) noexcept
    cdef int make_tail(self, MessageView* view, bint has_headers) except -1
    cdef int no_responders(self, Client client, Command* command) except -1
    cdef int end_read(self) except -1
