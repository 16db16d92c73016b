"""How fast do messages come out: one by its sequence, and all in order? From the page cache."""

from __future__ import annotations

import random
import shutil
from collections import deque
from collections.abc import Callable, Iterable

import penstock
from bench.harness import SUBJECT_COUNT, Bench, Messages, seconds_of, subjects, warm_cache
from bench.peers import open_peers

ROUNDS = 3


def run(bench: Bench) -> str:
    folder = bench.place("read")
    count, asked = bench.size(1_000_000, 200_000), bench.size(200_000, 50_000)
    messages = Messages(subjects(SUBJECT_COUNT))
    peers = open_peers(folder, False)
    with penstock.open(folder / "penstock", durability="os") as db:
        stream = db.stream("S", subjects=["orders.>"])
        for _ in range(count // 10_000):
            batch = messages.batch(10_000)
            stream.publish_many(batch)
            for peer in peers:
                peer.write(peer.prepare(batch))
    chance = random.Random(4)
    seqs = [chance.randrange(1, count + 1) for _ in range(asked)]
    gets: dict[str, list[float]] = {}
    walks: dict[str, list[float]] = {}
    with penstock.open(folder / "penstock", durability="os") as db:  # anew: nothing is left in memory
        stream = db.stream("S")
        for _ in range(ROUNDS):
            for name, get in [("penstock", stream.get), *((peer.name, peer.getter()) for peer in peers)]:
                assert get(count) is not None
                gets.setdefault(name, []).append(asked / seconds_of(deque, map(get, seqs), 0) / 1e3)
            for name, walk in [("penstock", stream.read), *((peer.name, peer.iterate) for peer in peers)]:
                walks.setdefault(name, []).append(count / seconds_of(_exhaust, walk) / 1e6)
    for peer in peers:
        peer.close()
    shutil.rmtree(folder)
    large = bench.few_subjects()
    warm_cache(large)
    with penstock.open(large, read_only=True) as db:
        stream, total = db.stream("S"), bench.message_count
        wide = [chance.randrange(1, total + 1) for _ in range(asked)]
        deque(map(stream.get, wide[:1000]), 0)
        spread = asked / seconds_of(deque, map(stream.get, wide), 0) / 1e3
    for found, what, unit, least in ((gets, "random get", "k/s", 500.0), (walks, "iterate", "M msg/s", 1.5)):
        best = {name: max(rates) for name, rates in found.items()}
        own = best.pop("penstock")
        bench.add(what, own, unit, at_least=least)
        for name, rate in best.items():
            bench.add(f"  {what}, {name}", rate, unit, ratio=own / rate, ratio_to="is Penstock's")
    bench.add(f"random get, of {total:,}, read-only", spread, "k/s")
    return "reads from the disk itself; peers give bytes or tuples, unverified; Penstock messages, checksums verified"


def _exhaust(walk: Callable[[], Iterable[object]]) -> None:
    deque(walk(), 0)
