"""PullQueue: the pull requests that wait for a consumer's messages. It chooses the request that gets the next message.

Requests are served one message each in turn, or by priority. The statuses that requests get, and their order, are nats-server's.
Calls its host, a `PullQueueHost` (pull_queue.pyi), when a client is pinned.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from penstock.consumer.engine cimport LOOK_FOUND
from penstock.base.monotonic cimport monotonic_ns

cdef enum:
    SWEEP_NS = 1000000000
    INSTANT_NS = 50000
    PRIORITY_NONE = 0x7fffffff

cdef enum:                                 # of a request to a consumer with the policy pinned_client
    PIN_WAITS = 0                          # another client is pinned
    PIN_MATCHES = 1
    PIN_WRONG = 2                          # it names a pin that is not the consumer's

cdef int64_t CENTURY_NS = 3155760000000000000LL   # no request waits longer, so that times never overflow 64 bits

cdef bytes NO_MESSAGES = b"NATS/1.0 404 No Messages\r\n\r\n"
cdef bytes REQUESTS_PENDING = b"NATS/1.0 408 Requests Pending\r\n\r\n"
cdef bytes MAX_WAITING = b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"


cdef inline int64_t _end_ns(int64_t expires, int64_t mono_ns) noexcept nogil:
    """When a request expires. One that is shorter than a turn of the loop has expired already."""
    if expires == 0:
        return 0
    return mono_ns + min(expires, CENTURY_NS) if expires > INSTANT_NS else mono_ns - 1


cdef bytes _status(bytes line, Request* request):
    """A status that tells how much the request still wanted."""
    return b"NATS/1.0 %b\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n" % (line, request.left, request.bytes_left)


@cython.final
cdef class PullQueue:
    """Requests in the order in which they are served.

    Always true: `waiting_count` of them are in the queue, and `no_wait_count` of these do not wait.
    """

    def __init__(self, Outbox outbox not None, host):
        self.outbox = outbox
        self.engine = outbox.engine
        self.host = host
        self.active_ns = monotonic_ns()

    def __dealloc__(self):
        while self.first != NULL:
            self.drop(self.first)

    cdef void detach(self) noexcept:
        """The consumer is closed: let go of the host, which has us."""
        self.host = None

    # In and out.

    cdef bint must_be_read_in_python(self, PullFields* fields) noexcept:
        """Whether a request may name a group, or asks for more than the consumer allows."""
        return ((fields.is_object and (self.is_prioritized or self.is_pinned or self.is_overflow))
                or 0 < self.max_batch < fields.batch or 0 < self.max_expires_ns < fields.expires
                or 0 < self.max_bytes < fields.max_bytes)

    cdef int add_fields(self, const uint8_t* reply, uint32_t reply_size, PullFields* fields, int64_t now_ns, int64_t mono_ns) except -1:
        """Add a request that compiled code has parsed."""
        cdef Request* request = self.make(reply, reply_size)
        request.left = fields.batch
        request.bytes_left = max(fields.max_bytes, 0)
        request.expires_ns = _end_ns(fields.expires, mono_ns)
        request.heartbeat_ns = min(max(fields.heartbeat, 0), CENTURY_NS)
        request.no_wait = fields.no_wait
        request.has_group = fields.is_object
        request.priority = 0 if fields.is_object else PRIORITY_NONE
        return self.admit(request, now_ns, mono_ns)

    def add(self, bytes reply not None, request, int64_t now_ns, int64_t mono_ns, bint has_group):
        """Add a request that Python has parsed, a `PullRequest`."""
        cdef bytes pin_id = request.id.encode()
        cdef Request* added = self.make(<const uint8_t*>PyBytes_AS_STRING(reply), <uint32_t>PyBytes_GET_SIZE(reply))
        added.left = request.batch
        added.bytes_left = max(request.max_bytes, 0)
        added.expires_ns = _end_ns(request.expires, mono_ns)
        added.heartbeat_ns = min(max(request.idle_heartbeat, 0), CENTURY_NS)
        added.no_wait = request.no_wait
        added.has_group = has_group
        added.min_pending = request.min_pending
        added.min_ack_pending = request.min_ack_pending
        added.priority = request.priority if has_group else PRIORITY_NONE
        if pin_id:
            added.pin_id = <uint8_t*>malloc(len(pin_id))
            if added.pin_id == NULL:
                free(added)
                raise MemoryError
            memcpy(added.pin_id, PyBytes_AS_STRING(pin_id), len(pin_id))
            added.pin_id_size = <uint32_t>len(pin_id)
        self.admit(added, now_ns, mono_ns)

    cdef Request* make(self, const uint8_t* reply, uint32_t reply_size) except NULL:
        cdef Request* request = <Request*>malloc(sizeof(Request) + reply_size)
        if request == NULL:
            raise MemoryError
        request.next = request.previous = NULL
        request.given = request.heartbeat_due_ns = request.min_pending = request.min_ack_pending = 0
        request.interest.generation = 0
        request.pin_id = NULL
        request.pin_id_size = 0
        request.reply = <uint8_t*>request + sizeof(Request)
        memcpy(request.reply, reply, reply_size)
        request.reply_size = reply_size
        return request

    cdef int admit(self, Request* request, int64_t now_ns, int64_t mono_ns) except -1:
        """Put a request into the queue, or refuse it."""
        cdef bytes refusal = None
        cdef uint64_t pending
        cdef int64_t wanted
        if self.waiting_count == self.max_waiting and mono_ns - self.swept_ns > SWEEP_NS:
            self.sweep(False, mono_ns)
        if request.no_wait:
            self.engine.count_up()
            pending = self.engine.count
            if pending == 0:
                pending = self.due_count(now_ns, 1)
            if pending == 0 and request.expires_ns == 0:
                refusal = NO_MESSAGES
            elif pending > 0:
                wanted = self.sweep(False, mono_ns)
                if wanted > 0 and pending < <uint64_t>wanted and pending + self.due_count(now_ns, wanted) < <uint64_t>wanted:
                    refusal = REQUESTS_PENDING
        if refusal is None and self.waiting_count >= self.max_waiting:
            if request.heartbeat_ns:       # refused, its client would ask again at once; so it waits for a heartbeat that never comes
                free(request.pin_id)
                free(request)
                return 0
            refusal = MAX_WAITING
        if refusal is not None:
            self.outbox.write_status(request.reply, request.reply_size, refusal, None)
            free(request.pin_id)
            free(request)
            return 0
        if request.heartbeat_ns:
            request.heartbeat_due_ns = mono_ns + request.heartbeat_ns
            if self.next_ns == 0 or request.heartbeat_due_ns < self.next_ns:
                self.next_ns = request.heartbeat_due_ns
        if request.expires_ns and (self.next_ns == 0 or request.expires_ns < self.next_ns):
            self.next_ns = request.expires_ns
        self.enqueue(request)
        return 0

    cdef uint64_t due_count(self, int64_t now_ns, uint64_t enough) noexcept:
        """How many pending messages are due, up to `enough`."""
        cdef Py_ssize_t n = 0
        cdef uint64_t count = 0
        cdef int64_t deadline = 0
        cdef bint is_held = self.engine.held != 0 and self.engine.table.pending_entry(self.engine.held) != NULL
        if not is_held and (not self.engine.table.earliest(&deadline) or deadline > now_ns):
            return 0                       # the usual case, without a look at each
        while count < enough:
            n = self.engine.table.next_pending(n)
            if n >= self.engine.table.used:
                break
            count += self.engine.table.at(n).deadline_ns <= now_ns
            n += 1
        return count

    cdef void enqueue(self, Request* request) noexcept:
        """Add at the end; with priorities, behind the last request whose number is not greater."""
        cdef Request* before = self.last
        if self.is_prioritized:
            while before != NULL and before.priority > request.priority:
                before = before.previous
        request.previous = before
        if before == NULL:
            request.next = self.first
            self.first = request
        else:
            request.next = before.next
            before.next = request
        if request.next == NULL:
            self.last = request
        else:
            request.next.previous = request
        self.waiting_count += 1
        self.no_wait_count += request.no_wait

    cdef void unlink(self, Request* request) noexcept:
        if request.previous == NULL:
            self.first = request.next
        else:
            request.previous.next = request.next
        if request.next == NULL:
            self.last = request.previous
        else:
            request.next.previous = request.previous
        self.waiting_count -= 1
        self.no_wait_count -= request.no_wait

    cdef void drop(self, Request* request) noexcept:
        self.unlink(request)
        free(request.pin_id)
        free(request)
        if self.first == NULL:
            self.next_ns = 0               # a time that has passed would wake an empty queue again and again

    cdef void requeue(self, Request* request) noexcept:
        """Move a request behind the others."""
        if request.next != NULL:
            self.unlink(request)
            self.enqueue(request)

    cdef int refuse(self, Request* request, bytes status) except -1:
        """End a request with a status."""
        self.outbox.write_status(request.reply, request.reply_size, status, None)
        self.drop(request)
        return 0

    cdef int64_t sweep(self, bint is_end, int64_t mono_ns) except? -1:
        """End expired requests, send heartbeats, drop requests without a subscriber: how many messages the others want.

        `is_end`: no message is left to deliver, so requests that do not wait end, too.
        """
        cdef Request* request = self.first
        cdef Request* next
        cdef int64_t wanted = 0, due = 0
        self.swept_ns = mono_ns
        while request != NULL:
            next = request.next
            if request.expires_ns and mono_ns > request.expires_ns:
                self.refuse(request, _status(b"408 Request Timeout", request))
            elif is_end and request.no_wait and (request.expires_ns == 0 or request.given > 0):
                self.refuse(request, NO_MESSAGES)
            else:
                self.outbox.update_interest(request.reply, request.reply_size, &request.interest)
                if not request.interest.exists:
                    self.drop(request)
                else:
                    wanted += request.left
                    if request.heartbeat_due_ns:
                        if mono_ns > request.heartbeat_due_ns:
                            self.outbox.write_status(request.reply, request.reply_size, self.outbox.heartbeat(b""), None)
                            request.heartbeat_due_ns = mono_ns + request.heartbeat_ns
                        if due == 0 or request.heartbeat_due_ns < due:
                            due = request.heartbeat_due_ns
                    if request.expires_ns and (due == 0 or request.expires_ns < due):
                        due = request.expires_ns
            request = next
        self.next_ns = due
        return wanted

    # The receiver of the next message.

    cdef int match_pin(self, Request* request, bint* has_new_pin) except -1:
        """Whether a request to a consumer with a pinned client may get messages: one of PIN_…."""
        cdef bytes pin_id = self.outbox.pin_id
        if not pin_id:
            if request.pin_id != NULL:
                return PIN_WRONG           # an old one
            if request.has_group:
                self.host.pin()
                pin_id = self.outbox.pin_id
                request.pin_id = <uint8_t*>malloc(len(pin_id))
                if request.pin_id == NULL:
                    raise MemoryError
                memcpy(request.pin_id, PyBytes_AS_STRING(pin_id), len(pin_id))
                request.pin_id_size = <uint32_t>len(pin_id)
                has_new_pin[0] = True
            return PIN_MATCHES
        if request.pin_id == NULL:
            return PIN_WAITS
        if (request.pin_id_size == <uint32_t>len(pin_id)
                and memcmp(request.pin_id, PyBytes_AS_STRING(pin_id), request.pin_id_size) == 0):
            return PIN_MATCHES
        return PIN_WRONG

    cdef Request* choose(self, Candidate* candidate, uint64_t size, int64_t mono_ns, bint* has_new_pin) except? NULL:
        """The request that gets the message; NULL: none may have it now."""
        cdef Request* request
        cdef Request* stop = NULL          # the requests from here on were already passed over
        cdef int pin
        cdef bint may_have
        self.were_all_backlogged = False
        while self.first != NULL and self.first != stop:
            request = self.first
            if request.expires_ns and mono_ns >= request.expires_ns and not self.is_replaying:
                self.refuse(request, _status(b"408 Request Timeout", request))
                continue
            has_new_pin[0] = False
            may_have = True
            if self.is_pinned:
                pin = self.match_pin(request, has_new_pin)
                if pin == PIN_WRONG:
                    self.refuse(request, _status(b"423 Nats-Wrong-Pin-Id", request))
                    continue
                may_have = pin == PIN_MATCHES
            elif self.is_overflow and (request.min_pending > 0 or request.min_ack_pending > 0):
                may_have = ((request.min_pending > 0 and request.min_pending <= <int64_t>(candidate.pending + 1))
                            or (request.min_ack_pending > 0
                                and request.min_ack_pending <= <int64_t>self.engine.table.pending_count))
            if may_have:
                self.outbox.update_interest(request.reply, request.reply_size, &request.interest)
                if not request.interest.exists:
                    self.drop(request)
                    continue
                if request.bytes_left and size > <uint64_t>request.bytes_left:
                    self.outbox.write_status(request.reply, request.reply_size,
                                             _status(b"409 Message Size Exceeds MaxBytes", request), None)
                    if has_new_pin[0]:
                        self.host.unpin()
                    self.drop(request)
                    continue
                if not self.outbox.is_backlogged(request.reply, request.reply_size, &request.interest):
                    return request
                self.were_all_backlogged = True
                if self.is_prioritized:
                    return NULL            # requests behind it would get its messages
            if stop == NULL:
                stop = request
            if request.next == NULL:
                return NULL                # the only one
            self.requeue(request)
        return NULL

    cdef int deliver(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1:
        """Send messages to the requests that wait: 1 when there is more to deliver in the next round."""
        cdef Outbox outbox = self.outbox
        cdef Candidate candidate
        cdef MessageView view
        cdef Request* request
        cdef uint64_t size
        cdef int count = 0
        cdef bint has_new_pin = False, is_end = True
        self.were_all_backlogged = False
        while self.first != NULL:
            if self.engine.look(now_ns, &candidate) != LOOK_FOUND:
                if outbox.is_replay_waiting(now_ns):
                    if not self.is_replaying:
                        self.sweep(False, mono_ns[0])
                        self.is_replaying = self.first != NULL
                    return 0
                is_end = not self.engine.is_full
                break
            outbox.fill_view(&candidate, &view)
            size = <uint64_t>candidate.subject_size + view.reply_size + candidate.headers_size + candidate.payload_size
            request = self.choose(&candidate, size, mono_ns[0], &has_new_pin)
            if request == NULL:
                is_end = not self.were_all_backlogged
                break
            if self.is_pinned:
                outbox.add_pin_header(&view)
            if not outbox.send(&candidate, &view, request.reply, request.reply_size, &request.interest, now_ns):
                self.drop(request)         # its client may not receive this subject
                continue
            self.is_replaying = False
            count += 1
            if request.bytes_left:
                request.bytes_left -= size
                if request.bytes_left == 0:
                    request.left = 1
            request.left -= 1
            request.given += 1
            if request.left <= 0:
                if request.bytes_left:
                    outbox.write_status(request.reply, request.reply_size, _status(b"409 Batch Completed", request), None)
                self.drop(request)
            else:
                if request.heartbeat_ns:
                    request.heartbeat_due_ns = mono_ns[0] + request.heartbeat_ns
                self.requeue(request)
            if count % CLOCK_EVERY == 0:
                mono_ns[0] = monotonic_ns()
                if count >= QUANTUM or mono_ns[0] >= until_ns:
                    self.active_ns = mono_ns[0]
                    return 1
        if count:
            self.active_ns = mono_ns[0]
        if self.first != NULL and self.next_ns and mono_ns[0] >= self.next_ns:
            # Requests that do not wait end here even if only too many messages are unacknowledged: so it is in nats-server.
            self.sweep(is_end or not self.were_all_backlogged, mono_ns[0])
        elif self.first != NULL and is_end and self.no_wait_count:
            self.sweep(True, mono_ns[0])
        return 0

    # For Python.

    @property
    def num_waiting(self):
        """How many requests wait, without those whose reply subject has no subscriber any more."""
        if self.first != NULL:
            self.sweep(False, monotonic_ns())
        return self.waiting_count

    def release(self, bytes status, bint tells_rest):
        """End every request that waits with a status, or silently with None."""
        while self.first != NULL:
            if status is not None:
                self.outbox.write_status(self.first.reply, self.first.reply_size,
                                         _status(status, self.first) if tells_rest else b"NATS/1.0 %b\r\n\r\n" % status, None)
            self.drop(self.first)
        self.next_ns = 0
