"""The parser of the NATS protocol in plain Python: the readable twin of wire/parser.pyx. Rules: docs/wire.md.

A command is a verb, blanks, arguments and a newline; PUB and HPUB have a payload and a CRLF after it. What is wrong is
said as soon as a byte shows it, so a fault needs no newline; what is not yet decided is "NONE".
"""

from __future__ import annotations

import re
from typing import Any

OPS = ("NONE", "PUB", "SUB", "UNSUB", "PING", "PONG", "CONNECT", "INFO", "OK", "ERR", "FAULT", "HMSG")
FAULTS = (None, "PARSE", "CONTROL_LINE", "PAYLOAD", "ARGUMENTS")

_OP_OF = {
    b"PUB": "PUB",
    b"HPUB": "PUB",
    b"HMSG": "HMSG",
    b"SUB": "SUB",
    b"UNSUB": "UNSUB",
    b"PING": "PING",
    b"PONG": "PONG",
    b"CONNECT": "CONNECT",
    b"INFO": "INFO",
    b"+OK": "OK",
    b"-ERR": "ERR",
}
_WITHOUT_ARGUMENTS = (b"PING", b"PONG", b"+OK")  # what follows them, up to the newline, is passed over
_WITHOUT_BLANK = (b"CONNECT", b"INFO")  # their text may follow at once
_BLANKS = b" \t"

Fields = dict[str, Any]


class _Fault(Exception):
    """The bytes are wrong; the argument says which fault."""


class _More(Exception):
    """Not yet decided; the argument is the size of the whole command, or 0 where that is not yet known."""


def parse(
    data: bytes, max_control_line: int = 4096, max_payload: int = 1048576, headers_ok: bool = True
) -> tuple[int, Fields]:
    """The first command of `data`: how many bytes it takes, and its fields by name."""
    try:
        return _command(data, max_control_line, max_payload, headers_ok)
    except _Fault as fault:
        return 0, {"op": "FAULT", "fault": fault.args[0]}
    except _More as more:
        return 0, {"op": "NONE", "wanted": more.args[0]}


def _command(data: bytes, max_control_line: int, max_payload: int, headers_ok: bool) -> tuple[int, Fields]:
    verb = _verb(data)
    op = _OP_OF[verb]
    if verb in _WITHOUT_ARGUMENTS:
        tail, newline, _ = data[len(verb) :].partition(b"\n")
        _check_line(len(tail), max_control_line, is_whole=newline != b"")
        return len(verb) + len(tail) + 1, {"op": op}
    start = _arguments_start(data, verb, max_control_line)
    arguments, line_end = _arguments(data, start, max_control_line)
    if op == "PUB":
        return _pub(data, arguments, line_end, verb == b"HPUB", max_payload, headers_ok)
    if op == "SUB":
        return line_end, _sub(arguments)
    if op == "UNSUB":
        return line_end, _unsub(arguments)
    if op == "HMSG":  # the server's to say; from a client it is an empty message to nobody
        return _payload_end(data, line_end, 0), {"op": op}
    return line_end, {"op": op, "text": arguments}


def _verb(data: bytes) -> bytes:
    for verb in _OP_OF:
        if data[: len(verb)].upper() == verb:
            return verb
    if any(verb.startswith(data.upper()) for verb in _OP_OF):
        raise _More(0)
    raise _Fault("PARSE")


def _arguments_start(data: bytes, verb: bytes, max_control_line: int) -> int:
    rest = data[len(verb) :]
    blanks = len(rest) - len(rest.lstrip(_BLANKS))
    if rest and not blanks and verb not in _WITHOUT_BLANK:
        raise _Fault("PARSE")
    _check_line(blanks, max_control_line, is_whole=blanks < len(rest))
    return len(verb) + blanks


def _arguments(data: bytes, start: int, max_control_line: int) -> tuple[bytes, int]:
    """The arguments that begin at `start`, and the offset past their newline.

    The first byte is an argument, also where it is a newline or a carriage return. A carriage return anywhere after it
    costs the arguments their last byte; in a well-formed line that is the carriage return itself.
    """
    newline = data.find(b"\n", start + 1)
    line = data[start:newline] if newline >= 0 else data[start:]
    arguments = line[:-1] if b"\r" in line[1:] else line
    _check_line(len(arguments), max_control_line, is_whole=newline >= 0)
    return arguments, newline + 1


def _check_line(size: int, max_control_line: int, is_whole: bool) -> None:
    if size > max_control_line:
        raise _Fault("CONTROL_LINE")
    if not is_whole:
        raise _More(0)


def _pub(
    data: bytes, arguments: bytes, line_end: int, has_headers: bool, max_payload: int, headers_ok: bool
) -> tuple[int, Fields]:
    if has_headers and not headers_ok:
        raise _Fault("ARGUMENTS")
    # Only blanks part them, so a carriage return may stand in a subject. A newline may not: it would end the line that
    # the subscribers read.
    tokens = [token for token in re.split(rb"[ \t]", arguments) if token]
    sizes = 2 if has_headers else 1
    if len(tokens) - sizes not in (1, 2) or b"\n" in arguments:
        raise _Fault("ARGUMENTS")
    total = _size(tokens[-1])
    headers_size = _size(tokens[-2]) if has_headers else 0
    if headers_size < 0 or headers_size > total:
        raise _Fault("ARGUMENTS")
    if 0 <= max_payload < total:
        raise _Fault("PAYLOAD")
    end = _payload_end(data, line_end, total)
    body = data[line_end : line_end + total]
    return end, {
        "op": "PUB",
        "subject": tokens[0],
        "reply": tokens[1] if len(tokens) - sizes == 2 else None,
        "headers": body[:headers_size] if has_headers else None,
        "payload": body[headers_size:],
    }


def _sub(arguments: bytes) -> Fields:
    tokens = _tokens(arguments)
    if len(tokens) not in (2, 3):
        raise _Fault("ARGUMENTS")
    return {"op": "SUB", "subject": tokens[0], "queue": tokens[1] if len(tokens) == 3 else None, "sid": tokens[-1]}


def _unsub(arguments: bytes) -> Fields:
    tokens = _tokens(arguments)
    if len(tokens) not in (1, 2):
        raise _Fault("ARGUMENTS")
    # What is no number counts as none.
    return {"op": "UNSUB", "sid": tokens[0], "max_msgs": max(_size(tokens[1]), 0) if len(tokens) == 2 else 0}


def _tokens(arguments: bytes) -> list[bytes]:
    return [token for token in re.split(rb"[ \t\r\n]", arguments) if token]


def _size(token: bytes) -> int:
    """A size in at most nine decimal digits; -1 for anything else."""
    return int(token) if re.fullmatch(rb"[0-9]{1,9}", token) else -1


def _payload_end(data: bytes, start: int, size: int) -> int:
    """Offset past the payload that begins at `start` and its CRLF."""
    stop = start + size
    end = data[stop : stop + 2]
    if not b"\r\n".startswith(end):
        raise _Fault("PARSE")
    if len(end) < 2:
        raise _More(stop + 2)
    return stop + 2
