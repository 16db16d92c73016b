"""Which of two builds is faster? `python -m bench.builds OLD NEW`: folders with a built `penstock`, `src` of clones.

The speed of a virtual machine changes by half within a minute, so running one build after the other cannot resolve
differences below 10 %. Here all servers run all the time, each gets a short slice of the same load in turn, and
adjacent slices are compared: forty slices resolve 2 %. The first build is the baseline; passing the same folder twice
shows the noise. Large payloads need `--fresh`, a new stream for each slice: otherwise the page cache of so long a run
grows into memory that the host must allocate first.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.harness import ROOT, median
from bench.load import drive
from bench.server import NATS, Running, Side


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.builds", description=__doc__.splitlines()[0])
    parser.add_argument("sources", nargs="+", metavar="SRC", help="a folder with a built penstock; nats: nats-server")
    parser.add_argument("--durability", default="disk", choices=("disk", "os", "lazy"))
    parser.add_argument("--connections", type=_count, default=64, metavar="N")
    parser.add_argument("--window", type=_count, default=1, metavar="N", help="publishes in flight for each (1)")
    parser.add_argument("--size", type=_count, default=128, metavar="BYTES", help="of a payload (128)")
    parser.add_argument("--messages", type=_count, default=16_000, metavar="N", help="of a slice (16000)")
    parser.add_argument("--slices", type=_count, default=40, metavar="N", help="of each side (40)")
    parser.add_argument("--subs", type=_count, metavar="N", help="core publishes to N subscribers instead, delivered")
    parser.add_argument("--fresh", action="store_true", help="each slice into a new stream, for large payloads")
    asked = parser.parse_args()
    for source in asked.sources:
        if source != "nats" and not (Path(source) / "penstock" / "__init__.py").exists():
            parser.error(f"{source}: no penstock in it; name the src folder of a clone in which make build has run")
    sides = [_side(source, asked.durability) for source in asked.sources]
    count = max(1, asked.messages // asked.connections)
    wanted = {"conns": asked.connections, "window": asked.window, "size": asked.size}
    if asked.subs:
        count = asked.messages
        wanted = {"subs": asked.subs, "window": max(asked.window, 512), "size": asked.size, "subject": "core.x"}
    elif asked.window > 1:
        wanted |= {"refill": max(1, asked.window // 32), "frames": asked.window}  # as the benches of throughput do
    rates: list[list[float]] = [[] for _ in sides]
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-out-", dir=ROOT)))
        servers: list[Running] = []
        for n, side in enumerate(sides):
            (folder := work / str(n)).mkdir()
            servers.append(stack.enter_context(side.start(folder)))
            servers[-1].make_stream()
        chance = random.Random(7)
        for _ in range(asked.slices):
            for n in chance.sample(range(len(sides)), len(sides)):  # no side always follows the same one
                mode = "core" if asked.subs else "publish"
                answer = drive(mode, servers[n].port, count=count, warm=max(1, count // 20), **wanted)
                rates[n].append(answer["rate"])
                if asked.fresh:
                    servers[n].request("$JS.API.STREAM.DELETE.S")
                    servers[n].make_stream()
                    os.sync()
    for side, found in zip(sides, rates, strict=True):
        ratio, error = compare(rates[0], found)
        print(f"{ratio:7.3f} ± {error:.3f}  {median(found):11,.0f} msg/s  {side.name}")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number above 0")
    return int(text)


def _side(source: str, durability: str) -> Side:
    if source == "nats":
        return NATS
    return Side(source, "penstock", f"durability: {durability}", "", source=str(Path(source).resolve()))


def compare(first: list[float], second: list[float]) -> tuple[float, float]:
    """The mean speedup of the second side over paired slices, and its standard error."""
    logs = [math.log(ours / theirs) for theirs, ours in zip(first, second, strict=True)]
    mean = sum(logs) / len(logs)
    spread = sum((each - mean) ** 2 for each in logs) / max(1, len(logs) - 1)
    return math.exp(mean), math.sqrt(spread / len(logs)) * math.exp(mean)


if __name__ == "__main__":
    sys.exit(main())
