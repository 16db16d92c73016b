"""Lines that chance wrote: verbs, odd arguments, cuts and bytes in between; the same for both servers by their seed."""

from __future__ import annotations

import random

from parity.catalog import add
from parity.script import Script
from support.servers import BASE

GROUP = "random_protocol"
SEEDS = 150
SUBJECTS = [
    "r.a",
    "r.*",
    "r.>",
    "r",
    "r..a",
    "r.a.",
    ".r",
    "*",
    "r.a b",
    "r.é",
    "r.a\t",
    "R.A",
    "r.*.c",
    "r.b*",
    "r.>.x",
    "",
]
SIDS = ["1", "2", "abc", "", "1 2", "-1", "99999999999999999999"]
REPLIES = ["", "", "r.b", "$JS.ACK.x", "_R_.x", "r.*", "reply"]
NUMBERS = ["0", "1", "2", "3", "-1", "x", "", "02", "1e1", "99999999999", "+1", "2 ", " 1"]
OPTIONS = [
    '{"verbose":false}',
    '{"verbose":true}',
    '{"verbose":false,"pedantic":true}',
    '{"verbose":false,"headers":true}',
    '{"verbose":false,"headers":true,"no_responders":true}',
    '{"verbose":true,"pedantic":true,"echo":false}',
    "{}",
]


def payload(r: random.Random) -> str:
    return r.choice(["", "a", "ab", "a\r\nb", "\r\n", "PING\r\n", "é", "x" * 300])


def queue(r: random.Random) -> str:
    """Mostly none; a group has one member, since which of several hears is chance."""
    return r.choice(["", "", "", "_sys_", f"q{r.randrange(10**9)}", f"q.{r.randrange(10**9)}*"])


def headers(r: random.Random) -> str:
    return r.choice(
        ["NATS/1.0\r\n\r\n", "NATS/1.0\r\nA: 1\r\n\r\n", "NATS/1.0 503\r\n\r\n", "A: 1\r\n\r\n", "NATS/1.0\r\nA:\r\n"]
    )


def line(r: random.Random) -> bytes:
    """One line and its payload, mostly right."""
    subject = r.choice(SUBJECTS[: r.choice([1, 3, len(SUBJECTS)])])
    kind = r.randrange(12)
    if kind < 4:
        body = payload(r)
        size = str(len(body.encode())) if r.random() < 0.9 else r.choice(NUMBERS)
        return f"PUB {subject} {r.choice(REPLIES)} {size}\r\n{body}\r\n".encode()
    if kind < 6:
        head, body = headers(r), payload(r)
        sizes = f"{len(head.encode())} {len((head + body).encode())}"
        if r.random() < 0.1:
            sizes = f"{r.choice(NUMBERS)} {r.choice(NUMBERS)}"
        return f"HPUB {subject} {r.choice(REPLIES)} {sizes}\r\n{head}{body}\r\n".encode()
    if kind < 9:
        return f"SUB {subject} {queue(r)} {r.choice(SIDS[: r.choice([2, len(SIDS)])])}\r\n".encode()
    if kind == 9:
        return f"UNSUB {r.choice(SIDS[:3])} {r.choice(['', '', *NUMBERS])}\r\n".encode()
    if kind == 10:
        return r.choice([b"PING\r\n", b"PONG\r\n", b"ping\r\n", b"\r\n", b"+OK\r\n", b"INFO {}\r\n"])
    return f"CONNECT {r.choice(OPTIONS)}\r\n".encode()


def damaged(r: random.Random, data: bytes) -> bytes:
    """Sometimes a byte is changed, taken out or put in."""
    if r.random() < 0.6 or not data:
        return data
    at = r.randrange(len(data))
    what = r.randrange(4)
    if what == 0:
        return data[:at] + bytes([r.randrange(256)]) + data[at + 1 :]
    if what == 1:
        return data[:at] + data[at + 1 :]
    if what == 2:
        return data[:at] + r.choice([b" ", b"\t", b"\n", b"\r", b"\x00", b"."]) + data[at:]
    return data.replace(b"\r\n", b"\n", 1)


def conversation(seed: int) -> object:
    def run(s: Script) -> None:
        r = random.Random(seed)
        c = s.open()
        c.send(f"CONNECT {r.choice(OPTIONS)}\r\n")
        for _ in range(r.randrange(1, 4)):
            lines = [line(r) for _ in range(r.randrange(1, 6))]
            lines[r.randrange(len(lines))] = damaged(r, lines[r.randrange(len(lines))])
            # nats-server says this twice where a read ends in the middle of the message
            c.tell(b"".join(lines), is_sorted=True, leave_out=b"Invalid Publish Subject")
            if c.is_closed:
                break

    return run


for seed in range(SEEDS):
    add(GROUP, f"seed {seed}", conversation(seed), config=BASE)
