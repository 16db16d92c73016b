# Outbox: sends one consumer's messages and statuses to the subscribers of a subject.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.consumer.engine cimport Candidate, ConsumerEngine
from penstock.broker.routing.client cimport Client
from penstock.broker.routing.subscriber cimport Subscriber
from penstock.broker.routing.router cimport Router
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.routing.sublist cimport Sub, Sublist

cdef enum:
    QUANTUM = 64                           # messages until the other consumers have their turn: they read the same part of a block
    CLOCK_EVERY = 32                       # messages between two looks at the clock

cdef struct Interest:                      # the subscribers of a subject, as of a generation of the sublist
    uint64_t generation
    Sub* only_client                       # the only subscription, if it is a client's
    bint exists                            # some subscription would get the message

@cython.final
cdef class Outbox:
    cdef Router router
    cdef Sublist sublist
    cdef readonly ConsumerEngine engine
    cdef Subscriber session                # resumed when a backlogged client is drained; None once the consumer is closed
    cdef bint has_sent                     # a message has left since the session last looked
    cdef uint8_t* ack_subject              # its first `prefix_size` bytes are the same for every message
    cdef uint32_t prefix_size
    cdef uint8_t* headers                  # of the message that is being sent, with the pin id added
    cdef size_t headers_capacity
    cdef public bytes pin_id               # of the client that alone gets messages; empty: no client is pinned

    cdef int update_interest(self, const uint8_t* subject, uint32_t size, Interest* interest) except -1
    cdef bint is_backlogged(self, const uint8_t* subject, uint32_t size, Interest* interest) except -1
    cdef bint send(self, Candidate* candidate, MessageView* view, const uint8_t* subject, uint32_t size, Interest* interest,
                   int64_t now_ns) except -1
    cdef int write_status(self, const uint8_t* subject, uint32_t size, bytes headers, bytes reply) except -1
    cdef uint32_t fill_view(self, Candidate* candidate, MessageView* view) noexcept
    cdef uint32_t make_ack_subject(self, Candidate* candidate) noexcept
    cdef int add_pin_header(self, MessageView* view) except -1
    cdef bint is_replay_waiting(self, int64_t now_ns) noexcept
    cdef bytes heartbeat(self, bytes flow_subject)
