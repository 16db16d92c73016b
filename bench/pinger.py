"""One bare connection that sends PING in a tight loop until it is told to stop: how long does the server delay PONG?

It is a separate process, so nothing in the bench delays it. SIGTERM ends it; its output is one line of JSON. On a
shared machine a late answer may only mean that the server was not scheduled. So each ping also reads the server's
processor time: `busy_ms` is the longest that the server itself worked between a PING and its PONG.
"""

from __future__ import annotations

import gc
import json
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

LONG_NS = 2_000_000  # answers that take longer are listed one by one


@dataclass(frozen=True, slots=True)
class Pings:
    """Response times in milliseconds."""

    count: int
    p50_ms: float
    p999_ms: float
    max_ms: float
    busy_ms: float
    long: list[
        tuple[float, float, float]
    ]  # (seconds since the start, milliseconds, of them busy) of those above LONG_NS


class Pinger:
    """Pings while the block runs; `pings` has what was found after it."""

    pings: Pings

    def __init__(self, port: int, pid: int) -> None:
        words = [sys.executable, __file__, str(port), str(pid)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Pinger:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"the pinger ended with {self._process.wait()}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        told, _ = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"the pinger ended with {self._process.returncode}")
        self.pings = Pings(**json.loads(told))


def main() -> None:
    is_over = False

    def stop(*_: object) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, stop)
    took: list[int] = []
    long: list[tuple[float, float, float]] = []
    busiest = 0
    now, cpu_of = time.perf_counter_ns, time.clock_gettime_ns
    clock = (~int(sys.argv[2]) << 3) | 2  # the processor time of a process: clock_getcpuclockid(3)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = wire.makefile("rb")
        lines.readline()  # INFO
        wire.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
        while (line := lines.readline()) != b"PONG\r\n":
            if not line or line.startswith(b"-ERR"):
                raise ConnectionError(repr(line))
        gc.disable()
        print("ready", flush=True)
        start = now()
        while not is_over:
            cpu = cpu_of(clock)
            began = now()
            wire.send(b"PING\r\n")
            line = lines.readline()
            each = now() - began
            cpu = min(each, cpu_of(clock) - cpu)
            if line == b"PING\r\n":  # the server pings, too
                wire.send(b"PONG\r\n")
                lines.readline()
            elif line.startswith(b"INFO"):
                lines.readline()
            took.append(each)
            if cpu > busiest:
                busiest = cpu
            if each > LONG_NS:
                long.append(((began - start) / 1e9, each / 1e6, cpu / 1e6))
    took.sort()
    count = len(took)

    def at(part: float) -> float:
        return took[min(count - 1, int(part * count))] / 1e6

    told = {"p50_ms": at(0.5), "p999_ms": at(0.999), "max_ms": took[-1] / 1e6, "busy_ms": busiest / 1e6}
    print(json.dumps({"count": count, **told, "long": long}))


if __name__ == "__main__":
    main()
