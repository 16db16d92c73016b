"""Both halves of the parser say to odd bytes what a real nats-server said to them.

The answers: tests/parity/recorded/tables/wire.json, recorded by tests/parity/record.py. A small session stands around
the parser: one client, its own subscriptions, nobody else.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from parity.tables import recorded
from penstock.base.subject import is_valid_subject, matches
from penstock.wire import errors
from penstock.wire import parser as compiled
from penstock.wire.connect import DEFAULTS, BadConnect, decode_connect
from penstock.wire.info import is_info
from twins import parser as reference

CASES: list[dict[str, Any]] = recorded("wire")["cases"]
TOO_LONG = errors.line(errors.CONTROL_LINE_EXCEEDED)

# Where we answer otherwise on purpose (docs/wire.md, "Where we differ"): what is said, and whether that closes.
OURS = {
    "a newline where the arguments begin, PUB": (b"", True),
    "5000 blanks before the arguments": (TOO_LONG, True),
    "PING with a tail of 5000 bytes": (TOO_LONG, True),
    "a size of nine digits": (b"MSG a s 2\r\nhi\r\nPONG\r\n", False),
}

both_halves = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])


class Session:
    """One client's connection: what it sends in, what it hears out."""

    def __init__(self, kernel: ModuleType) -> None:
        self.parse = kernel.parse
        self.connect = DEFAULTS
        self.buffer = b""
        self.said = b""
        self.is_closed = False
        self.subscriptions: dict[bytes, dict[str, Any]] = {}

    def receive(self, data: bytes) -> None:
        self.buffer += data
        while not self.is_closed:
            taken, fields = self.parse(self.buffer, headers_ok=self.connect.headers)
            if fields["op"] == "NONE":
                return
            self.buffer = self.buffer[taken:]
            getattr(self, "_" + fields.pop("op").lower())(**fields)

    def _fault(self, fault: str) -> None:
        text = errors.FAULT_TEXTS[reference.FAULTS.index(fault)]
        self._close(errors.line(text) if text else b"")

    def _close(self, said: bytes = b"") -> None:
        self.said += said
        self.is_closed = True

    def _done(self) -> None:
        if self.connect.verbose:
            self.said += b"+OK\r\n"

    def _connect(self, text: bytes) -> None:
        try:
            self.connect = decode_connect(text, self.connect)
        except BadConnect:
            self._close()
        else:
            self._done()

    def _pub(self, subject: bytes, reply: bytes | None, headers: bytes | None, payload: bytes) -> None:
        if self.connect.pedantic and not is_valid_subject(subject):
            self.said += errors.line(errors.INVALID_PUBLISH_SUBJECT)
        self._done()
        for sid, sub in list(self.subscriptions.items()):
            if matches(subject, sub["subject"]):
                sizes = (len(headers), len(headers) + len(payload)) if headers else (-1, len(payload))
                self.said += compiled.format_msg_line(subject, sid, reply or b"", *sizes)
                self.said += (headers or b"") + payload + b"\r\n"
                sub["heard"] += 1
                if sub["heard"] == sub["max"]:
                    del self.subscriptions[sid]

    def _sub(self, subject: bytes, queue: bytes | None, sid: bytes) -> None:
        self.subscriptions[sid] = {"subject": subject, "max": 0, "heard": 0}
        self._done()

    def _unsub(self, sid: bytes, max_msgs: int) -> None:
        sub = self.subscriptions.get(sid)
        if sub is not None and max_msgs > sub["heard"]:
            sub["max"] = max_msgs
        else:
            self.subscriptions.pop(sid, None)
        self._done()

    def _ping(self) -> None:
        self.said += b"PONG\r\n"

    def _pong(self) -> None: ...

    def _ok(self) -> None: ...

    def _hmsg(self) -> None:
        self._done()

    def _err(self, text: bytes) -> None:
        self._close()

    def _info(self, text: bytes) -> None:
        if not is_info(text):
            self._close()


def write_out(parts: list[Any]) -> bytes:
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in parts).encode("latin-1")


@both_halves
@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_odd_bytes_are_answered_as_the_reference_answers_them(kernel: ModuleType, case: dict[str, Any]) -> None:
    session = Session(kernel)
    session.receive(case["before"].encode())
    before = session.said
    assert before.removesuffix(b"+OK\r\n") == b""
    for write in case["writes"]:
        session.receive(write_out(write))
    recorded = (case["reply"].encode("latin-1"), case["closed"])
    assert (session.said, session.is_closed) == OURS.get(case["case"], recorded)


@both_halves
@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_odd_bytes_one_by_one_are_answered_the_same(kernel: ModuleType, case: dict[str, Any]) -> None:
    whole, split = Session(kernel), Session(kernel)
    data = case["before"].encode() + b"".join(map(write_out, case["writes"]))
    whole.receive(data)
    for at in range(len(data)):
        split.receive(data[at : at + 1])
    assert (split.said, split.is_closed, dict(split.subscriptions)) == (
        whole.said,
        whole.is_closed,
        dict(whole.subscriptions),
    )


def test_every_difference_is_of_a_recorded_case() -> None:
    recorded = {case["case"]: (case["reply"].encode("latin-1"), case["closed"]) for case in CASES}
    for name, ours in OURS.items():
        assert recorded[name] != ours, f"{name}: we no longer differ"
