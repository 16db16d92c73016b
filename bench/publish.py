"""How fast do batches of messages go in, kept by the system (`os`) and on the disk (`disk`)?"""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any

import penstock
from bench.harness import SUBJECT_COUNT, Bench, Messages, rate_of, subjects
from bench.peers import Peer, open_peers

BATCH = 1000
ROUNDS = 3


def run(bench: Bench) -> str:
    for durability, rate_min, ratio_min in (("os", 2.5, 3.0), ("disk", 1.0, 2.0)):
        _run(bench, durability, rate_min, ratio_min)
    return (
        "making the batches (peers: packing keys and values too), other processes reading, more than one writer; "
        "peers neither verify checksums of records nor keep counts per subject"
    )


def _run(bench: Bench, durability: str, rate_min: float, ratio_min: float) -> None:
    folder = bench.place(f"publish-{durability}")
    messages = Messages(subjects(SUBJECT_COUNT))
    own_s, peer_s = (0.1, 0.1) if bench.is_quick else (0.5, 0.7)
    rates: dict[str, list[float]] = {}
    with penstock.open(folder / "penstock", durability=durability) as db:
        stream = db.stream("S", subjects=["orders.>"])
        peers = open_peers(folder, durability == "disk")
        # A store in use, not an empty one: the trees of the peers grow slower as they grow.
        for _ in range(bench.size(300, 50)):
            batch = messages.batch(BATCH)
            stream.publish_many(batch)
            for peer in peers:
                peer.write(peer.prepare(batch))
        for _ in range(ROUNDS):
            own = rate_of(partial(messages.batch, BATCH), stream.publish_many, BATCH, own_s, 50)
            rates.setdefault("penstock", []).append(own)
            for peer in peers:
                found = rate_of(partial(_prepare, peer, messages), peer.write, BATCH, peer_s)
                rates.setdefault(peer.name, []).append(found)
        for peer in peers:
            peer.close()
        stored = stream.state()
        assert stored.messages == stored.last_seq, "every message counts"
    shutil.rmtree(folder)
    best = {name: max(found) / 1e6 for name, found in rates.items()}
    own = best.pop("penstock")
    bench.add(f"publish_many, {durability}", own, "M msg/s", at_least=rate_min)
    if best:
        top = max(best, key=lambda name: best[name])
        bench.add(f"publish_many, {durability}, to the best peer ({top})", own / best[top], "x", at_least=ratio_min)
    for name, rate in best.items():
        bench.add(f"{name}, {durability}", rate, "M msg/s", ratio=own / rate, ratio_to="is Penstock's")


def _prepare(peer: Peer, messages: Messages) -> Any:
    return peer.prepare(messages.batch(BATCH))
