"""conf: reads nats-server's configuration format. A file becomes a tree in which every value has its place.

    document := { pair }                     one pair of braces around all of it is allowed, as in JSON
    pair     := key (":" | "=" | space) value  ends with a new line, "," or ";"
              | "include" space path         is replaced by that file's pairs
    value    := map | array | "text" | 'text' | bare text | (⏎ lines ⏎) | number | true | yes | on | date | $NAME
    number   := digits [ k | m | g | t | p | e ] (times 1000), with b, i or ib after it times 1024
    $NAME    := a key of this block or of one around it, else the environment's; $2a$… is a bcrypt hash
    comment  := "#" or "//" up to the end of the line

The state machine is nats-server's, so that files and errors are treated alike; a column counts bytes from the line feed
before it. The cost of a file is bounded: its size, its depth, the values that variables multiply, and the number of
files that it includes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.server.conf.reader import Reader
from penstock.server.conf.tree import FILE_SIZE_MAX, FILES_MAX, ConfError, Node, ReadContext

__all__ = ["ConfError", "Node", "digest_of", "parse_conf", "read_conf"]


def read_conf(path: str, environment: Mapping[str, str] | None = None) -> dict[str, Node]:
    """The tree of the file at `path`. ConfError says what is wrong, and where."""
    return _read_file(path, _journey(environment), is_include=False)


def parse_conf(text: str, environment: Mapping[str, str] | None = None, name: str = "") -> dict[str, Node]:
    """The tree of a configuration's text; paths in `include` are relative to the working directory."""
    data = text.encode("utf-8", "surrogatepass").decode("latin-1")
    return Reader(data, name, _journey(environment)).read()


def digest_of(tree: dict[str, Node]) -> str:
    """The digest that nats-server shows for this configuration: SHA-256 of its JSON as Go writes it."""
    import hashlib
    import json

    text = json.dumps(_plain(tree), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "replace") + b"\n").hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Node):
        return _plain(value.value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)  # Go writes 2.0 as 2
    return value


def _journey(environment: Mapping[str, str] | None) -> ReadContext:
    return ReadContext(
        os.environ if environment is None else environment, lambda path, way: _read_file(path, way, True)
    )


def _read_file(path: str, context: ReadContext, is_include: bool) -> dict[str, Node]:
    real = os.path.realpath(path)
    if real in context.trail:
        raise ConfError(f"include cycle: {' includes '.join([*context.trail[context.trail.index(real) :], real])}")
    context.files += 1
    if context.files > FILES_MAX:
        raise ConfError(f"more than {FILES_MAX} files are included")
    try:
        with open(path, "rb", opener=_open_without_waiting if is_include else None) as file:
            if is_include and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfError(f"{path} is not a regular file")
            data = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        verb = "read" if isinstance(error, IsADirectoryError) else "open"
        raise ConfError(f"{verb} {path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:  # a NUL in the path
        raise ConfError(f"open {path!r}: {error}") from error
    if len(data) > FILE_SIZE_MAX:
        raise ConfError(f"{path} is larger than {FILE_SIZE_MAX} bytes")
    context.trail.append(real)
    tree = Reader(data.decode("latin-1"), path, context).read()
    context.trail.pop()
    return tree


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe without a writer would block the start
