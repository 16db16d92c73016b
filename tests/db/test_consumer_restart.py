"""The state of consumers is the same after the store was opened again, whatever was done to them before."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import errors
from penstock.testing import FakeClock

S = 10**9
SUBJECTS = ["s.a", "s.b", "s.c.d"]
FILTERS: list[Any] = [None, "s.a", "s.*", "s.>", ["s.a", "s.c.*"]]


def known(stream: penstock.Stream) -> dict[str, Any]:
    """The state of a stream's consumers, except the times of their last activity, which are not stored."""
    found = {}
    for name in stream.consumers():
        info = stream.consumer(name).info()
        places = [dataclasses.replace(place, last_active_ns=0) for place in (info.delivered, info.ack_floor)]
        found[name] = dataclasses.replace(info, delivered=places[0], ack_floor=places[1])
    return found


def do_something(rng: random.Random, stream: penstock.Stream, clock: FakeClock) -> None:
    name = rng.choice("abc")
    choice = rng.randrange(12)
    if choice < 3:
        stream.publish_many([(rng.choice(SUBJECTS), b"x") for _ in range(rng.randint(1, 20))])
    elif choice == 3:
        clock.advance(rng.randint(1, 20) * S)
    elif choice == 4:
        stream.purge(rng.choice(["", *SUBJECTS]), keep=rng.randint(0, 10))
    elif choice == 5 and stream.config.retention == "limits":
        stream.delete(rng.randint(1, max(stream.state().last_seq, 1)))
    elif name not in stream.consumers():
        options: dict[str, Any] = {"ack_policy": rng.choice(["explicit", "all", "explicit", "none"])}
        options |= {"deliver_policy": rng.choice(["all", "new", "last"]), "filter": rng.choice(FILTERS)}
        options |= {"max_deliver": rng.choice([-1, 2]), "ack_wait": f"{rng.randint(1, 30)}s", "description": "é" * 9}
        stream.consumer(name, **options)
    elif choice == 6 and rng.random() < 0.3:
        stream.delete_consumer(name)
    else:
        use(rng, stream.consumer(name), choice)


def use(rng: random.Random, consumer: penstock.Consumer, choice: int) -> None:
    if choice == 7:
        consumer.pause("20s") if rng.random() < 0.3 else consumer.resume()
    elif choice == 8 and rng.random() < 0.2:
        if consumer.config.deliver_policy == "all":
            consumer.reset(rng.randint(0, 30))
        else:
            consumer.reset()
    elif choice == 9:
        # The filter is not changed: the position that the consumer reached by skipping messages under another filter
        # is not stored, as in nats-server.
        consumer.stream.consumer(
            consumer.name, max_ack_pending=rng.choice([-1, 5, 1000]), description=str(rng.random())
        )
    else:
        for msg in consumer.fetch(rng.randint(1, 15), timeout=0):
            told = rng.randrange(6)
            if told < 3:
                msg.ack()
            elif told == 3:
                msg.nak(rng.choice([None, "5s"]))
            elif told == 4:
                msg.term()


@pytest.mark.parametrize("retention", ["limits", "interest"])
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_forgotten_at_a_stop(root: Path, clock: FakeClock, seed: int, retention: str) -> None:
    rng = random.Random(seed)
    before: dict[str, Any] = {}
    for _ in range(8):
        with penstock.open(root, durability="os", clock=clock) as db:
            stream = db.stream("S", subjects=["s.>"], retention=retention)
            assert known(stream) == before
            for _ in range(60):
                do_something(rng, stream, clock)
            before = known(stream)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork with threads, from Python 3.12 on
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_forgotten_when_the_process_just_ends(root: Path, clock: FakeClock, seed: int) -> None:
    """As after kill -9: the changes that were written are there, which are all of them once the call has returned."""
    for turn in range(4):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            rng = random.Random(f"{seed} {turn}")
            try:
                stream = penstock.open(root, durability="os", clock=clock).stream("S", subjects=["s.>"])
                for _ in range(60):
                    do_something(rng, stream, clock)
                clock.set(10**18 + (turn + 1) * 10_000 * S)
                os.write(writing, repr(known(stream)).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            told = pipe.read().decode()
        os.waitpid(pid, 0)
        clock.set(10**18 + (turn + 1) * 10_000 * S)
        with penstock.open(root, read_only=True, clock=clock) as db:
            assert repr(known(db.stream("S"))) == told


def test_a_name_that_was_deleted_begins_anew(root: Path) -> None:
    with penstock.open(root, durability="os") as db:
        stream = db.stream("S")
        stream.publish_many([("S", b"1"), ("S", b"2")])
        stream.consumer("c", description="old").next().ack()
        stream.delete_consumer("c")
        stream.consumer("c", description="new")
    with penstock.open(root, durability="os") as db:
        info = db.stream("S").consumer("c").info()
        assert (info.config.description, info.num_pending, info.ack_floor.stream_seq) == ("new", 2, 0)
        db.stream("S").delete_consumer("c")
    with penstock.open(root, durability="os") as db, pytest.raises(errors.ConsumerNotFound):
        db.stream("S").delete_consumer("c")
