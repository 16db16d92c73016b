"""What one connection may publish and subscribe to. The rules are those of nats-server, recorded in tests/server/test_permissions.py.

Deny wins over allow. A subscription is judged by its subject as it is written, token by token, so `foo.>` is let in by an
`allow` of `foo.*`; what it then receives is checked against the entries one message at a time (`filters_delivery`), which nats-server
leaves out. A subject with an empty token matches no entry.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp
from penstock.base.monotonic cimport monotonic_ns
from penstock.base.subject cimport (
    Filters, as_bytes, filter_covers, filter_is_literal, filters_overlap, subject_matches,
)
from penstock.base.subject import explain_filter

cdef enum:
    NOTED_MAX = 262_144                    # replies remembered per connection; above it the older half is forgotten
    NOTED_PER_PRUNE = 4096

cdef int64_t PRUNE_EVERY_NS = 1_000_000_000
cdef int64_t RESPONSES_MAX_DEFAULT = 1
cdef int64_t RESPONSES_EXPIRES_NS_DEFAULT = 120_000_000_000


cdef inline bint has_empty_token(const uint8_t* s, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t at
    cdef uint8_t before = c"."
    for at in range(n):
        if s[at] == c"." and before == c".":
            return True
        before = s[at]
    return before == c"."


cdef class SubscribeRules:
    def __cinit__(self, entries):
        cdef list plain = [], queued = [], queues = []
        for entry in entries:
            parts = as_bytes(entry).split()
            if not 1 <= len(parts) <= 2:
                raise ValueError(f"permission {entry!r}: an entry is 'subject' or 'subject queue'")
            for part in parts:
                if (why := explain_filter(part)) is not None:
                    raise ValueError(f"permission {entry!r}: {part!r} is no subject: {why}")
            if len(parts) == 1:
                plain.append(parts[0])
            else:
                queued.append(parts[0])
                queues.append(parts[1])
        self.plain = Filters(plain)
        self.queued = Filters(queued)
        self.queues = Filters(queues)

    cdef bint matches_plain(self, const uint8_t* subject, Py_ssize_t size) noexcept nogil:
        return self.plain.count > 0 and self.plain.matches(subject, size)

    cdef int matches_queue(self, const uint8_t* subject, Py_ssize_t size, const uint8_t* queue, Py_ssize_t queue_size) noexcept nogil:
        """-1: no entry with a queue speaks of the subject; 1: one names this queue, as it is or by wildcards; 0: others only."""
        cdef int index, found = -1
        cdef Py_ssize_t pattern_size
        for index in range(self.queued.count):
            if not subject_matches(subject, size, self.queued.pattern(index), self.queued.size(index)):
                continue
            found = 0
            pattern_size = self.queues.size(index)
            if pattern_size == queue_size and memcmp(self.queues.pattern(index), queue, queue_size) == 0:
                return 1
            if filter_covers(self.queues.pattern(index), pattern_size, queue, queue_size):
                return 1
        return found

    cdef bint covers_plain(self, const uint8_t* subject, Py_ssize_t size) noexcept nogil:
        """Whether one entry without a queue covers all that the subscription can receive."""
        cdef int index
        for index in range(self.plain.count):
            if filter_covers(self.plain.pattern(index), self.plain.size(index), subject, size):
                return True
        return False

    cdef bint overlaps(self, const uint8_t* subject, Py_ssize_t size) noexcept nogil:
        cdef int index
        for index in range(self.plain.count):
            if filters_overlap(self.plain.pattern(index), self.plain.size(index), subject, size):
                return True
        for index in range(self.queued.count):
            if filters_overlap(self.queued.pattern(index), self.queued.size(index), subject, size):
                return True
        return False


cdef class Noted:
    """A reply that may be published to: since when, and how often it was."""

    cdef int64_t since_ns
    cdef int64_t count


cdef class Permissions:
    """Made from the entries of allow and deny lists; an empty list is as good as none, in nats-server too.

    Always true: `replies` is ordered by the time of its entries, and none of them is used up.
    """

    def __cinit__(self, publish_allow=None, publish_deny=None, subscribe_allow=None, subscribe_deny=None,
                  responses_max=None, responses_expires_ns=None):
        self.has_responses = responses_max is not None
        if self.has_responses:
            # As in nats-server: a client that may answer may publish only what is listed besides, and 0 stands for the default.
            self.responses_max = responses_max or RESPONSES_MAX_DEFAULT
            self.responses_expires_ns = responses_expires_ns or RESPONSES_EXPIRES_NS_DEFAULT
        if publish_allow or self.has_responses:
            self.publish_allow = Filters(publish_allow or ())
        if publish_deny:
            self.publish_deny = Filters(publish_deny)
        if subscribe_allow:
            self.subscribe_allow = SubscribeRules(subscribe_allow)
        if subscribe_deny:
            self.subscribe_deny = SubscribeRules(subscribe_deny)
        self.has_publish = self.publish_allow is not None or self.publish_deny is not None
        self.has_subscribe = self.subscribe_allow is not None or self.subscribe_deny is not None
        self.replies = {}
        self.pruned_ns = 0

    cdef bint rules_allow_publish(self, const uint8_t* subject, Py_ssize_t size) noexcept:
        cdef bint is_well_formed = not has_empty_token(subject, size)
        if self.publish_allow is not None:
            if not is_well_formed or self.publish_allow.count == 0 or not self.publish_allow.matches(subject, size):
                return False
        return self.publish_deny is None or not is_well_formed or not self.publish_deny.matches(subject, size)

    cdef bint may_publish(self, const uint8_t* subject, Py_ssize_t size) noexcept:
        if not self.has_publish or self.rules_allow_publish(subject, size):
            return True
        return self.has_responses and len(self.replies) > 0 and self.take_reply(subject, size, monotonic_ns())

    cdef bint may_publish_at(self, const uint8_t* subject, Py_ssize_t size, int64_t now_ns) noexcept:
        if not self.has_publish or self.rules_allow_publish(subject, size):
            return True
        return self.has_responses and len(self.replies) > 0 and self.take_reply(subject, size, now_ns)

    cdef bint may_subscribe(self, const uint8_t* subject, Py_ssize_t size, const uint8_t* queue, Py_ssize_t queue_size) noexcept:
        cdef int named
        if not self.has_subscribe:
            return True
        if has_empty_token(subject, size):
            return self.subscribe_allow is None
        if self.subscribe_allow is not None:
            named = -1 if queue_size == 0 else self.subscribe_allow.matches_queue(subject, size, queue, queue_size)
            # Entries with a queue, once one speaks of the subject, alone decide about queues.
            if named == 0 or (named < 0 and not self.subscribe_allow.matches_plain(subject, size)):
                return False
        return self.subscribe_deny is None or not self.denies(subject, size, queue, queue_size)

    cdef bint denies(self, const uint8_t* subject, Py_ssize_t size, const uint8_t* queue, Py_ssize_t queue_size) noexcept:
        if self.subscribe_deny.matches_plain(subject, size):
            return True
        return queue_size > 0 and self.subscribe_deny.matches_queue(subject, size, queue, queue_size) == 1

    cdef bint filters_delivery(self, const uint8_t* subject, Py_ssize_t size) noexcept:
        if not self.has_subscribe or filter_is_literal(subject, size):
            return False
        if self.subscribe_deny is not None and self.subscribe_deny.overlaps(subject, size):
            return True
        return self.subscribe_allow is not None and not self.subscribe_allow.covers_plain(subject, size)

    cdef bint may_deliver(self, const uint8_t* subject, Py_ssize_t size, const uint8_t* queue, Py_ssize_t queue_size) noexcept:
        if self.subscribe_deny is not None and self.denies(subject, size, queue, queue_size):
            return False
        if self.subscribe_allow is None or self.subscribe_allow.matches_plain(subject, size):
            return True
        return queue_size > 0 and self.subscribe_allow.matches_queue(subject, size, queue, queue_size) == 1

    cdef int note_reply(self, const uint8_t* reply, Py_ssize_t size, int64_t now_ns) except -1:
        cdef Noted noted
        # A reply that is noted already counts as used once more, as nats-server counts it.
        if not self.has_responses or self.may_publish_at(reply, size, now_ns):
            return 0
        noted = Noted.__new__(Noted)
        noted.since_ns = now_ns
        self.replies[reply[:size]] = noted
        self.noted_since_prune += 1
        if self.noted_since_prune > NOTED_PER_PRUNE or now_ns - self.pruned_ns > PRUNE_EVERY_NS:
            self.prune_replies(now_ns)
        return 0

    cdef bint take_reply(self, const uint8_t* subject, Py_ssize_t size, int64_t now_ns) noexcept:
        """Whether the subject is a noted reply that is neither used up nor too old; it is used once more."""
        cdef bytes key = subject[:size]
        cdef Noted noted = self.replies.get(key)
        if noted is None:
            return False
        if self.responses_expires_ns > 0 and now_ns - noted.since_ns > self.responses_expires_ns:
            del self.replies[key]
            return False
        noted.count += 1
        if self.responses_max > 0 and noted.count >= self.responses_max:
            del self.replies[key]
        return True

    cdef int prune_replies(self, int64_t now_ns) except -1:
        cdef list gone = []
        cdef Py_ssize_t excess = len(self.replies) - NOTED_MAX
        cdef Noted noted
        if excess > 0:
            excess = NOTED_MAX // 2
        for key, noted in self.replies.items():
            if len(gone) >= excess and not (self.responses_expires_ns > 0 and now_ns - noted.since_ns > self.responses_expires_ns):
                break
            gone.append(key)
        for key in gone:
            del self.replies[key]
        self.noted_since_prune = 0
        self.pruned_ns = now_ns
        return 0

    # The door for Python: tests, and what happens seldom.

    def publishes(self, subject: bytes, now_ns: int | None = None) -> bool:
        return bool(self.may_publish_at(subject, len(subject), monotonic_ns() if now_ns is None else now_ns))

    def subscribes(self, subject: bytes, queue: bytes = b"") -> bool:
        return bool(self.may_subscribe(subject, len(subject), queue, len(queue)))

    def filters(self, subject: bytes) -> bool:
        return bool(self.filters_delivery(subject, len(subject)))

    def delivers(self, subject: bytes, queue: bytes = b"") -> bool:
        return bool(self.may_deliver(subject, len(subject), queue, len(queue)))

    def note(self, reply: bytes, now_ns: int | None = None) -> None:
        self.note_reply(reply, len(reply), monotonic_ns() if now_ns is None else now_ns)

    @property
    def noted_count(self) -> int:
        return len(self.replies)
