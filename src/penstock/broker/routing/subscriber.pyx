"""Subscriber: who hears messages in compiled code. The router calls `hear` while it reads a socket."""


cdef class Subscriber:
    """The rules: `hear` copies what it wants to keep, works on nothing yet, and says whether the message was heard."""

    cdef bint hear(self, Sub* sub, Client publisher, MessageView* view) except -1:
        raise NotImplementedError(f"{type(self).__name__}.hear")

    cdef int go_on(self) except -1:
        """A client that took no more takes something again."""
        raise NotImplementedError(f"{type(self).__name__}.go_on")
