# Origin: the publisher of a message; listeners: the kinds of subscribers. Which reaches which: docs/publishes.md.

cdef enum:                                 # kinds of listeners
    KIND_CLIENT = 0                        # a client's subscription
    KIND_STREAM = 1                        # a stream that captures the subject
    KIND_SERVICE = 2                       # a service of the server: $JS.API, $SYS
    KIND_ACK = 3                           # from here on a consumer: it receives acks …
    KIND_PULL = 4                          # … pull requests …
    KIND_FLOW = 5                          # … and answers to flow control

cdef enum:                                 # publishers
    ORIGIN_CLIENT = 0                      # a client, also where the server passes its message on
    ORIGIN_DELIVERY = 1                    # a consumer: a message of its stream
    ORIGIN_STATUS = 2                      # a consumer: a status, a heartbeat, a flow control request
    ORIGIN_PUBACK = 3                      # a stream: the answer to a publish
    ORIGIN_ANSWER = 4                      # a service or a consumer: the answer to a request or to an ack
    ORIGIN_DIRECT = 5                      # a stream: the answer to a direct get
    ORIGIN_REPUBLISH = 6                   # a stream: a stored message, on its other subject
    ORIGIN_EVENT = 7                       # the server: advisories, metrics, events of the system account
    ORIGIN_COUNT = 8

cdef bint reaches(int origin, int kind) noexcept nogil
