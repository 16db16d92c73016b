"""A small file of the store, whole or not at all: one line of JSON and one with its XXH64. ADOPT, BATCHES, DELETES."""

from __future__ import annotations

import json
from typing import Any

from penstock.errors import CorruptBlock
from penstock.kernel.disk import Disk
from penstock.kernel.xxh64 import xxh64_of


def write_checked(disk: Disk, path: str, value: Any) -> None:
    """A small file, whole or not at all: one line of JSON and one with its checksum."""
    body = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    disk.write_file(path, body + b"\n%016x\n" % xxh64_of(body))


def read_checked(disk: Disk, path: str) -> Any:
    """What `write_checked` wrote; None when there is no such file."""
    try:
        lines = disk.read_file(path).split(b"\n")
    except FileNotFoundError:
        return None
    if len(lines) != 3 or b"%016x" % xxh64_of(lines[0]) != lines[1]:
        raise CorruptBlock(path, 0, "the checksum differs")
    return json.loads(lines[0])
