"""Many publishes in one write, with headers that chance chose: acks, their order, and what is stored in the end."""

from __future__ import annotations

import random
from typing import Any

from parity.cases.random_streams import TOKENS, config, header_lines
from parity.catalog import add
from parity.script import Script, header_block

GROUP = "random_pipelines"
SEEDS = 60


def publishes(r: random.Random, count: int) -> bytes:
    """`count` frames; every one has a reply but for a few."""
    out = []
    plain = r.random()
    for n in range(count):
        body = b"x" * r.choice([0, 1, 2, 5, 10, 11, 30])
        subject = f"t.{r.choice(TOKENS)}" if r.random() < 0.95 else "elsewhere"
        reply = f"acks.{n}" if r.random() < 0.95 else ""
        lines = None if r.random() < plain else header_lines(r)
        if lines is None:
            out.append(f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n")
        else:
            head = header_block(lines)
            sizes = f"{len(head)} {len(head) + len(body)}"
            out.append(f"HPUB {subject} {reply} {sizes}\r\n".encode() + head + body + b"\r\n")
    return b"".join(out)


def conversation(seed: int) -> object:
    def run(s: Script) -> None:
        r = random.Random(seed)
        c = s.connect()
        changes: dict[str, Any] = config(r)
        if "error" in c.api("STREAM.CREATE.T", changes):
            c.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"], "allow_direct": True})
        c.sub("acks.*", "acks")
        for n in range(3):
            data = publishes(r, r.choice([5, 40, 120]))
            # One more publish at the end: once it is acknowledged, all before it are.
            c.send(data + f"PUB t.last acks.end{n} 1\r\nx\r\n".encode())
            c.read_until_subject(f"acks.end{n}", f"pipeline {n}")
        c.api("STREAM.INFO.T", {"deleted_details": True, "subjects_filter": ">"})
        c.many("$JS.API.DIRECT.GET.T", {"seq": 1, "batch": 200})

    return run


for seed in range(SEEDS):
    add(GROUP, f"seed {seed}", conversation(seed))
