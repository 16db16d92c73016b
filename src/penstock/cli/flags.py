"""Flags of a server's command line, read as Go's flag package reads them: `-p 4222`, `-p=4222`, `--port 4222`.

The first argument that is not a flag ends them, and so does `--`. A boolean takes its value after `=` only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.errors import PenstockError

Kind = Literal["text", "int", "bool"]
TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))


class FlagError(PenstockError):
    """An invalid command line."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag: all its names, the type of its value, and its action."""

    names: str
    kind: Kind
    apply: Callable[[str | int | bool], None]


def parse_flags(args: Sequence[str], flags: Sequence[Flag]) -> list[str]:
    """Apply each flag in turn (the last one wins) and return the arguments after them."""
    known = {name: flag for flag in flags for name in flag.names.split()}
    rest = list(args)
    while rest:
        arg = rest[0]
        if len(arg) < 2 or not arg.startswith("-"):
            break
        rest.pop(0)
        if arg == "--":
            break
        name, has_value, value = arg[2 if arg.startswith("--") else 1 :].partition("=")
        if not name or name.startswith("-"):
            raise FlagError(f"bad flag syntax: {arg}")
        flag = known.get(name)
        if flag is None:
            raise FlagError(f"flag provided but not defined: -{name}")
        if not has_value and flag.kind == "bool":
            value = "true"
        elif not has_value:
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        flag.apply(_value(flag.kind, name, value))
    return rest


def _value(kind: Kind, name: str, text: str) -> str | int | bool:
    if kind == "text":
        return text
    if kind == "bool":
        if text not in TRUE and text not in FALSE:
            raise FlagError(f'invalid boolean value "{text}" for -{name}: parse error')
        return text in TRUE
    try:
        number = int(text, 0) if text.isascii() and len(text) <= 40 else None
    except ValueError:
        number = None
    if number is None:
        raise FlagError(f'invalid value "{text}" for flag -{name}: parse error')
    if not -(2**63) <= number < 2**63:
        raise FlagError(f'invalid value "{text}" for flag -{name}: value out of range')
    return number
