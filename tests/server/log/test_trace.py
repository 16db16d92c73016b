"""Trace: commands in both directions as lines, whatever the pieces in which they come."""

from __future__ import annotations

import pytest

from penstock.server.log.trace import LINE_SIZE_MAX, Tracer

SESSION = (
    b'CONNECT {"verbose":false,"user":"u","pass":"sec\\"ret","auth_token": "tok","name":"me"}\r\n'
    b'PING\r\nSUB foo q 1\r\nPUB foo 5\r\nhe"\x01o\r\nHPUB bar 12 17\r\nNATS/1.0\r\n\r\nhello\r\n'
    b"UNSUB 1 5\nPUB foo rep 0\r\n\r\n-ERR 'Unknown Protocol Operation'\r\n+OK\r\nINFO {}\r\nPUB a 2\r\n\xff\xc3\r\n"
)
# As nats-server 2.15.1 writes them.
LINES = [
    '<<- [CONNECT {"verbose":false,"user":"u","pass":"[REDACTED]","auth_token": "[REDACTED]","name":"me"}]',
    "<<- [PING]",
    "<<- [SUB foo q 1]",
    "<<- [PUB foo 5]",
    '<<- MSG_PAYLOAD: ["he\\"\\x01o"]',
    "<<- [HPUB bar 12 17]",
    '<<- MSG_PAYLOAD: ["NATS/1.0\\r\\n\\r\\nhello"]',
    "<<- [UNSUB 1 5]",
    "<<- [PUB foo rep 0]",
    "<<- [-ERR Unknown Protocol Operation]",
    "<<- [OK]",
    "<<- [PUB a 2]",
    '<<- MSG_PAYLOAD: ["\\xff\\xc3"]',
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_commands_are_lines_in_any_pieces(size: int) -> None:
    told: list[str] = []
    tracer = Tracer("<<-", told.append, 0)
    for start in range(0, len(SESSION), size):
        tracer.take(SESSION[start : start + size])
    assert told == LINES


def test_a_payload_is_shown_as_far_as_asked_for() -> None:
    told: list[str] = []
    tracer = Tracer("->>", told.append, 3)
    tracer.take(b"MSG a 1 5\r\nhe")
    tracer.take(b"llo\r\nMSG a 1 3\r\nabc\r\n")
    assert told == ["->> [MSG a 1 5]", '->> MSG_PAYLOAD: ["hel..."]', "->> [MSG a 1 3]", '->> MSG_PAYLOAD: ["abc"]']


def test_a_line_without_end_is_given_up() -> None:
    told: list[str] = []
    tracer = Tracer("<<-", told.append, 0)
    for _ in range(100):
        tracer.take(b"x" * LINE_SIZE_MAX)
    tracer.take(b"\r\nPING\r\n")
    assert told == []
