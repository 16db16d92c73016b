"""Node: a value of a configuration file that knows its place; what reading may cost; how it fails."""

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
"""Keys whose values no error shows."""

Scalar = str | int | float | bool | datetime
Value = Scalar | list["Node"] | dict[str, "Node"]


class ConfError(PenstockError):
    """A configuration that cannot be read or obeyed: what, and where."""


@dataclass(slots=True)
class Node:
    """A value and its place: that of its key, or its own in an array. `weight` counts it and all within it."""

    value: Value
    file: str
    line: int
    column: int
    is_used: bool = False  # some $NAME means it: then it needs no meaning of its own
    weight: int = 1
    depth: int = 0

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class Journey:
    """What one reading shares between a file, those that it includes, and the environment's values."""

    environment: Mapping[str, str]
    include: Callable[[str, Journey], dict[str, Node]]
    trail: list[str] = field(default_factory=list)  # files that are being read, outermost first
    names: set[str] = field(default_factory=set)  # environment variables that are being read
    files: int = 0
