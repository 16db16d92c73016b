# A consumer on the server, and the dispatcher of those of one stream. Rules: docs/consumers.md, "On the server".
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.broker.routing.client cimport Client
from penstock.consumer.engine cimport ConsumerEngine
from penstock.broker.routing.router cimport Router
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.consumers.push_sender cimport PushSender
from penstock.broker.routing.sublist cimport Sub, Sublist

cdef struct Item:                          # something that was heard and is not worked on yet
    int kind
    uint32_t reply_at                      # into the bytes beside the items
    uint32_t reply_size
    uint32_t headers_size                  # after the reply
    uint32_t text_size                     # after the headers
    uint64_t deliveries                    # of an ack: what its subject says
    uint64_t seq
    uint64_t dseq

cdef class Desk:
    cdef readonly Router router
    cdef Sublist sublist
    cdef public object on_touched          # called once when something is to be done
    cdef list deliveries
    cdef list touched                      # those with something to do
    cdef list changed                      # those whose changes are to be written down
    cdef list replies                      # subjects that are told when these are durable
    cdef bint is_touched

    cdef int touch(self, Delivery delivery) except -1

cdef class Delivery(PushSender):
    cdef readonly Desk dispatcher
    cdef bint is_touched
    cdef bint is_due                       # the timer has come
    cdef Item* items
    cdef uint32_t item_count
    cdef uint32_t item_capacity
    cdef uint8_t* bytes
    cdef uint32_t byte_count
    cdef uint32_t byte_capacity
    cdef int64_t armed_ns                  # when the timer comes, 0: it does not run
    cdef public bint answers_nothing       # acks of no message are answered
    cdef public bint is_sampled
    cdef public bint is_flow_controlled

    cdef bint is_hungry(self) noexcept
    cdef int try_work(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
    cdef int work(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
    cdef int take_items(self, int64_t now_ns, int64_t mono_ns) except -1
    cdef int take_item(self, Item* item, const uint8_t* data, int64_t now_ns, int64_t mono_ns) except -1
    cdef int ask(self, const uint8_t* reply, uint32_t reply_size, const uint8_t* text, uint32_t text_size, bytes headers,
                 int64_t now_ns, int64_t mono_ns) except -1
    cdef bint ack_one(self, uint64_t seq, uint64_t dseq, uint64_t deliveries, int64_t now_ns) except -1
    cdef int answer(self, const uint8_t* reply, uint32_t size) except -1
    cdef int plan(self, int64_t now_ns, int64_t mono_ns) except -1
