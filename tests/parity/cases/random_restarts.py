"""Streams that chance fills, on a server that is stopped and started in between."""

from __future__ import annotations

import random

from parity.cases.random_streams import config, step
from parity.catalog import add
from parity.script import Script
from support.servers import BASE, JETSTREAM

GROUP = "random_restarts"
SEEDS = 8
CONFIG = BASE + JETSTREAM


def conversation(seed: int) -> object:
    def run(s: Script) -> None:
        r = random.Random(seed)
        c = s.connect()
        changes = config(r) | {"storage": "file"}
        if "error" in c.api("STREAM.CREATE.T", changes):
            changes = {"name": "T", "subjects": ["t.>"], "allow_direct": True}
            c.api("STREAM.CREATE.T", changes)
        for _ in range(25):
            step(c, r, changes)
        for n in range(2):
            s.server.restart()
            c = s.connect(f"after{n}")
            c.api("STREAM.INFO.T", {"deleted_details": True, "subjects_filter": ">"})
            for _ in range(12):
                step(c, r, changes)
        c.api("STREAM.INFO.T", {"deleted_details": True, "subjects_filter": ">"})

    return run


for seed in range(SEEDS):
    add(GROUP, f"seed {seed}", conversation(seed), config=CONFIG, is_alone=True)
