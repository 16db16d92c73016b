"""Router: runs the commands of clients: it finds the subscribers of a message and writes it into their buffers.

Within one read nothing waits, and no callback but that of CONNECT is called: frames go into buffers, messages for streams into
batches, messages for services onto a list. `end_read` appends the batches and calls the services. The turn of the loop then ends
with commits, answers and `flush`, which broker/tick.py does after `on_tick`. A client's hooks are in client.pyi, a stream's in
streams/ingest.pyi.
"""
import logging
import time

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from penstock.wire.frame cimport write_decimal
from penstock.broker.routing.subscriber cimport Subscriber
from penstock.broker.routing.origin cimport KIND_ACK, KIND_CLIENT, KIND_SERVICE, KIND_STREAM, ORIGIN_CLIENT, ORIGIN_COUNT, reaches
from penstock.wire.parser cimport (
    OP_CONNECT, OP_ERR, OP_FAULT, OP_HMSG, OP_INFO, OP_NONE, OP_PING, OP_PONG, OP_PUB, OP_SUB, OP_UNSUB, parse_command,
)
from penstock.broker.io.io_uring cimport RING_SIZE, SendRing, Sending
from penstock.base.subject cimport subject_is_valid
from penstock.broker.routing.sublist cimport MatchResult
from penstock.broker.routing.subject_rules cimport begins, fits_a_line, is_reserved_reply, is_routed, is_subscribable, token_count

cdef extern from "time.h" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* at)
    int CLOCK_MONOTONIC
    int CLOCK_MONOTONIC_COARSE

cdef extern from "sys/socket.h" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef enum:
    READ_NS = 1500000                      # … as much as takes so long; the others wait meanwhile
    SMALL_READ = 8192                      # messages of a read up to this are copied, and appended at the turn's end with those of other clients
    SEND_SIZE = 131072                     # sent as soon as so much waits: it is still in the cache, and the client can begin to read
    SEND_MAX = 1073741824                  # of one client in one call
    TOGETHER_MIN = 3                       # from here on, many sends in one system call cost less
    HELD_MAX = 256                         # messages that may wait for a stream before they are appended
    SLOW_MAX = 100
    STALL_PART = 4                         # a subscriber with more than 3/4 of `max_pending` waiting slows its publishers down

log = logging.getLogger("penstock")
cdef bytes _PONG = b"PONG\r\n"
cdef bytes _OK = b"+OK\r\n"


cdef inline int64_t _now(int clock) noexcept nogil:
    cdef timespec at
    clock_gettime(clock, &at)
    return <int64_t>at.tv_sec * 1000000000 + at.tv_nsec


cdef class Router:
    """One server's router. Everything happens on the thread of its loop."""

    def __cinit__(self):
        self.read_buffer = <uint8_t*>malloc(READ_LARGE)
        if self.read_buffer == NULL:
            raise MemoryError
        self.dirty = []
        self.touched = []
        self.calls = []
        self.sublists = []
        self.leaving = []
        self.random = <uint64_t>time.time_ns() | 1
        self.read_ns = READ_NS

    def __dealloc__(self):
        free(self.read_buffer)
        free(self.tail)
        free(self.plain_tail)

    def add_sublist(self, Sublist sublist not None):
        self.sublists.append(sublist)

    def remove_sublist(self, Sublist sublist not None):
        self.sublists.remove(sublist)

    # The end of a read, the end of a turn.

    cdef int request_tick(self) except -1:
        if not self.is_tick_due:
            self.is_tick_due = True
            self.on_tick()
        return 0

    cdef int mark_dirty(self, Client client) except -1:
        """Something waits to be sent to `client`: `flush` sends it."""
        if not client.is_dirty:
            client.is_dirty = True
            self.dirty.append(client)
            self.request_tick()
        return 0

    def begin_tick(self):
        """The tick begins: what comes up meanwhile belongs to it."""
        self.is_tick_due = True

    def finish_tick(self):
        """The tick has ended; what came up too late belongs to the next one."""
        self.is_tick_due = False
        if self.dirty or self.touched or self.calls or self.leaving:
            self.request_tick()

    def can_wait(self):
        """Whether only a few messages came, for streams with a running commit: they wait for the next commit anyway."""
        cdef Ingest ingest
        if self.has_others() or not self.touched:
            return False
        for ingest in self.touched:
            if ingest.batch.count > HELD_MAX or not ingest.endpoint.is_held:
                return False
        return True

    cdef Py_ssize_t gathered(self) noexcept:
        """How many messages for streams wait for the tick."""
        cdef Ingest ingest
        cdef Py_ssize_t count = 0
        for ingest in self.touched:
            count += ingest.batch.count
        return count

    cdef bint has_others(self) noexcept:
        """Whether anything else waits for the tick: frames for clients, calls of services."""
        return len(self.dirty) > 0 or len(self.calls) > 0

    def postpone_tick(self):
        """Nothing has to be done now: the end of the commit brings the next tick, unless something else does before."""
        self.is_tick_due = False

    def flush(self):
        """Send what waits: straight to the socket if the transport has nothing before it, else through the transport."""
        cdef Client link
        cdef list taken = self.dirty, others
        self.dirty = []
        others = self.send_all(taken)      # no hook is called before all sockets were sent to
        for link in others:
            try:
                link.flush()
            except Exception:              # noqa: one connection's trouble is not the others'
                log.exception("%r: sending failed", link)
        for link in taken:
            if (link.drain_waiters is not None and link.fd >= 0 and link.out_size == 0
                    and not link.is_slow and not link.is_closed):
                link.backlog = 0           # the socket is sent to directly: the transport is empty
                try:
                    link.drained()
                except Exception:          # noqa: the other clients wait, too
                    log.exception("%r: its consumers could not go on", link)

    cdef list send_all(self, list links):
        """Send to each socket what it takes; returns the clients for whom the transport has to send the rest."""
        cdef Client link
        cdef list others = [], straight = []
        cdef Sending sendings[RING_SIZE]
        cdef Py_ssize_t n, begin, count
        for link in links:
            link.is_dirty = False
            if link.fd < 0 or link.is_slow or link.is_closed:
                others.append(link)
            elif link.piled is not None and link.piled.size:
                if not self.send_now(link):
                    others.append(link)
            elif link.out_size:
                straight.append(link)
        for begin in range(0, len(straight), RING_SIZE):
            count = min(len(straight) - begin, RING_SIZE)
            if self.ring is None or self.ring.is_broken or count < TOGETHER_MIN:
                for n in range(begin, begin + count):
                    link = straight[n]
                    if not self.send_now(link):
                        others.append(link)
                continue
            for n in range(count):
                link = straight[begin + n]
                sendings[n].fd = link.fd
                sendings[n].data = link.out
                sendings[n].size = <uint32_t>min(link.out_fill, <size_t>SEND_MAX)
            self.ring.send(sendings, <uint32_t>count)
            for n in range(count):
                link = straight[begin + n]
                if not self.sent(link, sendings[n].sent):
                    others.append(link)
        return others

    cdef bint send_now(self, Client client) except -1:
        """Send to the socket what it takes: whether that was all. The transport sends the rest at the turn's end."""
        cdef size_t wanted
        if client.out_size == 0:
            return True
        if client.piled is not None and client.piled.size:
            if client.out_fill:
                client.pile(0)
            while client.piled.size:
                wanted = client.piled.size
                if client.piled.send(client.fd) <= 0:
                    break
                client.out_size -= wanted - client.piled.size
            if client.piled.size == 0:
                return True
            client.fd = -1
            return False
        return self.sent(client, c_send(client.fd, client.out, client.out_fill, MSG_DONTWAIT | MSG_NOSIGNAL))

    cdef bint sent(self, Client client, ssize_t size) except -1:
        """`size` bytes of the buffer were sent, none if it is below 0: whether that was all that waits."""
        if size == <ssize_t>client.out_fill:
            client.out_fill = client.out_size = 0
            client.release_out()
            return True
        client.fd = -1                     # until the transport is empty again
        if size > 0:
            client.out_size -= size
            client.pile(size)              # the rest is not copied
        return False

    def send_together(self):
        """Send to many clients in one system call from now on. Raises OSError if the system has no io_uring."""
        self.ring = SendRing()

    def send_alone(self):
        """Send to each client in a system call of its own again; the ring is freed."""
        self.ring = None

    def take_batches(self):
        """Append what small reads left for the tick: how many messages."""
        cdef Py_ssize_t count = self.gathered()
        self.has_borrowed = True
        self.end_read()
        return count

    def free_removed(self):
        """Free removed subscriptions."""
        cdef Sublist sublist
        if self.leaving and (<Client>self.leaving[0]).leave_some(LEAVE_MAX):
            self.leaving.pop(0)
        for sublist in self.sublists:
            sublist.free_removed()

    cdef int end_read(self) except -1:
        """Append the batches, then call the services, and append what they publish."""
        cdef Ingest ingest
        if not self.has_borrowed and not self.calls:
            return 0                       # copies: the tick appends them with those of other clients
        self.has_borrowed = False
        while self.touched or self.calls:
            touched = self.touched
            self.touched = []
            for ingest in touched:
                try:
                    ingest.take()
                    ingest.endpoint.touched()
                except Exception:          # noqa: the batches of other streams point into the same read
                    log.exception("stream %s: a batch was not taken", ingest.endpoint.name)
            calls = self.calls
            self.calls = []
            for service, client, subject, reply, headers, payload in calls:
                try:
                    service(client, subject, reply, headers, payload)
                except Exception:          # noqa: a service that fails must not end the connection
                    log.exception("a service failed on %r", subject)
        return 0

    # Commands.

    cdef Py_ssize_t consume(self, Client client, const uint8_t* data, Py_ssize_t size) except -1:
        """Run the whole commands in data[:size]; returns their size."""
        cdef Command command
        cdef Py_ssize_t at = 0, taken
        client.last_ns = _now(CLOCK_MONOTONIC_COARSE)
        self.depth += 1
        self.is_small = size <= SMALL_READ
        try:
            while at < size and not client.is_closed and not client.is_paused and not client.is_throttled:
                if client.awaits_auth and data[at] != c"C" and data[at] != c"c":
                    client.unauthorized()
                    if client.awaits_auth or client.is_closed:
                        return size
                taken = parse_command(data + at, size - at, client.max_control_line, client.max_payload,
                                      client.takes_headers, &command)
                if command.op == OP_PUB:
                    self.publish(client, &command)
                elif command.op == OP_NONE:
                    client.held_wanted = command.wanted
                    break
                elif command.op == OP_FAULT:
                    client.faulted(command.fault, data[at:min(size, at + 64)])
                    return size
                elif command.op == OP_SUB:
                    self.subscribe(client, &command)
                elif command.op == OP_UNSUB:
                    self.unsubscribe(client, &command)
                elif command.op == OP_PING:
                    client.put(<const uint8_t*>PyBytes_AS_STRING(_PONG), 6)
                    self.mark_dirty(client)
                    if client.wants_ping:
                        client.wants_ping = False
                        client.pinged()
                elif command.op == OP_PONG:
                    if client.wants_pong:
                        client.wants_pong = False
                        client.ponged()
                elif command.op == OP_CONNECT:
                    # The commands before it in this read are answered under the account in which they were sent.
                    self.end_read()
                    if client.is_closed:   # a request of its own ended it
                        return size
                    self.throttle(client)
                    client.connected(command.text[:command.text_size])
                elif command.op == OP_INFO or command.op == OP_ERR:
                    self.throttle(client)
                    client.unexpected_op(command.op == OP_ERR, command.text[:command.text_size])
                elif command.op == OP_HMSG and client.is_verbose:
                    client.put(<const uint8_t*>PyBytes_AS_STRING(_OK), 5)
                    self.mark_dirty(client)
                at += taken
        finally:
            self.depth -= 1
            self.end_read()
        return at

    cdef void throttle(self, Client client) noexcept:
        """Count a command that takes a thousand times longer than a message: after a hundred of these the other clients come first."""
        client.slow_count += 1
        if client.slow_count >= SLOW_MAX:
            client.is_throttled = True

    cdef int publish(self, Client client, Command* command) except -1:
        cdef MessageView view
        cdef uint64_t size = <uint64_t>command.headers_size + command.payload_size
        cdef Sublist sublist = client.sublist
        client.in_msgs += 1
        client.in_bytes += size
        self.in_msgs += 1
        self.in_bytes += size
        if client.is_pedantic and not subject_is_valid(command.subject, command.subject_size):
            self.throttle(client)
            client.protocol_error(b"Invalid Publish Subject")
        if sublist is None:
            return 0
        sublist.in_msgs += 1
        sublist.in_bytes += size
        if is_routed(command.subject, command.subject_size):
            self.throttle(client)
            client.refused_publish(command.subject[:command.subject_size])
            return 0
        if client.permissions is not None and not client.permissions.may_publish(command.subject, command.subject_size):
            self.throttle(client)
            client.refused_publish(command.subject[:command.subject_size])
            return 0
        if command.subject[0] == c"$" and not client.is_system and begins(command.subject, command.subject_size, b"$NRG.", 5):
            self.throttle(client)
            client.refused_publish(command.subject[:command.subject_size])
            return 0
        if command.reply_size and is_reserved_reply(command.reply, command.reply_size):
            self.throttle(client)
            client.refused_reply(command.reply[:command.reply_size])
            return 0
        if client.is_verbose:
            client.put(<const uint8_t*>PyBytes_AS_STRING(_OK), 5)
            self.mark_dirty(client)
        view.subject = command.subject
        view.subject_size = command.subject_size
        view.reply = command.reply
        view.reply_size = command.reply_size
        view.headers = command.headers
        view.headers_size = command.headers_size
        view.payload = command.payload
        view.payload_size = command.payload_size
        view.copies = self.is_small
        if not self.route(sublist, client, &view, ORIGIN_CLIENT, True) and command.reply_size and client.has_no_responders:
            self.no_responders(client, command)
        return 0

    cdef int no_responders(self, Client client, Command* command) except -1:
        """A request had no subscriber: tell its publisher, if it listens for the reply."""
        cdef MatchResult* result = client.sublist.match(command.reply, command.reply_size, False)
        cdef uint32_t n
        cdef MessageView view
        for n in range(result.plain_count):
            if result.subs[n].kind == KIND_CLIENT and result.subs[n].target == <void*>client:
                headers = b"NATS/1.0 503\r\nNats-Subject: " + command.subject[:command.subject_size] + b"\r\n\r\n"
                view.subject = command.reply
                view.subject_size = command.reply_size
                view.reply = NULL
                view.reply_size = 0
                view.headers = <const uint8_t*>PyBytes_AS_STRING(headers)
                view.headers_size = <uint32_t>PyBytes_GET_SIZE(headers)
                view.payload = NULL
                view.payload_size = 0
                view.tail_size = view.plain_tail_size = 0
                view.copies = False
                self.write(client, result.subs[n], &view)
                return 0
        return 0

    cdef int subscribe(self, Client client, Command* command) except -1:
        cdef Sub* sub
        if client.sublist is None:
            return 0
        if client.permissions is not None and not client.permissions.may_subscribe(
                command.subject, command.subject_size, command.queue, command.queue_size):
            self.throttle(client)
            client.refused_subscribe(command.subject[:command.subject_size], command.queue[:command.queue_size])
            return 0
        if command.queue_size == 5 and memcmp(command.queue, b"_sys_", 5) == 0:
            self.throttle(client)
            client.refused_subscribe(command.subject[:command.subject_size], b"_sys_")
            return 0
        if client.max_sub_tokens and token_count(command.subject, command.subject_size) > client.max_sub_tokens:
            self.throttle(client)
            client.refused_tokens(command.subject[:command.subject_size])
            return 0
        if client.max_subs and client.sub_count >= client.max_subs:
            self.throttle(client)
            client.protocol_error(b"maximum subscriptions exceeded")
            return 0
        if client.find(command.sid, command.sid_size) == NULL:
            if not is_subscribable(command.subject, command.subject_size):
                self.throttle(client)
                client.protocol_error(b"Invalid Subject")
                return 0
            sub = client.sublist.insert(KIND_CLIENT, <void*>client, command.subject, command.subject_size, command.queue,
                                        command.queue_size, command.sid, command.sid_size)
            sub.is_checked = client.permissions is not None and client.permissions.filters_delivery(
                command.subject, command.subject_size)
            client.keep(sub)
        if client.is_verbose:
            client.put(<const uint8_t*>PyBytes_AS_STRING(_OK), 5)
            self.mark_dirty(client)
        return 0

    cdef int unsubscribe(self, Client client, Command* command) except -1:
        cdef Sub* sub = client.find(command.sid, command.sid_size)
        if sub != NULL:
            if command.max_msgs > 0 and command.max_msgs > sub.msgs:
                sub.max_msgs = command.max_msgs
            else:
                client.drop(sub)
                client.sublist.remove(sub)
        if client.is_verbose:
            client.put(<const uint8_t*>PyBytes_AS_STRING(_OK), 5)
            self.mark_dirty(client)
        return 0

    # Messages.

    cdef int route(self, Sublist sublist, Client publisher, MessageView* view, int origin, bint cached) except -1:
        """Deliver to all subscribers that `origin` reaches: how many there were."""
        cdef MatchResult* result
        view.origin = origin
        view.tail_size = view.plain_tail_size = 0
        if cached and view.subject[0] == c"_" and begins(view.subject, view.subject_size, b"_INBOX.", 7):
            cached = False                 # each is used once
        if cached and view.subject[0] == c"$" and begins(view.subject, view.subject_size, b"$JS.ACK.", 8):
            cached = False
        result = sublist.match(view.subject, view.subject_size, cached)
        return self.deliver_all(result, sublist, publisher, view, view)

    cdef int route_to(self, Sublist sublist, const uint8_t* subject, uint32_t size, MessageView* view, int origin) except -1:
        """Deliver a message of a stream to the subscribers of `subject`, under the message's own subject: how many there were."""
        cdef MessageView inner = view[0]      # for streams its subject is the one that they capture
        view.tail_size = view.plain_tail_size = 0
        view.origin = inner.origin = origin
        inner.subject = subject
        inner.subject_size = size
        return self.deliver_all(sublist.match(subject, size, False), sublist, None, view, &inner)

    cdef int deliver_all(self, MatchResult* result, Sublist sublist, Client publisher, MessageView* view, MessageView* inner) except -1:
        """Deliver `view` to the clients in `result`, and `inner` to its other subscribers: how many there were."""
        cdef uint32_t n, start, size, picked
        cdef Sub* sub
        cdef int reached = 0
        for n in range(result.plain_count):
            sub = result.subs[n]
            reached += self.deliver(sub, sublist, publisher, view if sub.kind == KIND_CLIENT else inner)
        start = result.plain_count
        for n in range(result.group_count):
            size = result.group_ends[n] - start
            self.random ^= self.random << 13
            self.random ^= self.random >> 7
            self.random ^= self.random << 17
            picked = <uint32_t>(self.random % size)
            for _ in range(size):
                sub = result.subs[start + picked]
                if self.deliver(sub, sublist, publisher, view if sub.kind == KIND_CLIENT else inner):
                    reached += 1
                    break
                picked = picked + 1 if picked + 1 < size else 0
            start = result.group_ends[n]
        return reached

    cdef bint deliver(self, Sub* sub, Sublist sublist, Client publisher, MessageView* view) except -1:
        cdef Client client
        cdef Ingest ingest
        if sub.is_dead:
            return False
        if sub.kind == KIND_CLIENT:
            client = <Client>sub.target
            if client.is_closed or (client is publisher and not client.has_echo):
                return False
            if sub.is_checked and not client.permissions.may_deliver(view.subject, view.subject_size, sub.queue,
                                                                     sub.queue_size):
                return False
            sub.msgs += 1
            if sub.max_msgs > 0 and sub.msgs >= sub.max_msgs:
                client.drop(sub)
                sublist.remove(sub)
            if self.write(client, sub, view):
                self.count(client, view.payload_size + (view.headers_size if client.has_headers else 0))
            if view.reply_size and client.permissions is not None and client.permissions.has_responses:
                client.permissions.note_reply(view.reply, view.reply_size, _now(CLOCK_MONOTONIC))
            if publisher is not None and client.backlog + client.out_size > client.max_pending - client.max_pending // STALL_PART:
                if not self.no_stall and publisher is not client:
                    publisher.is_stalled = True
            return True
        if view.origin != ORIGIN_CLIENT and not reaches(view.origin, sub.kind):
            return False                   # the server's own messages are never commands
        if sub.kind == KIND_SERVICE and sub.subject_size == 9 and begins(view.subject, view.subject_size,
                                                                          b"$JS.API.CONSUMER.MSG.NEXT.", 26):
            return False                   # the API service does not get pull requests: each consumer subscribes to its own
        sub.msgs += 1
        if sub.kind >= KIND_ACK:
            return (<Subscriber>sub.target).receive(sub, publisher, view)
        if sub.kind == KIND_STREAM:
            ingest = <Ingest>sub.target
            if view.reply_size > 4 and memcmp(view.reply + view.reply_size - 4, b".$FI", 4) == 0:
                if publisher is not None:
                    self.throttle(publisher)
                self.calls.append((ingest.endpoint.refuse_batch, publisher, b"", view.reply[:view.reply_size], None, b""))
                return True
            if not view.copies:
                self.has_borrowed = True
            if ingest.is_half_full and publisher is not None:
                publisher.half_full_ingest = ingest
            ingest.add(view.subject, view.subject_size, view.reply, view.reply_size, view.headers,
                       view.headers_size, view.payload, view.payload_size, view.copies)
            if not ingest.is_touched:
                ingest.is_touched = True
                self.touched.append(ingest)
                self.request_tick()
            return True
        self.calls.append((<object>sub.target, publisher, view.subject[:view.subject_size],
                           view.reply[:view.reply_size] if view.reply_size else None,
                           view.headers[:view.headers_size] if view.headers_size else None,
                           view.payload[:view.payload_size] if view.payload_size else b""))
        return True

    cdef int make_tail(self, MessageView* view, bint has_headers) except -1:
        """Make the part of the line behind the sid: [reply] [headers' size] size, and the line's end."""
        cdef size_t capacity = view.reply_size + 64
        cdef uint8_t* out
        cdef void* grown
        if capacity > self.tail_capacity:
            grown = realloc(self.tail, capacity)
            if grown == NULL:
                raise MemoryError
            self.tail = <uint8_t*>grown
            grown = realloc(self.plain_tail, capacity)
            if grown == NULL:
                raise MemoryError
            self.plain_tail = <uint8_t*>grown
            self.tail_capacity = capacity
        out = self.tail if has_headers else self.plain_tail
        out[0] = c" "
        out += 1
        if view.reply_size:
            memcpy(out, view.reply, view.reply_size)
            out += view.reply_size
            out[0] = c" "
            out += 1
        if has_headers:
            out += write_decimal(out, view.headers_size)
            out[0] = c" "
            out += 1
            out += write_decimal(out, <uint64_t>view.headers_size + view.payload_size)
        else:
            out += write_decimal(out, view.payload_size)
        out[0] = c"\r"
        out[1] = c"\n"
        out += 2
        if has_headers:
            view.tail_size = <uint32_t>(out - self.tail)
        else:
            view.plain_tail_size = <uint32_t>(out - self.plain_tail)
        return 0

    cdef int write(self, Client client, Sub* sub, MessageView* view) except -1:
        """Write a MSG or HMSG frame into the client's buffer; 0 if it takes no more. A status alone is not counted."""
        cdef bint has_headers = view.headers_size != 0 and client.has_headers
        cdef uint8_t* out
        cdef uint8_t* start
        cdef uint32_t tail_size
        if client.is_slow or client.is_closed:
            return 0
        if has_headers:
            if view.tail_size == 0:
                self.make_tail(view, True)
            tail_size = view.tail_size
        else:
            if view.plain_tail_size == 0:
                self.make_tail(view, False)
            tail_size = view.plain_tail_size
        start = out = client.reserve(8 + view.subject_size + sub.sid_size + tail_size + view.headers_size
                                  + <size_t>view.payload_size)
        if has_headers:
            memcpy(out, b"HMSG ", 5)
            out += 5
        else:
            memcpy(out, b"MSG ", 4)
            out += 4
        memcpy(out, view.subject, view.subject_size)
        out += view.subject_size
        out[0] = c" "
        out += 1
        memcpy(out, sub.sid, sub.sid_size)
        out += sub.sid_size
        memcpy(out, self.tail if has_headers else self.plain_tail, tail_size)
        out += tail_size
        if has_headers:
            memcpy(out, view.headers, view.headers_size)
            out += view.headers_size
        if view.payload_size:
            memcpy(out, view.payload, view.payload_size)
            out += view.payload_size
        out[0] = c"\r"
        out[1] = c"\n"
        self.written(client, <size_t>(out + 2 - start))
        return 1

    cdef int written(self, Client client, size_t size) except -1:
        """`size` bytes were written into the client's buffer: send them at the turn's end, or at once if many wait."""
        client.wrote(size)
        if client.backlog + client.out_size > <uint64_t>client.max_pending:
            client.is_slow = True
        self.mark_dirty(client)
        if client.out_size >= SEND_SIZE and client.fd >= 0 and not client.is_slow:
            self.send_now(client)
        return 0

    cdef void count(self, Client client, uint64_t size) noexcept:
        """A message of `size` bytes that was written, in the counters of the client, its account and the server."""
        client.out_msgs += 1
        client.out_bytes += size
        self.out_msgs += 1
        self.out_bytes += size
        if client.sublist is not None:
            client.sublist.out_msgs += 1
            client.sublist.out_bytes += size

    # For Python.

    def send(self, int origin, Sublist sublist not None, bytes subject not None, bytes payload not None, bytes headers=None,
             bytes reply=None, Client publisher=None):
        """Publish in the name of `origin`: how many subscribers it reached."""
        cdef MessageView view
        cdef int reached
        view.subject = <const uint8_t*>PyBytes_AS_STRING(subject)
        view.subject_size = <uint32_t>PyBytes_GET_SIZE(subject)
        view.reply = NULL if reply is None else <const uint8_t*>PyBytes_AS_STRING(reply)
        view.reply_size = 0 if reply is None else <uint32_t>PyBytes_GET_SIZE(reply)
        view.headers = NULL if headers is None else <const uint8_t*>PyBytes_AS_STRING(headers)
        view.headers_size = 0 if headers is None else <uint32_t>PyBytes_GET_SIZE(headers)
        view.payload = <const uint8_t*>PyBytes_AS_STRING(payload)
        view.payload_size = <uint32_t>PyBytes_GET_SIZE(payload)
        view.copies = True
        if not 0 <= origin < ORIGIN_COUNT:
            raise ValueError(f"origin {origin} is none of broker/routing/origin.pxd")
        if not fits_a_line(view.subject, view.subject_size) or not fits_a_line(view.reply, view.reply_size):
            raise ValueError(f"a message to {subject!r} with the reply {reply!r}: a blank or a line end would end its line")
        reached = self.route(sublist, publisher, &view, origin, True)
        if self.depth == 0 and (self.touched or self.calls):
            self.depth += 1
            try:
                self.end_read()
            finally:
                self.depth -= 1
        return reached

    def capture(self, Sublist sublist not None, Ingest ingest not None, bytes subject not None):
        """Let a stream capture a subject: a token for `release`."""
        return <size_t>sublist.insert(KIND_STREAM, <void*>ingest, <const uint8_t*>PyBytes_AS_STRING(subject),
                                      <uint32_t>PyBytes_GET_SIZE(subject), NULL, 0, NULL, 0)

    def release(self, Sublist sublist not None, size_t token):
        """Undo `capture`, once."""
        sublist.remove(<Sub*>token)
        self.request_tick()                    # the tick frees it
