"""One command of the NATS protocol at the start of a buffer.

Stateless: the caller keeps the bytes that were not taken and asks again once it has more. Grammar, limits and what is
tolerated: docs/wire.md, which is the readable twin's (tests/twins/parser.py) source too.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr

from penstock.wire.frame cimport msg_line_size_max, write_msg_line

OPS = ("NONE", "PUB", "SUB", "UNSUB", "PING", "PONG", "CONNECT", "INFO", "OK", "ERR", "FAULT", "HMSG")
FAULTS = (None, "PARSE", "CONTROL_LINE", "PAYLOAD", "ARGUMENTS")

cdef enum:
    TOKENS_MAX = 5                         # one more than the longest command has

cdef struct Token:
    Py_ssize_t start
    Py_ssize_t size


cdef inline Py_ssize_t fault(Command* out, int which) noexcept nogil:
    out.op = OP_FAULT
    out.fault = which
    return 0


cdef inline Py_ssize_t more(Command* out, Py_ssize_t wanted) noexcept nogil:
    out.op = OP_NONE
    out.wanted = wanted
    return 0


cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    return byte == c" " or byte == c"\t"


cdef inline Py_ssize_t verb(const uint8_t* data, Py_ssize_t size, const char* name, Py_ssize_t name_size,
                            Command* out) noexcept nogil:
    """`name_size` where the buffer begins with `name` in any case; else 0, and `out` says whether that may still come."""
    cdef Py_ssize_t at
    for at in range(name_size):
        if at >= size:
            return more(out, 0)
        # Only letters and their capitals fall together here: `name` has no byte below 0x40 but '+' and '-', which are
        # first and which the caller has compared.
        if at > 0 and (data[at] | 0x20) != <uint8_t>name[at]:
            return fault(out, FAULT_PARSE)
    return name_size


cdef inline Py_ssize_t skip_blanks(const uint8_t* data, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    while start < size and is_blank(data[start]):
        start += 1
    return start


cdef Py_ssize_t find_line(const uint8_t* data, Py_ssize_t start, Py_ssize_t size, Py_ssize_t max_control_line,
                          Py_ssize_t* stop, Command* out) noexcept nogil:
    """Offset past the newline of the arguments that begin at `start`, and where they stop; 0 and `out` where none is.

    The first byte is an argument whatever it is. A carriage return anywhere after it costs the arguments their last
    byte, which in a well-formed line is that carriage return.
    """
    cdef const uint8_t* newline = NULL
    cdef Py_ssize_t end
    if start + 1 < size:
        newline = <const uint8_t*>memchr(data + start + 1, c"\n", size - start - 1)
    end = newline - data if newline != NULL else size
    stop[0] = end
    if end > start + 1 and (data[end - 1] == c"\r" or memchr(data + start + 1, c"\r", end - start - 1) != NULL):
        stop[0] = end - 1
    if stop[0] - start > max_control_line:
        return fault(out, FAULT_CONTROL_LINE)
    if newline == NULL:
        return more(out, 0)
    return end + 1


cdef inline int split(const uint8_t* data, Py_ssize_t start, Py_ssize_t stop, bint at_newlines, int count_max,
                      Token* tokens) noexcept nogil:
    """How many tokens stand in data[start:stop], at most `count_max`, which the caller chooses as one too many."""
    cdef int count = 0
    cdef uint8_t byte
    cdef Py_ssize_t begin
    while True:
        while start < stop:
            byte = data[start]
            if not (byte == c" " or byte == c"\t" or (at_newlines and (byte == c"\r" or byte == c"\n"))):
                break
            start += 1
        if start == stop:
            return count
        begin = start
        while start < stop:
            byte = data[start]
            if byte <= 32 and (byte == c" " or byte == c"\t" or (at_newlines and (byte == c"\r" or byte == c"\n"))):
                break
            start += 1
        tokens[count].start = begin
        tokens[count].size = start - begin
        count += 1
        if count == count_max:
            return count


cdef inline int64_t read_size(const uint8_t* data, Token token) noexcept nogil:
    """A size in at most nine decimal digits; -1 for anything else."""
    cdef int64_t value = 0
    cdef Py_ssize_t at
    cdef uint8_t digit
    if token.size > 9:
        return -1
    for at in range(token.start, token.start + token.size):
        digit = data[at] - 48
        if digit > 9:
            return -1
        value = value * 10 + digit
    return value


cdef inline Py_ssize_t parse_payload(const uint8_t* data, Py_ssize_t size, Py_ssize_t start, Py_ssize_t payload_size,
                                     Command* out) noexcept nogil:
    """Offset past the payload that begins at `start` and its CRLF."""
    cdef Py_ssize_t stop = start + payload_size
    if size > stop and data[stop] != c"\r":
        return fault(out, FAULT_PARSE)
    if size > stop + 1:
        if data[stop + 1] != c"\n":
            return fault(out, FAULT_PARSE)
        return stop + 2
    return more(out, stop + 2)


cdef Py_ssize_t parse_pub(const uint8_t* data, Py_ssize_t size, Py_ssize_t at, bint has_headers,
                          Py_ssize_t max_control_line, Py_ssize_t max_payload, bint headers_ok,
                          Command* out) noexcept nogil:
    cdef Token tokens[TOKENS_MAX]
    cdef Py_ssize_t stop, line_end, taken
    cdef int64_t headers_size = 0, total
    cdef int extra = 1 if has_headers else 0, count
    line_end = find_line(data, at, size, max_control_line, &stop, out)
    if line_end == 0:
        return 0
    if has_headers and not headers_ok:
        return fault(out, FAULT_ARGUMENTS)
    count = split(data, at, stop, False, 4 + extra, tokens) - extra
    if count != 2 and count != 3:
        return fault(out, FAULT_ARGUMENTS)
    total = read_size(data, tokens[count - 1 + extra])
    if has_headers:
        headers_size = read_size(data, tokens[count - 1])
    if total < 0 or headers_size < 0 or headers_size > total or data[tokens[0].start] == c"\n":
        return fault(out, FAULT_ARGUMENTS)
    if max_payload >= 0 and total > max_payload:
        return fault(out, FAULT_PAYLOAD)
    taken = parse_payload(data, size, line_end, <Py_ssize_t>total, out)
    if taken == 0:
        return 0
    out.op = OP_PUB
    out.has_headers = has_headers
    out.subject = data + tokens[0].start
    out.subject_size = <uint32_t>tokens[0].size
    out.reply = NULL
    out.reply_size = 0
    if count == 3:
        out.reply = data + tokens[1].start
        out.reply_size = <uint32_t>tokens[1].size
    out.headers = data + line_end if has_headers else NULL
    out.headers_size = <uint32_t>headers_size
    out.payload = data + line_end + headers_size
    out.payload_size = <uint32_t>(total - headers_size)
    return taken


cdef Py_ssize_t parse_sub(const uint8_t* data, Py_ssize_t at, Py_ssize_t stop, Command* out) noexcept nogil:
    cdef Token tokens[TOKENS_MAX]
    cdef int count = split(data, at, stop, True, 4, tokens)
    if count != 2 and count != 3:
        return fault(out, FAULT_ARGUMENTS)
    out.op = OP_SUB
    out.subject = data + tokens[0].start
    out.subject_size = <uint32_t>tokens[0].size
    out.queue = NULL
    out.queue_size = 0
    if count == 3:
        out.queue = data + tokens[1].start
        out.queue_size = <uint32_t>tokens[1].size
    out.sid = data + tokens[count - 1].start
    out.sid_size = <uint32_t>tokens[count - 1].size
    return 1


cdef Py_ssize_t parse_unsub(const uint8_t* data, Py_ssize_t at, Py_ssize_t stop, Command* out) noexcept nogil:
    cdef Token tokens[TOKENS_MAX]
    cdef int count = split(data, at, stop, True, 3, tokens)
    if count != 1 and count != 2:
        return fault(out, FAULT_ARGUMENTS)
    out.op = OP_UNSUB
    out.sid = data + tokens[0].start
    out.sid_size = <uint32_t>tokens[0].size
    out.max_msgs = 0
    if count == 2:
        out.max_msgs = max(read_size(data, tokens[1]), <int64_t>0)   # what is no number counts as none
    return 1


cdef Py_ssize_t parse_tail(const uint8_t* data, Py_ssize_t size, Py_ssize_t at, Py_ssize_t max_control_line, int op,
                           Command* out) noexcept nogil:
    """PING, PONG and +OK: whatever follows up to the newline is passed over."""
    cdef const uint8_t* newline = NULL
    if at < size:
        newline = <const uint8_t*>memchr(data + at, c"\n", size - at)
    if (newline - (data + at) if newline != NULL else size - at) > max_control_line:
        return fault(out, FAULT_CONTROL_LINE)
    if newline == NULL:
        return more(out, 0)
    out.op = op
    return newline - data + 1


cdef Py_ssize_t parse_line(const uint8_t* data, Py_ssize_t size, Py_ssize_t at, Py_ssize_t max_control_line, int op,
                           bint needs_blank, Command* out) noexcept nogil:
    """The commands whose line is all there is (and HMSG, which has an empty payload): blanks, arguments, newline."""
    cdef Py_ssize_t start, stop, line_end
    start = skip_arguments(data, size, at, max_control_line, needs_blank, out)
    if start == 0:
        return 0
    line_end = find_line(data, start, size, max_control_line, &stop, out)
    if line_end == 0:
        return 0
    if op == OP_SUB:
        return line_end if parse_sub(data, start, stop, out) else 0
    if op == OP_UNSUB:
        return line_end if parse_unsub(data, start, stop, out) else 0
    if op == OP_HMSG:
        line_end = parse_payload(data, size, line_end, 0, out)
        if line_end == 0:
            return 0
    out.op = op
    out.text = data + start
    out.text_size = <uint32_t>(stop - start)
    return line_end


cdef inline Py_ssize_t skip_arguments(const uint8_t* data, Py_ssize_t size, Py_ssize_t at, Py_ssize_t max_control_line,
                                      bint needs_blank, Command* out) noexcept nogil:
    """Where the arguments after the verb that ends at `at` begin."""
    cdef Py_ssize_t start
    if at >= size:
        return more(out, 0)
    if needs_blank and not is_blank(data[at]):
        return fault(out, FAULT_PARSE)
    start = skip_blanks(data, at, size)
    if start - at > max_control_line:
        return fault(out, FAULT_CONTROL_LINE)
    if start == size:
        return more(out, 0)
    return start


cdef Py_ssize_t parse_command(const uint8_t* data, Py_ssize_t size, Py_ssize_t max_control_line, Py_ssize_t max_payload,
                              bint headers_ok, Command* out) noexcept nogil:
    cdef Py_ssize_t at
    cdef uint8_t first, second
    cdef bint has_headers = False
    if size <= 0:
        return more(out, 0)
    first = data[0]
    if first == c"+":
        at = verb(data, size, b"+ok", 3, out)
        return parse_tail(data, size, at, max_control_line, OP_OK, out) if at else 0
    if first == c"-":
        at = verb(data, size, b"-err", 4, out)
        return parse_line(data, size, at, max_control_line, OP_ERR, True, out) if at else 0
    first |= 0x20
    second = data[1] | 0x20 if size > 1 else 0
    if first == c"p":
        if second == c"i":
            at = verb(data, size, b"ping", 4, out)
            return parse_tail(data, size, at, max_control_line, OP_PING, out) if at else 0
        if second == c"o":
            at = verb(data, size, b"pong", 4, out)
            return parse_tail(data, size, at, max_control_line, OP_PONG, out) if at else 0
        at = verb(data, size, b"pub", 3, out)
    elif first == c"h":
        if second == c"m":
            at = verb(data, size, b"hmsg", 4, out)
            return parse_line(data, size, at, max_control_line, OP_HMSG, True, out) if at else 0
        at = verb(data, size, b"hpub", 4, out)
        has_headers = True
    elif first == c"s":
        at = verb(data, size, b"sub", 3, out)
        return parse_line(data, size, at, max_control_line, OP_SUB, True, out) if at else 0
    elif first == c"u":
        at = verb(data, size, b"unsub", 5, out)
        return parse_line(data, size, at, max_control_line, OP_UNSUB, True, out) if at else 0
    elif first == c"c":
        at = verb(data, size, b"connect", 7, out)
        return parse_line(data, size, at, max_control_line, OP_CONNECT, False, out) if at else 0
    elif first == c"i":
        at = verb(data, size, b"info", 4, out)
        return parse_line(data, size, at, max_control_line, OP_INFO, False, out) if at else 0
    else:
        return fault(out, FAULT_PARSE)
    if at == 0:
        return 0
    at = skip_arguments(data, size, at, max_control_line, True, out)
    if at == 0:
        return 0
    return parse_pub(data, size, at, has_headers, max_control_line, max_payload, headers_ok, out)


cdef object text_of(const uint8_t* data, uint32_t size):
    return None if data == NULL else (<const char*>data)[:size]


def parse(bytes data, Py_ssize_t max_control_line=4096, Py_ssize_t max_payload=1048576, bint headers_ok=True):
    """The first command of `data`: how many bytes it takes, and its fields by name."""
    cdef Command command
    cdef Py_ssize_t taken = parse_command(<const uint8_t*><const char*>data, len(data), max_control_line, max_payload,
                                          headers_ok, &command)
    fields = {"op": OPS[command.op]}
    if command.op == OP_NONE:
        fields["wanted"] = command.wanted
    elif command.op == OP_FAULT:
        fields["fault"] = FAULTS[command.fault]
    elif command.op == OP_PUB:
        fields["subject"] = text_of(command.subject, command.subject_size)
        fields["reply"] = text_of(command.reply, command.reply_size)
        fields["headers"] = text_of(command.headers, command.headers_size) if command.has_headers else None
        fields["payload"] = text_of(command.payload, command.payload_size)
    elif command.op == OP_SUB:
        fields["subject"] = text_of(command.subject, command.subject_size)
        fields["queue"] = text_of(command.queue, command.queue_size)
        fields["sid"] = text_of(command.sid, command.sid_size)
    elif command.op == OP_UNSUB:
        fields["sid"] = text_of(command.sid, command.sid_size)
        fields["max_msgs"] = command.max_msgs
    elif command.op == OP_CONNECT or command.op == OP_INFO or command.op == OP_ERR:
        fields["text"] = text_of(command.text, command.text_size)
    return taken, fields


def format_msg_line(bytes subject, bytes sid, bytes reply, int64_t headers_size, uint64_t total):
    """The line before a message: HMSG where `headers_size` is 0 or more. Empty `reply`: none."""
    line = bytearray(msg_line_size_max(len(subject), len(sid), len(reply)))
    cdef uint8_t* out = <uint8_t*><char*>line
    cdef Py_ssize_t size = write_msg_line(
        out, <const uint8_t*><const char*>subject, len(subject), <const uint8_t*><const char*>sid, len(sid),
        <const uint8_t*><const char*>reply, len(reply), headers_size, total)
    return bytes(line[:size])
