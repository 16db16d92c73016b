"""Subject transforms that chance writes, in streams and in republishing: taken or refused, and what they do."""

from __future__ import annotations

import random

from parity.catalog import add
from parity.script import Script

GROUP = "random_transforms"
SEEDS = 60
FUNCTIONS = [
    "$1",
    "$2",
    "{{wildcard(1)}}",
    "{{wildcard(2)}}",
    "{{wildcard(9)}}",
    "{{Wildcard(1)}}",
    "{{partition(5,1)}}",
    "{{partition(3,1,2)}}",
    "{{partition(4)}}",
    "{{partition(0)}}",
    "{{partition(x,1)}}",
    "{{split(1,-)}}",
    "{{split(1, )}}",
    "{{splitFromLeft(1,2)}}",
    "{{splitfromright(1,1)}}",
    "{{sliceFromLeft(1,2)}}",
    "{{sliceFromRight(2,3)}}",
    "{{left(1,2)}}",
    "{{right(1,1)}}",
    "{{left(1)}}",
    "{{right(1,0)}}",
    "{{left(1,-1)}}",
    "{{nosuch(1)}}",
    "{{wildcard()}}",
    "{{}}",
    "{{wildcard(1)",
    "a{{wildcard(1)}}",
    "$0",
    "$x",
]
TOKENS = ["a", "ab", "abc-def", "a-b-c", "xyz", "1", "long-er-token", "é", "A"]


def pattern(r: random.Random) -> str:
    tokens = [r.choice(["*", "*", "a", "ab"]) for _ in range(r.randrange(1, 4))]
    if r.random() < 0.25:
        tokens[-1] = ">"
    if r.random() < 0.05:
        tokens[r.randrange(len(tokens))] = r.choice(["", "a b", ">", "*a"])
    return ".".join(["t", *tokens])


def destination(r: random.Random) -> str:
    tokens = [r.choice(FUNCTIONS) if r.random() < 0.7 else r.choice(["x", "y", "*"]) for _ in range(r.randrange(1, 4))]
    if r.random() < 0.25:
        tokens[-1] = ">"
    return ".".join([r.choice(["u", "t", "$1"]), *tokens])


def conversation(seed: int) -> object:
    def run(s: Script) -> None:
        r = random.Random(seed)
        c, listener = s.connect(), s.connect("b")
        listener.sub("u.>", "1")
        listener.flush()
        for n in range(5):
            name = f"T{n}"
            field = r.choice(["subject_transform", "republish"])
            config = {"name": name, "subjects": ["t.>"], field: {"src": pattern(r), "dest": destination(r)}}
            subjects = [".".join(["t", *(r.choice(TOKENS) for _ in range(r.randrange(1, 4)))]) for _ in range(3)]
            if "error" in c.api(f"STREAM.CREATE.{name}", config):
                continue
            for subject in subjects:
                c.request(subject, subject)
                c.api("INFO", is_kept=False)  # what is republished may leave after the ack: it has by now
                listener.flush("what is heard of it")
            c.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
            c.api(f"STREAM.DELETE.{name}", is_kept=False)

    return run


for seed in range(SEEDS):
    add(GROUP, f"seed {seed}", conversation(seed))
