"""A deleted consumer releases the messages that only it needed: exactly those that a look at every message finds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import penstock
from penstock.consumer.consumers import INTEREST
from penstock.consumer.engine import sweep

FILTERS: list[list[str]] = [[], ["s.a"], ["s.*"], ["s.a", "s.b.>"], ["s.b.c"]]


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_left_that_nobody_needs(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with penstock.open(tmp_path / "data", durability="lazy") as db:
        stream = db.stream("S", subjects=["s.>"], retention="interest")
        consumers = {}
        for n in range(60):
            step = chance.random()
            if step < 0.2:
                policy = chance.choice(["all", "all", "new", "last_per_subject"])
                filters = ["s.>"] if policy == "last_per_subject" else chance.choice(FILTERS)
                acks = chance.choice(["explicit", "explicit", "all", "none"])
                consumers[f"c{n}"] = stream.consumer(f"c{n}", filter=filters, deliver_policy=policy, ack_policy=acks)
            elif step < 0.6:
                for _ in range(chance.randrange(8)):
                    stream.publish(chance.choice(["s.a", "s.b.c", "s.d"]), b"x")
            elif consumers and step < 0.85:
                name = chance.choice(sorted(consumers))
                for message in consumers[name].fetch(chance.randrange(1, 8), timeout=0):
                    if chance.random() < 0.5 and consumers[name].config.ack_policy != "none":
                        message.ack()
            elif consumers:
                name = chance.choice(sorted(consumers))
                del consumers[name]
                with stream.locked():
                    gone = stream.consumers.delete(name, lets_go=False)
                    seq = stream.consumers.let_go(gone, 3)
                    while seq:
                        seq = stream.consumers.let_go(gone, 3, seq)
                    engines = [one.engine for one in stream.consumers]
                    assert sweep(stream.store.engine, engines, False, INTEREST, stream.store.clock.now_ns()) == 0
