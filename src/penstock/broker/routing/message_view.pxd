# A message on its way to its subscribers.
from libc.stdint cimport uint8_t, uint32_t

cdef struct MessageView:
    const uint8_t* subject
    const uint8_t* reply
    const uint8_t* headers
    const uint8_t* payload
    uint32_t subject_size
    uint32_t reply_size
    uint32_t headers_size
    uint32_t payload_size
    uint32_t tail_size                     # what follows the sid in the line of a MSG or HMSG; 0: not made yet
    int origin                             # the publisher, one of ORIGIN_… in origin.pxd; set when it is routed
    uint32_t plain_tail_size               # the same for clients without headers
    bint copies                            # its bytes do not last until the end of the turn
