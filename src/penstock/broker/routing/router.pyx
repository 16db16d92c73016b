"""Router: the exchange of a server. It reads commands, finds who hears a message, and writes it into their buffers.

Within one read nothing waits and nothing is called back but CONNECT: frames go into buffers, messages for streams into batches,
messages for services onto a list. `end_read` takes the batches and calls the services; the turn of the loop ends with
`submit`, `settle` and `flush`, which the server's `on_turn` arranges.
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
from penstock.broker.routing.sublist cimport Answer
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
    SMALL_READ = 8192                      # messages of a read up to this are copied, and taken with others' at the turn's end
    SEND_SIZE = 131072                     # as much is sent at once: it stays in the cache, and its reader has work
    SEND_MAX = 1073741824                  # of one client in one call
    TOGETHER_MIN = 3                       # so many sends cost less in one call
    HELD_MAX = 256                         # so many messages a stream may have waiting before they are appended
    SLOW_MAX = 100
    STALL_PART = 4                         # a subscriber with more than 3/4 of its bound waiting slows its publishers down

log = logging.getLogger("penstock")
cdef bytes _PONG = b"PONG\r\n"
cdef bytes _OK = b"+OK\r\n"


cdef inline int64_t _now(int clock) noexcept nogil:
    cdef timespec at
    clock_gettime(clock, &at)
    return <int64_t>at.tv_sec * 1000000000 + at.tv_nsec


cdef class Router:
    """One server's exchange. Everything happens on the thread of its loop."""

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
        if not self.is_turn_due:
            self.is_turn_due = True
            self.on_turn()
        return 0

    cdef int mark_dirty(self, Client client) except -1:
        """Something waits to be sent to `client`."""
        if not client.is_dirty:
            client.is_dirty = True
            self.dirty.append(client)
            self.request_tick()
        return 0

    def begin_turn_end(self):
        """The turn ends: what comes up meanwhile belongs to it."""
        self.is_turn_due = True

    def finish_turn_end(self):
        """The turn has ended; what came up too late is the next one's."""
        self.is_turn_due = False
        if self.dirty or self.touched or self.calls or self.leaving:
            self.request_tick()

    def can_wait(self):
        """Whether nothing came but a few messages for streams that are at a commit: they go with the next one anyway."""
        cdef Ingest ingest
        if self.has_others() or not self.touched:
            return False
        for ingest in self.touched:
            if ingest.batch.count > HELD_MAX or not ingest.endpoint.is_held:
                return False
        return True

    cdef Py_ssize_t gathered(self) noexcept:
        """How many messages wait for the end of the turn."""
        cdef Ingest ingest
        cdef Py_ssize_t count = 0
        for ingest in self.touched:
            count += ingest.batch.count
        return count

    cdef bint has_others(self) noexcept:
        """Does anything else than such messages wait for it: frames for clients, calls?"""
        return len(self.dirty) > 0 or len(self.calls) > 0

    def put_off_turn_end(self):
        """Nothing has to be done now: it comes with the end of that commit, or with whatever is to be done next."""
        self.is_turn_due = False

    def flush(self):
        """Send what waits: straight to the socket where nothing is under way before it, else through the transport."""
        cdef Client link
        cdef list taken = self.dirty, others
        self.dirty = []
        others = self.send_all(taken)      # nothing is called back before all of them are sent to
        for link in others:
            try:
                link.flush()
            except Exception:              # noqa: one connection's trouble is not the others'
                log.exception("%r: sending failed", link)
        for link in taken:
            if (link.drain_waiters is not None and link.fd >= 0 and link.out_size == 0
                    and not link.is_slow and not link.is_closed):
                link.backlog = 0           # it is sent to straight: nothing is under way
                try:
                    link.drained()
                except Exception:          # noqa: the others wait, too
                    log.exception("%r: its consumers could not go on", link)

    cdef list send_all(self, list links):
        """Give each socket what it takes: the links whose rest, or all, is the transport's."""
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
        """Give the socket what it takes: whether that was all. The rest goes through the transport, at the turn's end."""
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
        """So much of the buffer, which is all that waits, was sent, below 0: nothing. Whether that was all."""
        if size == <ssize_t>client.out_fill:
            client.out_fill = client.out_size = 0
            client.release_out()
            return True
        client.fd = -1                     # until the transport is empty again
        if size > 0:
            client.out_size -= size
            client.pile(size)              # the rest stays where it is
        return False

    def send_together(self):
        """From now on many clients are sent to in one system call. Raises OSError where the system has none for it."""
        self.ring = SendRing()

    def send_alone(self):
        """Each by a call of its own again: the ring's descriptor and memory are let go of."""
        self.ring = None

    def take_batches(self):
        """Take what small reads left for the end of the turn: how many messages."""
        cdef Py_ssize_t count = self.gathered()
        self.has_borrowed = True
        self.end_read()
        return count

    def bury(self):
        """Free removed subscriptions."""
        cdef Sublist sublist
        if self.leaving and (<Client>self.leaving[0]).leave_some(LEAVE_MAX):
            self.leaving.pop(0)
        for sublist in self.sublists:
            sublist.bury()

    cdef int end_read(self) except -1:
        """Take the batches, then call the services: what they publish is taken too."""
        cdef Ingest ingest
        if not self.has_borrowed and not self.calls:
            return 0                       # copies: the turn's end takes them, with those of other connections
        self.has_borrowed = False
        while self.touched or self.calls:
            touched = self.touched
            self.touched = []
            for ingest in touched:
                try:
                    ingest.take()
                    ingest.endpoint.touched()
                except Exception:          # noqa: the other streams' batches point into the same read
                    log.exception("stream %s: a batch was not taken", ingest.endpoint.name)
            calls = self.calls
            self.calls = []
            for service, client, subject, reply, headers, payload in calls:
                try:
                    service(client, subject, reply, headers, payload)
                except Exception:          # noqa: a service that fails must not take the connection with it
                    log.exception("a service failed on %r", subject)
        return 0

    # Commands.

    cdef Py_ssize_t consume(self, Client client, const uint8_t* data, Py_ssize_t size) except -1:
        """Do what the whole commands in data[:size] say: how many bytes they were."""
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
                    # What came before it in this read is answered under the account it was sent in.
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
        """Nobody heard a request: its publisher learns it, where it listens for the reply."""
        cdef Answer* answer = client.sublist.match(command.reply, command.reply_size, False)
        cdef uint32_t n
        cdef MessageView view
        for n in range(answer.plain_count):
            if answer.subs[n].kind == KIND_CLIENT and answer.subs[n].target == <void*>client:
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
                self.write(client, answer.subs[n], &view)
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
        """Deliver to everyone who hears it, as far as what `origin` publishes reaches them: how many did."""
        cdef Answer* answer
        view.origin = origin
        view.tail_size = view.plain_tail_size = 0
        if cached and view.subject[0] == c"_" and begins(view.subject, view.subject_size, b"_INBOX.", 7):
            cached = False                 # each is used once
        if cached and view.subject[0] == c"$" and begins(view.subject, view.subject_size, b"$JS.ACK.", 8):
            cached = False
        answer = sublist.match(view.subject, view.subject_size, cached)
        return self.deliver_all(answer, sublist, publisher, view, view)

    cdef int route_to(self, Sublist sublist, const uint8_t* subject, uint32_t size, MessageView* view, int origin) except -1:
        """Deliver a message of a stream to everyone who hears `subject`, where it is sent under its own: how many did."""
        cdef MessageView inner = view[0]      # streams know it by the subject that they hear
        view.tail_size = view.plain_tail_size = 0
        view.origin = inner.origin = origin
        inner.subject = subject
        inner.subject_size = size
        return self.deliver_all(sublist.match(subject, size, False), sublist, None, view, &inner)

    cdef int deliver_all(self, Answer* answer, Sublist sublist, Client publisher, MessageView* view, MessageView* inner) except -1:
        """The same to those in `answer`; `inner` is for those who are no clients."""
        cdef uint32_t n, start, size, picked
        cdef Sub* sub
        cdef int heard = 0
        for n in range(answer.plain_count):
            sub = answer.subs[n]
            heard += self.deliver(sub, sublist, publisher, view if sub.kind == KIND_CLIENT else inner)
        start = answer.plain_count
        for n in range(answer.group_count):
            size = answer.group_ends[n] - start
            self.random ^= self.random << 13
            self.random ^= self.random >> 7
            self.random ^= self.random << 17
            picked = <uint32_t>(self.random % size)
            for _ in range(size):
                sub = answer.subs[start + picked]
                if self.deliver(sub, sublist, publisher, view if sub.kind == KIND_CLIENT else inner):
                    heard += 1
                    break
                picked = picked + 1 if picked + 1 < size else 0
            start = answer.group_ends[n]
        return heard

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
            return False                   # nobody gives a command through the server's own messages
        if sub.kind == KIND_SERVICE and sub.subject_size == 9 and begins(view.subject, view.subject_size,
                                                                          b"$JS.API.CONSUMER.MSG.NEXT.", 26):
            return False                   # of the API only consumers hear it, one by one
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
        """What follows the sid: [reply] [headers' size] size, and the line's end."""
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
        """One MSG or HMSG frame into the client's buffer; 0 when it takes no more. A status alone is not counted."""
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
        start = out = client.room(8 + view.subject_size + sub.sid_size + tail_size + view.headers_size
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
        """So many bytes more stand in the client's buffer: it is sent to at the turn's end, or at once if they are many."""
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

    # Doors.

    def send(self, int origin, Sublist sublist not None, bytes subject not None, bytes payload not None, bytes headers=None,
             bytes reply=None, Client publisher=None):
        """Publish in the name of `origin`: how many heard it."""
        cdef MessageView view
        cdef int heard
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
        heard = self.route(sublist, publisher, &view, origin, True)
        if self.depth == 0 and (self.touched or self.calls):
            self.depth += 1
            try:
                self.end_read()
            finally:
                self.depth -= 1
        return heard

    def capture(self, Sublist sublist not None, Ingest ingest not None, bytes subject not None):
        """Let a stream hear a subject: a token for `release`."""
        return <size_t>sublist.insert(KIND_STREAM, <void*>ingest, <const uint8_t*>PyBytes_AS_STRING(subject),
                                      <uint32_t>PyBytes_GET_SIZE(subject), NULL, 0, NULL, 0)

    def release(self, Sublist sublist not None, size_t token):
        """Undo `capture`, once."""
        sublist.remove(<Sub*>token)
        self.request_tick()                    # it is buried at the turn's end
