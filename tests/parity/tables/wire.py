"""What nats-server says to odd bytes, and whether it closes the connection.

tests/wire/test_parser_cases.py replays the answers against both halves of the parser. The file has bytes as Latin-1
text; a pair [text, count] is that text so many times.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from support.servers import ServerProcess

CONNECT = 'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
QUIET_S = 0.3  # a server that has said nothing for so long has said all

Part = str | list[Any]  # text, or [text, count]
HEADERS = "NATS/1.0\r\n\r\n"  # 12 bytes
HEARD = CONNECT + "SUB > s\r\n"  # hears every message back

# What comes before, and then the bytes: each list is one write.
QUESTIONS: list[tuple[str, str, list[list[Part]]]] = [
    # Verbs
    ("a byte that begins no verb", CONNECT, [["X"]]),
    ("two bytes that begin no verb", CONNECT, [["XY"]]),
    ("a verb's first byte", CONNECT, [["P"]]),
    ("a verb that goes wrong", CONNECT, [["PX"]]),
    ("a verb without a blank", CONNECT, [["PUBx"]]),
    ("verbs in any case", HEARD, [["pUb a 2\r\nhi\r\nsUb b 1\r\nuNsUb 1\r\nPiNg\r\n"]]),
    ("a control byte that differs from + by one bit", CONNECT, [["\x0bOK\r\n"]]),
    ("a control byte that differs from - by one bit", CONNECT, [["\rERR x\r\n"]]),
    ("an empty line", CONNECT, [["\r\n"]]),
    ("a blank before a verb", CONNECT, [[" PING\r\n"]]),
    ("an empty line after a command", CONNECT, [["PING\r\n\r\n"]]),
    ("MSG from a client", CONNECT, [["MSG a 1 0\r\n\r\n"]]),
    ("a route's verb", CONNECT, [["RS+ a b\r\n"]]),
    ("a leaf node's verb", CONNECT, [["LS+ a b\r\n"]]),
    ("an account's verb", CONNECT, [["A+ a\r\n"]]),
    ("HMSG from a client", HEARD, [["HMSG x\r\n\r\nPING\r\n"]]),
    ("HMSG with a payload", HEARD, [["HMSG a 1 12 14\r\n", HEADERS, "hi\r\nPING\r\n"]]),
    ("HMSG from a verbose client", "CONNECT {}\r\n", [["HMSG x\r\n\r\nPING\r\n"]]),
    # Lines
    ("tabs and a bare newline", HEARD, [["PUB\ta\t\t2\nhi\r\nPING\n"]]),
    ("blanks at the end of a line", HEARD, [["PUB a 2 \t\r\nhi\r\nPING \r\n"]]),
    ("a command in single bytes", HEARD, [[char] for char in "PUB a r 2\r\nhi\r\nPING\r\n"]),
    ("a newline where the arguments begin, PUB", HEARD, [["PUB \na 2\r\nhi\r\nPING\r\n"]]),
    ("a newline where the arguments begin, SUB", CONNECT, [["SUB \na 1\r\nPUB a 0\r\n\r\nPING\r\n"]]),
    ("a newline where the arguments begin, UNSUB", CONNECT, [["SUB a 1\r\nUNSUB \n1\r\nPUB a 0\r\n\r\nPING\r\n"]]),
    ("no arguments, PUB", CONNECT, [["PUB \r\nPING\r\n"]]),
    ("no arguments, SUB", CONNECT, [["SUB \r\nPING\r\n"]]),
    ("no arguments, UNSUB", CONNECT, [["UNSUB \r\nPING\r\n"]]),
    ("no blank, no arguments", CONNECT, [["SUB\r\nPING\r\n"]]),
    ("a carriage return in a subject", HEARD, [["PUB a\rb 12\nx\r\nPING\r\n"]]),
    ("a carriage return at a subject's end", HEARD, [["PUB a\r 12\nx\r\nPING\r\n"]]),
    ("a carriage return among the arguments of SUB", CONNECT, [["SUB a\r7 12\nPUB a 0\r\n\r\nPING\r\n"]]),
    ("two carriage returns", HEARD, [["PUB a 2\r\r\nhi\r\nPING\r\n"]]),
    ("a NUL in a subject", HEARD, [["PUB \x00 0\r\n\r\nPING\r\n"]]),
    ("bytes above 127 in a subject", HEARD, [["PUB \xff\xfe 0\r\n\r\nPING\r\n"]]),
    # PUB
    ("an empty payload", HEARD, [["PUB a 0\r\n\r\nPING\r\n"]]),
    ("a reply", HEARD, [["PUB a r 2\r\nhi\r\nPING\r\n"]]),
    ("a payload with newlines", HEARD, [["PUB a 4\r\n\r\n\r\n\r\nPING\r\n"]]),
    ("a bare newline after a payload", HEARD, [["PUB a 2\r\nhi\nPING\r\n"]]),
    ("a payload longer than its size", HEARD, [["PUB a 2\r\nhi!\r\nPING\r\n"]]),
    ("a payload longer than its size, no more", HEARD, [["PUB a 2\r\nhi!"]]),
    ("a carriage return after a payload, no newline", HEARD, [["PUB a 2\r\nhi\rPING\r\n"]]),
    ("PUB with one argument", CONNECT, [["PUB a\r\nPING\r\n"]]),
    ("PUB with four arguments", CONNECT, [["PUB a b c 0\r\n\r\nPING\r\n"]]),
    ("a negative size", CONNECT, [["PUB a -1\r\n\r\nPING\r\n"]]),
    ("a signed size", CONNECT, [["PUB a +1\r\nx\r\nPING\r\n"]]),
    ("a size that is no number", CONNECT, [["PUB a x\r\n\r\nPING\r\n"]]),
    ("a size with a letter at its end", CONNECT, [["PUB a 1x\r\nx\r\nPING\r\n"]]),
    ("a size of nine digits", HEARD, [["PUB a 000000002\r\nhi\r\nPING\r\n"]]),
    ("a size of ten digits", HEARD, [["PUB a 0000000002\r\nhi\r\nPING\r\n"]]),
    ("a payload of one byte too many", CONNECT, [["PUB a 1048577\r\n"]]),
    ("a payload of one byte too many, no newline yet", CONNECT, [["PUB a 1048577"]]),
    ("a payload as large as can be said", CONNECT, [["PUB a 999999999\r\n"]]),
    ("a payload larger than can be said", CONNECT, [["PUB a 9999999999\r\n"]]),
    ("PUB before CONNECT", "", [["SUB > s\r\nPUB a 2\r\nhi\r\nPING\r\n"]]),
    # HPUB
    ("headers", HEARD, [["HPUB a 12 14\r\n", HEADERS, "hi\r\nPING\r\n"]]),
    ("headers and a reply", HEARD, [["HPUB a r 12 14\r\n", HEADERS, "hi\r\nPING\r\n"]]),
    ("headers alone", HEARD, [["HPUB a 12 12\r\n", HEADERS, "\r\nPING\r\n"]]),
    ("no headers in HPUB", HEARD, [["HPUB a 0 2\r\nhi\r\nPING\r\n"]]),
    ("headers that are none", HEARD, [["HPUB a 2 4\r\nxyhi\r\nPING\r\n"]]),
    ("headers longer than all", CONNECT, [["HPUB a 13 12\r\nPING\r\n"]]),
    ("headers longer than all, all too long", CONNECT, [["HPUB a 1048578 1048577\r\nPING\r\n"]]),
    ("headers and payload of one byte too many", CONNECT, [["HPUB a 12 1048577\r\n"]]),
    ("HPUB with two arguments", CONNECT, [["HPUB a 12\r\nPING\r\n"]]),
    ("HPUB with five arguments", CONNECT, [["HPUB a b c 12 12\r\nPING\r\n"]]),
    ("HPUB with a negative size of headers", CONNECT, [["HPUB a -1 12\r\nPING\r\n"]]),
    ("HPUB before CONNECT", "", [["HPUB a 12 14\r\n", HEADERS, "hi\r\nPING\r\n"]]),
    ("HPUB without headers in CONNECT", "CONNECT {}\r\n", [["HPUB a 12 14\r\n", HEADERS, "hi\r\nPING\r\n"]]),
    # SUB and UNSUB
    ("SUB with a queue", CONNECT, [["SUB  a   q\t 7 \r\nPUB a 0\r\n\r\nPING\r\n"]]),
    ("SUB with one argument", CONNECT, [["SUB a\r\nPING\r\n"]]),
    ("SUB with four arguments", CONNECT, [["SUB a b c d\r\nPING\r\n"]]),
    ("UNSUB", CONNECT, [["SUB a 1\r\nUNSUB 1\r\nPUB a 0\r\n\r\nPING\r\n"]]),
    ("UNSUB after one more", CONNECT, [["SUB a 1\r\nUNSUB 1 1\r\nPUB a 0\r\n\r\nPUB a 1\r\nx\r\nPING\r\n"]]),
    ("UNSUB after none", CONNECT, [["SUB a 1\r\nUNSUB 1 0\r\nPUB a 0\r\n\r\nPING\r\n"]]),
    ("UNSUB after what is no number", CONNECT, [["SUB a 1\r\nUNSUB 1 x\r\nPUB a 0\r\n\r\nPING\r\n"]]),
    ("UNSUB after more than can be said", CONNECT, [["SUB a 1\r\nUNSUB 1 1000000000\r\nPUB a 0\r\n\r\nPING\r\n"]]),
    ("UNSUB of what was never there", CONNECT, [["UNSUB 9\r\nPING\r\n"]]),
    ("UNSUB with three arguments", CONNECT, [["UNSUB 1 2 3\r\nPING\r\n"]]),
    # The others
    ("PING with a tail", CONNECT, [["PINGxyz \r\nPING\n"]]),
    ("PONG, and with a tail", CONNECT, [["PONG\r\nPONGxyz\nPING\r\n"]]),
    ("+OK, and with a tail", CONNECT, [["+OK\r\n+okxyz\nPING\r\n"]]),
    ("-ERR", CONNECT, [["-ERR 'x'\r\nPING\r\n"]]),
    ("-ERR without a blank", CONNECT, [["-ERR\r\nPING\r\n"]]),
    ("-ERR of nothing", CONNECT, [["-ERR \r\nPING\r\n"]]),
    ("INFO", CONNECT, [["INFO {}\r\nINFO null\r\nINFO{}\nPING\r\n"]]),
    ("INFO that is no JSON", CONNECT, [["INFO {\r\nPING\r\n"]]),
    ("INFO with a field of another type", CONNECT, [['INFO {"port":"x"}\r\nPING\r\n']]),
    ("INFO of nothing", CONNECT, [["INFO\r\nPING\r\n"]]),
    ("CONNECT without a blank", "", [["CONNECT{}\nPING\n"]]),
    ("CONNECT with blanks at its end", "", [['CONNECT {"verbose":false}  \r\nPING\r\n']]),
    ("CONNECT with a newline before its text", "", [["CONNECT\n{}\r\nPING\r\n"]]),
    ("CONNECT of nothing", "", [["CONNECT\r\nPING\r\n"]]),
    ("CONNECT with a longer name", "", [["CONNECTED\r\nPING\r\n"]]),
    # The limit of a line
    ("arguments of 4096 bytes", CONNECT, [["PUB ", ["a", 4094], " 0\r\n\r\nPING\r\n"]]),
    ("arguments of 4097 bytes", CONNECT, [["PUB ", ["a", 4095], " 0\r\n\r\nPING\r\n"]]),
    ("4096 bytes without a newline", CONNECT, [["PUB ", ["a", 4096]]]),
    ("4097 bytes without a newline", CONNECT, [["PUB ", ["a", 4097]]]),
    ("4096 bytes and a carriage return", CONNECT, [["PUB ", ["a", 4096], "\r"]]),
    ("a CONNECT that is too long", "", [['CONNECT {"name":"', ["a", 4096], '"}\r\nPING\r\n']]),
    ("an INFO that is too long", CONNECT, [['INFO {"name":"', ["a", 4096], '"}\r\nPING\r\n']]),
    ("an -ERR that is too long", CONNECT, [["-ERR ", ["a", 4097], "\r\nPING\r\n"]]),
    ("4096 blanks before the arguments", HEARD, [["PUB", [" ", 4096], "a 0\r\n\r\nPING\r\n"]]),
    ("5000 blanks before the arguments", HEARD, [["PUB", [" ", 5000], "a 0\r\n\r\nPING\r\n"]]),
    ("PING with a tail of 4096 bytes", CONNECT, [["PING", ["x", 4096], "\nPING\r\n"]]),
    ("PING with a tail of 5000 bytes", CONNECT, [["PING", ["x", 5000], "\nPING\r\n"]]),
]


def write_out(parts: list[Part]) -> bytes:
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in parts).encode("latin-1")


def ask(port: int, before: str, writes: list[list[Part]]) -> tuple[bytes, bool]:
    """What the server says after its INFO, and whether it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as conn:
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reply = b""
        while b"\r\n" not in reply:
            reply += conn.recv(65536)
        reply = reply.partition(b"\r\n")[2]
        for data in (before.encode(), *map(write_out, writes)):
            conn.sendall(data)
            time.sleep(0.005)  # so that each write is a read of its own, over there
        conn.settimeout(QUIET_S)
        while True:
            try:
                said = conn.recv(65536)
            except TimeoutError:
                return reply, False
            except ConnectionResetError:
                return reply, True
            if not said:
                return reply, True
            reply += said


def record() -> dict[str, Any]:
    cases = []
    with ServerProcess("real", "", ["-a", "127.0.0.1", "-p", "-1"]) as server:
        for name, before, writes in QUESTIONS:
            reply, closed = ask(server.port, before, writes)
            case = {"case": name, "before": before, "writes": writes, "reply": reply.decode("latin-1")}
            cases.append(case | {"closed": closed})
    return {"server": "2.15.1", "cases": cases}
