"""Identity: who a stream is and how it is configured, in two copies. Layout: docs/format.md, "config.json"."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import CorruptBlock, NewerFormat
from penstock.kernel.disk import Disk
from penstock.kernel.xxh64 import xxh64_of
from penstock.store.layout import StreamPaths

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Identity:
    stream_id: bytes
    created_ns: int
    config: dict[str, Any]
    revision: int = 1

    def encode(self) -> bytes:
        fields = {
            "format": FORMAT,
            "revision": self.revision,
            "stream_id": self.stream_id.hex(),
            "created_ns": self.created_ns,
            "config": self.config,
        }
        body = _indented(fields).encode()
        return body + b"\nxxh64 %016x\n" % xxh64_of(body)


def decode_identity(data: bytes, path: str) -> Identity | None:
    """The identity in one copy; None when it does not hold."""
    body, separator, trailer = data.rpartition(b"\nxxh64 ")
    if not separator or trailer != b"%016x\n" % xxh64_of(body):
        return None
    found = json.loads(body)
    if found["format"] > FORMAT:
        raise NewerFormat(path, found["format"])
    return Identity(bytes.fromhex(found["stream_id"]), found["created_ns"], found["config"], found["revision"])


def read_identity(disk: Disk, paths: StreamPaths) -> Identity:
    """The newer of the copies that hold. CorruptBlock when none does."""
    copies = []
    for path in (paths.config, paths.config_copy):
        try:
            copies.append(decode_identity(disk.read_file(path), path))
        except FileNotFoundError:
            copies.append(None)
    best = max((copy for copy in copies if copy is not None), key=lambda copy: copy.revision, default=None)
    if best is None:
        raise CorruptBlock(
            paths.config, 0, "neither it nor its copy holds; restore one of them, or import the stream's export anew"
        )
    return best


def write_identity(disk: Disk, paths: StreamPaths, identity: Identity) -> None:
    """Write both copies, one after the other: one of them holds at any moment."""
    data = identity.encode()
    disk.write_file(paths.config, data)
    disk.write_file(paths.config_copy, data)


def create_identity(disk: Disk, paths: StreamPaths, identity: Identity) -> None:
    """Write both copies of a new stream's: the first is durable when this returns, the second soon after. A crash that
    takes the second is mended."""
    data = identity.encode()
    disk.write_file(paths.config, data)
    disk.write_file(paths.config_copy, data, sync=False)


def mend_identity(disk: Disk, paths: StreamPaths, identity: Identity) -> None:
    """Make the second copy equal to the first again after damage or a crash between the two writes."""
    data = identity.encode()
    for path in (paths.config, paths.config_copy):
        found = disk.read_file(path) if os.path.exists(path) else None
        if found is not None and decode_identity(found, path) is None:
            disk.rename(path, f"{path}.damaged")
        if found != data:
            disk.write_file(path, data)


def with_config(identity: Identity, config: dict[str, Any]) -> Identity:
    return replace(identity, config=config, revision=identity.revision + 1)


def _indented(value: object, margin: str = "\n") -> str:
    """As json.dumps with an indent of 1, whose closures refer to each other and would be the garbage collector's."""
    inner = f"{margin} "
    if isinstance(value, dict) and value:
        parts = ",".join(f"{inner}{json.dumps(key)}: {_indented(one, inner)}" for key, one in value.items())
        return f"{{{parts}{margin}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{','.join(inner + _indented(one, inner) for one in value)}{margin}]"
    return json.dumps(value)
