"""Subscriber: receives messages in compiled code. The router calls `receive` while it reads a socket."""


cdef class Subscriber:
    """The interface of a compiled subscriber; consumers/session.pyx implements it.

    Always true: `receive` copies what it wants to keep, and does no work yet: the socket is still being read.
    """

    cdef bint receive(self, Sub* sub, Client publisher, MessageView* view) except -1:
        """Take a message: whether it counts as received."""
        raise NotImplementedError(f"{type(self).__name__}.receive")

    cdef int resume(self) except -1:
        """A client whose unread messages held this subscriber back is drained."""
        raise NotImplementedError(f"{type(self).__name__}.resume")
