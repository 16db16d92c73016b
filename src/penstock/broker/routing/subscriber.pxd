# Subscriber: receives messages in compiled code while the router reads a socket. Consumers receive acks and pull requests so.
from penstock.broker.routing.client cimport Client
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.routing.sublist cimport Sub

cdef class Subscriber:
    cdef bint receive(self, Sub* sub, Client publisher, MessageView* view) except -1
    cdef int resume(self) except -1
