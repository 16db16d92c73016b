# One command of the NATS protocol at the start of a buffer. Rules: docs/wire.md.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    OP_NONE = 0                            # no whole command yet: more bytes are wanted
    OP_PUB = 1                             # PUB and HPUB
    OP_SUB = 2
    OP_UNSUB = 3
    OP_PING = 4
    OP_PONG = 5
    OP_CONNECT = 6                         # `text` is the JSON
    OP_INFO = 7                            # a client may say INFO; `text` that is no JSON of an INFO closes, without a word
    OP_OK = 8                              # passed over
    OP_ERR = 9                             # closes, without a word
    OP_FAULT = 10                          # `fault` says which
    OP_HMSG = 11                           # passed over, but answered +OK when verbose

cdef enum:
    FAULT_PARSE = 1                        # -ERR 'Unknown Protocol Operation', close
    FAULT_CONTROL_LINE = 2                 # -ERR 'maximum control line exceeded', close
    FAULT_PAYLOAD = 3                      # -ERR 'Maximum Payload Violation', close
    FAULT_ARGUMENTS = 4                    # close without a word

cdef struct Command:
    int op
    int fault
    bint has_headers                       # HPUB
    const uint8_t* subject
    const uint8_t* reply                   # NULL: none
    const uint8_t* queue                   # NULL: none
    const uint8_t* sid
    const uint8_t* headers
    const uint8_t* payload
    const uint8_t* text                    # what follows CONNECT, INFO, -ERR
    uint32_t subject_size
    uint32_t reply_size
    uint32_t queue_size
    uint32_t sid_size
    uint32_t headers_size
    uint32_t payload_size                  # without the headers
    uint32_t text_size
    int64_t max_msgs                       # UNSUB; 0: none given
    Py_ssize_t wanted                      # OP_NONE: the size of the whole command once its line is known, else 0

# Bytes taken (more than 0 for a whole command), 0 for OP_NONE and OP_FAULT. Reads nothing outside data[0:size].
# `max_payload` below 0: no limit. headers_ok: CONNECT said headers; before a CONNECT it is False, as in the reference.
cdef Py_ssize_t parse_command(const uint8_t* data, Py_ssize_t size, Py_ssize_t max_control_line, Py_ssize_t max_payload,
                              bint headers_ok, Command* out) noexcept nogil
