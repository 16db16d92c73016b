"""What one connection may publish and subscribe to. Checked for every message, so a check makes no Python object."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from penstock.base.subject cimport Filters


@cython.final
cdef class SubscribeRules:
    """The entries of an allow or a deny list of subscriptions: plain subjects, and `subject queue` pairs."""
    cdef Filters plain                     # entries without a queue
    cdef Filters queued                    # subjects of the entries with one …
    cdef Filters queues                    # … and their queues, at the same index
    cdef bint matches_plain(self, const uint8_t* subject, Py_ssize_t size) noexcept nogil
    cdef int matches_queue(self, const uint8_t* subject, Py_ssize_t size, const uint8_t* queue, Py_ssize_t queue_size) noexcept nogil
    cdef bint covers_plain(self, const uint8_t* subject, Py_ssize_t size) noexcept nogil
    cdef bint overlaps(self, const uint8_t* subject, Py_ssize_t size) noexcept nogil


@cython.final
cdef class Permissions:
    cdef readonly bint has_responses       # allow_responses is on: note_reply must be called for deliveries
    cdef readonly bint has_publish         # False: may_publish always says yes
    cdef readonly bint has_subscribe       # False: the three about subscriptions always say yes, filters_delivery no
    cdef Filters publish_allow             # None: everything
    cdef Filters publish_deny
    cdef SubscribeRules subscribe_allow    # None: everything
    cdef SubscribeRules subscribe_deny
    cdef int64_t responses_max             # answers per request; below 0: any number
    cdef int64_t responses_expires_ns      # below 0: never
    cdef dict replies                      # reply subject → Noted, oldest first
    cdef int64_t noted_since_prune
    cdef int64_t pruned_ns

    cdef bint rules_allow_publish(self, const uint8_t* subject, Py_ssize_t size) noexcept
    cdef bint denies(self, const uint8_t* subject, Py_ssize_t size, const uint8_t* queue, Py_ssize_t queue_size) noexcept
    cdef bint take_reply(self, const uint8_t* subject, Py_ssize_t size, int64_t now_ns) noexcept
    cdef int prune_replies(self, int64_t now_ns) except -1

    # `now_ns` is CLOCK_MONOTONIC everywhere. may_publish reads the clock itself, and only when a noted reply decides.
    cdef bint may_publish(self, const uint8_t* subject, Py_ssize_t size) noexcept
    cdef bint may_publish_at(self, const uint8_t* subject, Py_ssize_t size, int64_t now_ns) noexcept
    # The subject of a subscription may have wildcards; queue_size 0: no queue.
    cdef bint may_subscribe(self, const uint8_t* subject, Py_ssize_t size, const uint8_t* queue, Py_ssize_t queue_size) noexcept
    # Whether each delivery to this subscription needs a check (may_deliver). Found out once, when it is made.
    cdef bint filters_delivery(self, const uint8_t* subject, Py_ssize_t size) noexcept
    cdef bint may_deliver(self, const uint8_t* subject, Py_ssize_t size, const uint8_t* queue, Py_ssize_t queue_size) noexcept
    # A message with this reply was delivered to the connection: it may answer.
    cdef int note_reply(self, const uint8_t* reply, Py_ssize_t size, int64_t now_ns) except -1
