"""Running commands: in this process where that is enough, in a process of their own where it is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BIG = 200_000  # three messages of this size do not fill a block, forty-five fill one


@dataclass(frozen=True)
class Done:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Done]


def spawn(*args: object, stdin: bytes | None = None) -> Done:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "penstock", *map(str, args)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60)
    return Done(done.returncode, done.stdout, done.stderr.decode())


def block(root: Path, stream: str, number: int = 1) -> Path:
    return root / "$G" / stream / "blocks" / f"{number:06d}.blk"


def flip(path: Path, needle: bytes) -> int:
    """Flip one bit of `needle` in the file, and return its offset."""
    data = bytearray(path.read_bytes())
    at = data.index(needle)
    data[at] ^= 1
    path.write_bytes(data)
    return at


WRITER = """
import sys, time, penstock
with penstock.open(sys.argv[1], durability="os") as db:
    stream = db.stream("ORDERS")
    print("ready", flush=True)
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        stream.publish_many([("orders.eu.1", b"more %d" % n) for n in range(100)])
        seq = stream.publish("orders.eu.2", b"secret" * 50).seq
        stream.erase(seq)
"""


@contextmanager
def writer(root: Path, seconds: float = 30) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes to the store."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def is_root() -> bool:
    return os.geteuid() == 0
