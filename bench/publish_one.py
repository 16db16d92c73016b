"""What does one `publish()` cost, from call to ack?"""

from __future__ import annotations

import shutil
from typing import Any

import penstock
from bench.harness import SUBJECT_COUNT, Bench, Messages, median, seconds_of, subjects
from bench.peers import Peer, open_peers

CHUNK = 1000


def run(bench: Bench) -> str:
    for durability in ("os", "disk"):
        _run(bench, durability)
    return "the first call of a process, headers, rules, many threads at once"


def _run(bench: Bench, durability: str) -> None:
    folder = bench.place(f"one-{durability}")
    size = CHUNK if durability == "os" else CHUNK // 10
    messages = Messages(subjects(SUBJECT_COUNT))
    took: dict[str, list[float]] = {}
    with penstock.open(folder / "penstock", durability=durability) as db:
        stream = db.stream("S", subjects=["orders.>"])
        stream.publish_many(messages.batch(1000))
        publish = stream.publish

        def ours(chunk: list[tuple[str, bytes]]) -> None:
            for subject, payload in chunk:
                publish(subject, payload)

        peers = open_peers(folder, durability == "disk")
        for n in range(bench.size(100, 20) if durability == "os" else 10):
            chunk = messages.batch(size)
            took.setdefault("penstock", []).append(seconds_of(ours, chunk) / size)
            if n % 10:
                continue
            for peer in peers:
                ready = [peer.prepare([one]) for one in chunk]
                took.setdefault(peer.name, []).append(seconds_of(_write_each, peer, ready) / size)
        for peer in peers:
            peer.close()
    shutil.rmtree(folder)
    us = {name: median(found) * 1e6 for name, found in took.items()}
    own = us.pop("penstock")
    bench.add(f"one publish(), {durability}", own, "µs", at_most=5 if durability == "os" else None)
    for name, found in us.items():
        bench.add(f"  one commit, {name}, {durability}", found, "µs", ratio=own / found, ratio_to="is Penstock's")


def _write_each(peer: Peer, prepared: list[Any]) -> None:
    for one in prepared:
        peer.write(one)
