# What stands in a sublist and hears messages in compiled code, at once: consumers hear acks and pull requests.
from penstock.broker.routing.client cimport Client
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.routing.sublist cimport Sub

cdef class Subscriber:
    cdef bint hear(self, Sub* sub, Client publisher, MessageView* view) except -1
    cdef int go_on(self) except -1
