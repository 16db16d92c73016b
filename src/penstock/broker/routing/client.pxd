# Client: the compiled part of one connection: its permissions, its subscriptions, and the bytes that wait to be sent.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.broker.routing.permissions cimport Permissions
from penstock.broker.io.send_buffer cimport SendBuffer
from penstock.broker.routing.sublist cimport Sub, Sublist

cdef class Client:
    cdef readonly uint64_t cid
    cdef public object account             # broker.account.Account, None before it is known
    cdef Sublist sublist                   # the account's
    cdef public Permissions permissions    # None: everything
    cdef public bint awaits_auth           # nothing but CONNECT is taken
    cdef public bint is_verbose
    cdef public bint is_pedantic
    cdef public bint has_echo
    cdef public bint has_headers           # set in CONNECT: HMSG may be sent
    cdef public bint takes_headers         # the server has headers on, and so has the client
    cdef public bint has_no_responders
    cdef public bint is_system             # of the system account
    cdef public bint is_paused             # commands wait, in `held`, until resume
    cdef readonly bint is_throttled        # so do they until `unthrottle`: it sends slow commands faster than others get their turn
    cdef uint32_t slow_count
    cdef readonly bint is_closed
    cdef readonly bint is_slow             # more waits for it than it may: to be cut off
    cdef public bint is_stalled            # it publishes faster than a subscriber reads: to be slowed down
    cdef object half_full_ingest           # of the stream that it publishes to faster than the disk writes
    cdef list drain_waiters                # consumers that wait until it is drained; None: none
    cdef bint is_dirty                     # on the router's list of those with something to send
    cdef public int64_t max_payload        # below 0: no limit
    cdef public int64_t max_control_line
    cdef public int64_t max_pending
    cdef public int64_t max_subs           # 0: no limit
    cdef public int64_t max_sub_tokens     # 0: no limit
    cdef public uint64_t backlog           # bytes handed to the transport that it has not sent yet
    cdef public uint64_t in_msgs
    cdef public uint64_t in_bytes
    cdef public uint64_t out_msgs
    cdef public uint64_t out_bytes
    cdef public uint64_t stalls
    cdef public int64_t last_ns            # monotonic: when the last thing came
    cdef public int fd                     # where it is sent straight to; -1: through the transport
    cdef SendBuffer piled                      # what waits to be sent before what is in `out`; None: nothing so far
    cdef uint8_t* out                      # what is written to now
    cdef size_t out_fill                   # bytes in it
    cdef size_t out_capacity
    cdef size_t out_size                   # bytes that wait here: in `piled` and in `out`
    cdef uint8_t* held                     # bytes that came and make no whole command yet
    cdef size_t held_size
    cdef size_t held_capacity
    cdef size_t held_wanted                # how large the command is that they begin, 0: not known
    cdef Sub** subs                        # by sid: open addressing, a power of two
    cdef uint32_t sub_capacity
    cdef readonly uint32_t sub_count
    cdef public bint wants_ping            # call `pinged` at the next PING
    cdef public bint wants_pong            # call `ponged` at the next PONG
    cdef uint32_t left_at                  # where `leave_some` goes on

    cdef bint leave_some(self, uint32_t most) except -1
    cdef int add_drain_waiter(self, object subscriber) except -1
    cdef void release_out(self) noexcept
    cdef uint8_t* reserve(self, size_t size) except NULL
    cdef inline void wrote(self, size_t size) noexcept:
        self.out_fill += size
        self.out_size += size

    cdef int pile(self, size_t start) except -1
    cdef int pass_on(self, SendBuffer to) except -1
    cdef int put(self, const uint8_t* data, size_t size) except -1
    cdef Sub* find(self, const uint8_t* sid, uint32_t size) noexcept nogil
    cdef int keep(self, Sub* sub) except -1
    cdef void drop(self, Sub* sub) noexcept
    cdef int hold(self, const uint8_t* data, size_t size) except -1
