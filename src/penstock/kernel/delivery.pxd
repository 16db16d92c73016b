# A consumer on the server: requests that wait, frames that leave. Rules: docs/consumers.md, "On the server".
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.kernel.client cimport Client
from penstock.kernel.consumer cimport Consumer, Parcel
from penstock.kernel.hearer cimport Hearer
from penstock.kernel.hub cimport Hub
from penstock.kernel.letter cimport Letter
from penstock.kernel.sublist cimport Sub, Sublist

cdef struct Item:                          # something that was heard and is not worked on yet
    int kind
    uint32_t reply_at                      # into the bytes beside the items
    uint32_t reply_size
    uint32_t headers_size                  # after the reply
    uint32_t text_size                     # after the headers
    uint64_t deliveries                    # of an ack: what its subject says
    uint64_t seq
    uint64_t dseq

cdef struct Hearing:                       # who hears a subject, as of a generation of the sublist
    uint64_t generation
    Sub* sub                               # the only one, if it is a client's
    bint is_heard

cdef struct Request:                       # a pull request that waits
    Request* next
    Request* previous
    int64_t left                           # messages that it still wants …
    int64_t given                          # … and those that it got
    int64_t bytes_left                     # 0: any number
    int64_t expires_ns                     # of the monotonic clock, 0: never
    int64_t heartbeat_ns                   # 0: none
    int64_t heartbeat_due_ns
    int64_t min_pending
    int64_t min_ack_pending
    int64_t priority
    bint no_wait
    bint has_group                         # it came as an object, which may name a group
    Hearing hearing
    uint8_t* pin_id                        # what it says the pin is; NULL: nothing
    uint32_t pin_id_size
    uint32_t reply_size
    uint8_t* reply                         # lies behind the struct

cdef class Desk:
    cdef readonly Hub hub
    cdef Sublist sublist
    cdef public object on_touched          # called once when something is to be done
    cdef list deliveries
    cdef list touched                      # those with something to do
    cdef list changed                      # those whose changes are to be written down
    cdef list replies                      # subjects that are told when these are durable
    cdef bint is_touched

    cdef int touch(self, Delivery delivery) except -1

cdef class Delivery(Hearer):
    cdef readonly Desk desk
    cdef Hub hub
    cdef Sublist sublist
    cdef readonly Consumer engine
    cdef bint is_touched
    cdef bint is_changed
    cdef bint is_last_choked               # the last look for a hearer found only clients that take no more
    cdef bint is_due                       # the timer has come
    cdef bint is_replaying                 # the message for the first request waits for its time
    cdef readonly bint is_closed
    cdef Item* items
    cdef uint32_t item_count
    cdef uint32_t item_capacity
    cdef uint8_t* bytes
    cdef uint32_t byte_count
    cdef uint32_t byte_capacity
    cdef uint8_t* ack_subject              # `prefix_size` bytes of it stay
    cdef uint32_t prefix_size
    cdef uint8_t* headers                  # of the message that is on its way, where they are changed
    cdef size_t headers_capacity
    cdef int64_t armed_ns                  # when the timer comes, 0: it does not run
    cdef public int64_t active_ns          # when somebody last did something here
    # By configuration.
    cdef public bint answers_nothing       # acks of no message are answered
    cdef public bint is_sampled
    cdef public bint is_flow_controlled
    cdef public bint is_prioritized
    cdef public bint is_pinned
    cdef public bint is_overflow
    cdef public int64_t max_waiting
    cdef public int64_t max_batch
    cdef public int64_t max_expires_ns
    cdef public int64_t max_bytes
    # Pull.
    cdef Request* first
    cdef Request* last
    cdef int64_t waiting_count
    cdef int64_t no_wait_count
    cdef int64_t next_ns                   # when a request expires or wants a heartbeat, 0: never; too early is harmless
    cdef int64_t swept_ns
    cdef public bytes pin_id               # of the client that alone gets messages; empty: nobody
    # Push.
    cdef readonly bytes deliver_subject    # empty: it is a pull consumer
    cdef Hearing hearing
    cdef readonly bint is_active           # somebody listens there
    cdef public int64_t heartbeat_ns       # 0: none
    cdef int64_t sent_ns                   # when something was last sent there
    cdef public double rate                # bytes per second, 0: any number
    cdef public double burst
    cdef double tokens
    cdef int64_t tokens_ns
    cdef int64_t rate_due_ns               # when there are tokens enough
    cdef readonly bytes flow_subject       # the flow control request that is not answered yet
    cdef int64_t window                    # bytes that may be under way, 0: any number
    cdef int64_t outstanding
    cdef int64_t asked_size                # what the answer will free
    cdef bint flow_acks                    # the answers acknowledge messages

    cdef bint is_hungry(self) noexcept
    cdef int work(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
    cdef int take_items(self, int64_t now_ns, int64_t mono_ns) except -1
    cdef int take_item(self, Item* item, const uint8_t* data, int64_t now_ns, int64_t mono_ns) except -1
    cdef bint ack_one(self, uint64_t seq, uint64_t dseq, uint64_t deliveries, int64_t now_ns) except -1
    cdef int answer(self, const uint8_t* reply, uint32_t size) except -1
    cdef int ask(self, const uint8_t* reply, uint32_t reply_size, const uint8_t* text, uint32_t text_size, bytes headers,
                 int64_t now_ns, int64_t mono_ns) except -1
    cdef Request* make(self, const uint8_t* reply, uint32_t reply_size) except NULL
    cdef int admit(self, Request* request, int64_t now_ns, int64_t mono_ns) except -1
    cdef uint64_t due_count(self, int64_t now_ns, uint64_t enough) noexcept
    cdef void enqueue(self, Request* request) noexcept
    cdef void unlink(self, Request* request) noexcept
    cdef void drop(self, Request* request) noexcept
    cdef void requeue(self, Request* request) noexcept
    cdef int64_t sweep(self, bint is_end, int64_t mono_ns) except? -1
    cdef Request* choose(self, Parcel* parcel, uint64_t size, int64_t mono_ns, bint* has_new_pin) except? NULL
    cdef int pin_fits(self, Request* request, bint* has_new_pin) except -1
    cdef int resolve(self, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1
    cdef bint is_choked(self, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1
    cdef uint32_t make_ack_subject(self, Parcel* parcel) noexcept
    cdef int add_pin(self, Letter* letter) except -1
    cdef bint give(self, Letter* letter, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1
    cdef int pull(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
    cdef bint is_in_pause(self, int64_t now_ns) noexcept
    cdef int push(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
    cdef bint has_tokens(self, uint64_t size, int64_t mono_ns) noexcept
    cdef int account_for(self, int64_t size) except -1
    cdef int beat(self, int64_t mono_ns) except -1
    cdef int tell(self, const uint8_t* subject, uint32_t size, bytes headers, bytes reply) except -1
    cdef int plan(self, int64_t now_ns, int64_t mono_ns) except -1
