from enum import IntEnum

class Listener(IntEnum):
    """The kinds of subscribers."""

    CLIENT = 0
    STREAM = 1
    SERVICE = 2
    ACK = 3
    PULL = 4
    FLOW = 5

class Origin(IntEnum):
    """The kinds of publishers."""

    CLIENT = 0
    DELIVERY = 1
    STATUS = 2
    PUBACK = 3
    ANSWER = 4
    DIRECT = 5
    REPUBLISH = 6
    EVENT = 7

REACHES: dict[Origin, frozenset[Listener]]
