# What stands in a sublist and hears messages in compiled code, at once: consumers hear acks and pull requests.
from penstock.kernel.client cimport Client
from penstock.kernel.letter cimport Letter
from penstock.kernel.sublist cimport Sub

cdef class Hearer:
    cdef bint hear(self, Sub* sub, Client publisher, Letter* letter) except -1
    cdef int go_on(self) except -1
