"""Origin: the publisher of a message, and the listeners that it reaches. Rules and reasons: docs/publishes.md.

What the server publishes by itself often goes to a subject that a client chose: the reply of a request, a consumer's deliver
subject. It must not become a command there, whatever the subject: the client may not be allowed to give that command.
"""
from enum import IntEnum

from libc.stdint cimport uint32_t


class Listener(IntEnum):
    """The kinds of subscribers."""

    CLIENT = KIND_CLIENT
    STREAM = KIND_STREAM
    SERVICE = KIND_SERVICE
    ACK = KIND_ACK
    PULL = KIND_PULL
    FLOW = KIND_FLOW


class Origin(IntEnum):
    """The kinds of publishers."""

    CLIENT = ORIGIN_CLIENT
    DELIVERY = ORIGIN_DELIVERY
    STATUS = ORIGIN_STATUS
    PUBACK = ORIGIN_PUBACK
    ANSWER = ORIGIN_ANSWER
    DIRECT = ORIGIN_DIRECT
    REPUBLISH = ORIGIN_REPUBLISH
    EVENT = ORIGIN_EVENT


# The delivery rule: an origin reaches these listeners and no others.
_DATA = frozenset({Listener.CLIENT, Listener.STREAM})
REACHES = {
    Origin.CLIENT: frozenset(Listener),
    Origin.DELIVERY: _DATA,
    Origin.STATUS: _DATA,
    Origin.PUBACK: _DATA,
    Origin.ANSWER: _DATA,
    Origin.DIRECT: _DATA,
    Origin.REPUBLISH: _DATA,
    Origin.EVENT: _DATA,
}

cdef uint32_t _reached[ORIGIN_COUNT]       # the same as bits, by origin
for _origin in Origin:
    _reached[<int>_origin] = sum(1 << <int>_listener for _listener in REACHES[_origin])


cdef bint reaches(int origin, int kind) noexcept nogil:
    """Whether what `origin` publishes is delivered to a listener of this kind."""
    return _reached[origin] >> kind & 1
