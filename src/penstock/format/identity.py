"""Identity: who a stream is and how it is configured, in two copies. Layout: docs/format.md, "config.json"."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from penstock.base.disk import Disk
from penstock.base.xxh64 import xxh64_of
from penstock.errors import CorruptBlock, NewerFormat, PenstockError
from penstock.format.bounds import ID_MAX, INT64_MAX, decode_json
from penstock.format.paths import StreamPaths

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
    try:
        if decode_json(body, _Version).format > FORMAT:
            raise NewerFormat(path, decode_json(body, _Version).format)
        found = decode_json(body, _File)
    except ValueError:
        return None
    return Identity(bytes.fromhex(found.stream_id), found.created_ns, found.config, found.revision)


class _Version(msgspec.Struct):
    format: Annotated[int, msgspec.Meta(ge=1, le=INT64_MAX)]


class _File(_Version):
    """What stands in config.json."""

    revision: Annotated[int, msgspec.Meta(ge=1, le=ID_MAX)]
    stream_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    created_ns: Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
    config: dict[str, Any]


def read_identity(
    disk: Disk, paths: StreamPaths, check: Callable[[Identity], object] = lambda identity: None
) -> Identity:
    """The newer of the copies that hold. CorruptBlock when none does.

    `check` raises for a configuration that no stream has: such a copy does not hold, either.
    """
    held, why = [], "neither it nor its copy holds"
    for path in (paths.config, paths.config_copy):
        try:
            identity = decode_identity(disk.read_file(path), path)
            if identity is not None:
                check(identity)
                held.append(identity)
        except FileNotFoundError:
            continue
        except NewerFormat:
            raise
        except (PenstockError, ValueError) as error:
            why = f"its configuration is none that a stream can have ({error})"
    if not held:
        raise CorruptBlock(paths.config, 0, f"{why}; restore it or its copy, or import the stream's export anew")
    return max(held, key=lambda identity: identity.revision)


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
        if found is not None and found != data and not _is_older(decode_identity(found, path), identity):
            disk.rename(path, f"{path}.damaged")
        if found != data:
            disk.write_file(path, data)


def _is_older(copy: Identity | None, identity: Identity) -> bool:
    """Whether a copy is as a crash between the two writes leaves it: what it says holds, and is not needed any more."""
    if copy is None or copy.stream_id != identity.stream_id:
        return False
    return copy.revision < identity.revision or copy == identity


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
