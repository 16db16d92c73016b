"""Three clients that subscribe, publish and unsubscribe as chance wants: who hears what."""

from __future__ import annotations

import random

from parity.catalog import add
from parity.script import Connection, Script

GROUP = "random_delivery"
SEEDS = 80
WORDS = ["a", "b", "c"]


def pattern(r: random.Random) -> str:
    tokens = [r.choice([*WORDS, "*"]) for _ in range(r.randrange(1, 4))]
    return ".".join(["d", *tokens]) if r.random() < 0.7 else ".".join(["d", *tokens[:-1], ">"])


def subject(r: random.Random) -> str:
    return ".".join(["d", *(r.choice(WORDS) for _ in range(r.randrange(1, 4)))])


def step(r: random.Random, c: Connection, number: int) -> None:
    kind = r.randrange(10)
    sid = str(r.randrange(8))
    if kind < 4:
        group = f"g{number}" if r.random() < 0.2 else ""  # a group of one: which of several hears is chance
        c.sub(pattern(r), sid, group)
    elif kind < 5:
        c.unsub(sid, r.choice([None, 1, 2, 3]))
    else:
        reply = f"_INBOX.{c.name}.{number}" if r.random() < 0.3 else ""
        headers = ["A: 1"] if r.random() < 0.2 and c.name != "c" else None
        c.pub(subject(r), str(number), reply, headers)


def conversation(seed: int) -> object:
    def run(s: Script) -> None:
        r = random.Random(seed)
        clients = [s.connect("a"), s.connect("b", echo=False), s.connect("c", headers=False, no_responders=False)]
        for c in clients:
            if r.random() < 0.7:
                c.sub(f"_INBOX.{c.name}.*", "inbox")
        for turn in range(12):
            active = r.choice(clients)
            for n in range(r.randrange(1, 7)):
                step(r, active, turn * 10 + n)
            active.flush(f"turn {turn} of {active.name}", is_sorted=True)
            for c in clients:
                if c is not active:
                    c.flush(f"turn {turn}, heard by {c.name}", is_sorted=True)

    return run


for seed in range(SEEDS):
    add(GROUP, f"seed {seed}", conversation(seed))
