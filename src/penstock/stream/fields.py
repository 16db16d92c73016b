"""Fields: a configuration struct is the one table of its fields; what JSON and the rules need is derived from it.

    max_age: Annotated[Duration, ALWAYS] = 0

A line has the field's name, its type, its default, and notes for everything that these do not tell: `ALWAYS`, `Level`,
`Floor`, `Missing`, and `Go` where the Python type does not give the type's name in Go. `fields_of` reads a struct's
lines; the order of the lines is the order in the JSON that nats-server writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.base.duration import duration_ns
from penstock.wire.go_decode import Struct

# ------------------------------------------------------------------------------------------------------------- notes


@dataclass(frozen=True, slots=True)
class Always:
    """The field is written to JSON even when it is empty."""


@dataclass(frozen=True, slots=True)
class Go:
    """What Go calls the field's type: its decoder names it in errors."""

    type: str


@dataclass(frozen=True, slots=True)
class Level:
    """A configuration that sets the field needs a server of this API level; with `value`, only if it is set to that."""

    level: int
    value: str = ""


@dataclass(frozen=True, slots=True)
class Floor:
    """A smaller value becomes this one; a pedantic request is refused instead."""

    value: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A feature that this version of Penstock does not have: a configuration that sets the field is refused."""

    feature: str


ALWAYS = Always()

Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1), Go("int")]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1), Go("int32")]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1), Go("int64")]
UInt64 = Annotated[int, msgspec.Meta(ge=0), Go("uint64")]
Duration = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1), Go("time.Duration")]

_GO_TYPES = {str: "string", bool: "bool", tuple[str, ...]: "[]string", dict[str, str]: "map[string]string"}

# ------------------------------------------------------------------------------------------------------------ the table


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a configuration struct.

    `type` includes the bounds that msgspec checks; `values` are the words of an enum; `struct` is the nested struct.
    """

    name: str
    type: Any
    default: Any
    go_type: str
    values: tuple[str, ...]
    struct: type[msgspec.Struct] | None
    is_list: bool
    is_always_written: bool
    level: Level | None
    floor: int | None
    missing_feature: str

    def is_empty(self, value: Any) -> bool:
        """Whether `value` says nothing that the default does not say."""
        return not value or value == self.default


@cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, Field]:
    """The fields of a configuration struct by name, in the order of its JSON."""
    hints = get_type_hints(kind, include_extras=True)
    return {part.name: _read_field(part, hints[part.name]) for part in msgspec.structs.fields(kind)}


def _read_field(part: msgspec.structs.FieldInfo, hint: Any) -> Field:
    plain, *annotations = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    notes: dict[type, Any] = {type(note): note for note in annotations}
    kinds = get_args(plain) if get_origin(plain) in (Union, UnionType) else (plain,)
    values = get_args(plain) if get_origin(plain) is Literal else ()
    default = part.default_factory() if part.default is msgspec.NODEFAULT else part.default
    go_type = notes[Go].type if Go in notes else f"server.{part.name}" if values else _GO_TYPES[plain]
    structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    return Field(
        name=part.name,
        type=hint,
        default=default,
        go_type=go_type,
        values=values,
        struct=next(iter(structs), None) if go_type != "time.Time" else None,
        is_list=get_origin(plain) is tuple,
        is_always_written=Always in notes,
        level=notes.get(Level),
        floor=notes[Floor].value if Floor in notes else None,
        missing_feature=notes[Missing].feature if Missing in notes else "",
    )


# -------------------------------------------------------------------------------------------------- derived from it


def required_level(config: msgspec.Struct) -> int:
    """The API level that a server needs for `config`."""
    level = 0
    for field in fields_of(type(config)).values():
        if field.level is not None:
            value = getattr(config, field.name)
            if value == field.level.value if field.level.value else not field.is_empty(value):
                level = max(level, field.level.level)
    return level


def to_json(config: msgspec.Struct) -> dict[str, Any]:
    """The fields as nats-server writes them: in its order, without those that say nothing."""
    written: dict[str, Any] = {}
    for field in fields_of(type(config)).values():
        value = getattr(config, field.name)
        if not field.is_always_written and field.is_empty(value):
            continue
        if field.struct is not None:
            value = to_json(value)
        elif isinstance(value, tuple):
            value = list(value)
        elif field.go_type == "map[string]string":
            value = dict(sorted(value.items()))
        written[field.name] = value
    return written


def go_struct(
    go_type: str,
    kind: type[msgspec.Struct],
    *,
    others: Mapping[str, str] | None = None,
    readers: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Struct:
    """How to read a configuration as strictly as Go does; `others` are fields of the request beside the struct's own.

    `readers` has functions for types that read themselves, by field or by Go type.
    """
    readers = readers or {}
    fields = fields_of(kind)
    go_types = {name: name if name in readers else field.go_type for name, field in fields.items()}
    nested = {f.go_type: go_struct(f.go_type, f.struct) for f in fields.values() if f.struct is not None}
    return Struct(go_type, go_types | dict(others or {}), kind, nested, readers)


def plain_value(field: Field, value: Any) -> Any:
    """A convenient Python value as the field's own type: nanoseconds, a tuple, an enum in lower case."""
    if field.go_type == "time.Duration":
        return duration_ns(value)
    if field.go_type == "[]time.Duration":
        return [duration_ns(part) for part in value]
    if field.values and isinstance(value, str):
        return value.lower()
    if field.is_list and isinstance(value, str | dict):
        return (value,)
    if field.struct is not None and isinstance(value, dict):
        durations = {name for name, part in fields_of(field.struct).items() if part.go_type == "time.Duration"}
        return {name: duration_ns(part) if name in durations else part for name, part in value.items()}
    return value


def unknown_field(noun: str, kind: type[msgspec.Struct], name: str) -> str:
    """The error text for a field that does not exist."""
    import difflib  # takes 7 ms to import, which only a mistake should cost

    near = difflib.get_close_matches(name, fields_of(kind), n=1)
    return f"a {noun} has no field {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
