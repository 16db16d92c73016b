"""A small file of the store, whole or not at all: one line of JSON and one with its XXH64. ADOPT, BATCHES, DELETES,
TRUNCATE."""

from __future__ import annotations

import json
from typing import Any

from penstock.base.disk import Disk
from penstock.base.xxh64 import xxh64_of
from penstock.errors import CorruptBlock
from penstock.format.bounds import decode_json


def write_checked(disk: Disk, path: str, value: Any) -> None:
    """A small file, whole or not at all: one line of JSON and one with its checksum."""
    body = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    disk.write_file(path, body + b"\n%016x\n" % xxh64_of(body))


def read_checked(disk: Disk, path: str, kind: Any = Any) -> Any:
    """What `write_checked` wrote, as the type `kind` has it; None when there is no such file. CorruptBlock: it does
    not hold."""
    try:
        lines = disk.read_file(path).split(b"\n")
    except FileNotFoundError:
        return None
    if len(lines) != 3 or b"%016x" % xxh64_of(lines[0]) != lines[1]:
        raise CorruptBlock(path, 0, "the checksum differs")
    try:
        return decode_json(lines[0], kind)
    except ValueError as error:
        raise CorruptBlock(path, 0, f"it is not what it should be: {error}") from error
