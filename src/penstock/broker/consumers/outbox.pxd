# How a consumer's messages leave.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.consumer.engine cimport ConsumerEngine, Candidate
from penstock.broker.routing.client cimport Client
from penstock.broker.routing.subscriber cimport Subscriber
from penstock.broker.routing.router cimport Router
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.routing.sublist cimport Sub, Sublist

cdef enum:
    QUANTUM = 64                           # messages until the turn of others: they read the same part of a block
    CLOCK_EVERY = 32                       # messages between two looks at the clock

cdef struct Hearing:                       # who hears a subject, as of a generation of the sublist
    uint64_t generation
    Sub* sub                               # the only one, if it is a client's
    bint is_heard

cdef class Outbox(Subscriber):
    cdef Router router
    cdef Sublist sublist
    cdef readonly ConsumerEngine engine
    cdef bint is_changed                   # something is to be written down
    cdef uint8_t* ack_subject              # `prefix_size` bytes of it stay
    cdef uint32_t prefix_size
    cdef uint8_t* headers                  # of the message that is on its way, where they are changed
    cdef size_t headers_capacity
    cdef public bytes pin_id               # of the client that alone gets messages; empty: nobody
    cdef readonly bytes flow_subject       # the flow control request that is not answered yet

    cdef int resolve(self, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1
    cdef bint is_choked(self, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1
    cdef bint give(self, MessageView* view, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1
    cdef int tell(self, const uint8_t* subject, uint32_t size, bytes headers, bytes reply) except -1
    cdef uint32_t address(self, Candidate* candidate, MessageView* view) noexcept
    cdef uint32_t make_ack_subject(self, Candidate* candidate) noexcept
    cdef int add_pin(self, MessageView* view) except -1
