"""Node: a value of a configuration file and its place; the limits of reading; ConfError."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from penstock.errors import PenstockError

FILE_SIZE_MAX = 16 * 1024 * 1024
NODES_MAX = 1_000_000
DEPTH_MAX = 64
FILES_MAX = 1000
SECRET_KEYS = frozenset(("pass", "password", "token", "key", "ek", "encryption_key", "prev_key", "seed", "secret"))
"""Keys whose values are never shown in errors."""

Scalar = str | int | float | bool | datetime
Value = Scalar | list["Node"] | dict[str, "Node"]


class ConfError(PenstockError):
    """The configuration cannot be read or applied; the text says what and where."""


@dataclass(slots=True)
class Node:
    """A value and the place of its key, or its own place in an array. `weight` counts it and all values inside it."""

    value: Value
    file: str
    line: int
    column: int
    is_used: bool = False  # a $NAME refers to it, so the key may be one that the server does not know
    weight: int = 1
    depth: int = 0

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class ReadContext:
    """What a file, the files that it includes and the values of environment variables share while they are read."""

    environment: Mapping[str, str]
    include: Callable[[str, ReadContext], dict[str, Node]]
    trail: list[str] = field(default_factory=list)  # files that are being read, outermost first
    names: set[str] = field(default_factory=set)  # environment variables that are being read
    files: int = 0
