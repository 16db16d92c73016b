"""JSON requests read as strictly as Go's decoder reads them into a struct, with its texts in the errors.

An unknown field, or one of another type, is 400/10025; field names match in any case, the last of a repeated field
counts, null leaves the default; several values in one text count one after the other. A `Struct` says which fields
there are and what Go calls their types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.errors import InvalidJson, quote
from penstock.wire.go_json import parse_time
from penstock.wire.go_syntax import DEPTH_MAX, TOO_DEEP, find_fault

INTEGERS = {
    "int": (-(2**63), 2**63),
    "int64": (-(2**63), 2**63),
    "int32": (-(2**31), 2**31),
    "uint64": (0, 2**64),
    "time.Duration": (-(2**63), 2**63),
}
LARGE_SIZE = 8 * 1024  # a longer text is read in a hurry
_BLANKS = re.compile(r"[ \t\r\n]*")
_EMPTY_OBJECT = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*")
_SHORT_HOUR = re.compile(r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T)([0-9]:)")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_LAYOUT = ("2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05")  # Go's name of each part of a time


class Number(str):
    """A number as it was written: 1e3 and 9223372036854775808 are refused by their text."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object with its fields in order, repeated ones included."""

    __slots__ = ()


@dataclass(frozen=True)
class Struct:
    """A struct of the reference: what Go calls it, its fields by their names in JSON, and what they are made into.

    A field's type is one of Go's names. `nested` has the structs among them, `readers` functions for types that read
    themselves: they get the value as it was written, and raise InvalidJson.
    """

    go_type: str
    fields: Mapping[str, str]
    make: Callable[..., Any] = dict
    nested: Mapping[str, Struct] = field(default_factory=dict)
    readers: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        return self.go_type.rpartition(".")[2]


def decode(raw: bytes, struct: Struct, *, strict: bool = True) -> dict[str, Any]:
    """The fields of a request, by name. Without `strict`, unknown fields are left out."""
    try:
        reading = _Reading(is_strict=True)
        fields: dict[str, Any] = {}
        for value in _values(raw):
            fields |= reading.read(value, struct)
        return fields
    except InvalidJson:
        if strict:
            raise
    return decode_one(raw, struct)


def decode_one(raw: bytes, struct: Struct) -> dict[str, Any]:
    """As `decode`, of a text that is one value, with unknown fields left out."""
    if len(raw) > LARGE_SIZE:
        value = _large_value(raw)
    else:
        try:
            value = _DECODER.decode(raw.decode("utf-8", "replace"))
        except RecursionError:
            raise InvalidJson(TOO_DEEP) from None
        except ValueError:
            fault = find_fault(raw, is_alone=True)
            why = fault.why if fault is not None else ""
            raise InvalidJson(why or "unexpected end of JSON input") from None
    return _Reading(is_strict=False).read(value, struct)


def is_empty_object(raw: bytes) -> bool:
    """Whether a text is one JSON object without fields."""
    return _EMPTY_OBJECT.fullmatch(raw) is not None


def _refuse_constant(text: str) -> None:
    raise ValueError(text)


_DECODER = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=_refuse_constant, object_pairs_hook=Pairs
)


def _values(raw: bytes) -> Iterator[Any]:
    """The values of a text, one after the other."""
    if len(raw) > LARGE_SIZE:
        if raw.strip(b" \t\r\n"):
            yield _large_value(raw)
        return
    text = raw.decode("utf-8", "replace")
    at = _end_of_blanks(text, 0)
    while at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            fault = find_fault(raw, len(text[:at].encode("utf-8", "replace")))
            if fault is None and isinstance(error, RecursionError):
                raise InvalidJson(TOO_DEEP) from None
            if fault is None or not fault.why:
                raise InvalidJson("unexpected EOF") from None
            raise InvalidJson(f"{fault.why} at offset {fault.index + 1}") from None
        yield value
        at = _end_of_blanks(text, end)


def _large_value(raw: bytes) -> Any:
    """The one value of a long text, read in a hurry: numbers and objects are Python's own, and a fault is told in fewer
    words, since the exact ones would hold up everybody else."""
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        fault = find_fault(raw[: DEPTH_MAX * 5 + 5])  # as much as brackets alone, or objects of one letter, take
        where = f" at offset {fault.index + 1}" if fault is not None and fault.why == TOO_DEEP else ""
        raise InvalidJson(TOO_DEEP + where) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJson("unexpected EOF" if "truncated" in str(error) else str(error)) from None


def _end_of_blanks(text: str, at: int) -> int:
    return _BLANKS.match(text, at).end()  # type: ignore[union-attr]


class _Reading:
    """One value on its way into a struct; the first fault in the order of the text is raised."""

    def __init__(self, *, is_strict: bool) -> None:
        self.is_strict = is_strict

    def read(self, value: Any, struct: Struct) -> dict[str, Any]:
        return self._fields(value, struct, struct.short_name, "Go value")

    def _fields(self, value: Any, struct: Struct, path: str, place: str) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if value is None:
            return fields
        if not isinstance(value, Pairs | dict):
            raise _mismatch(value, place, struct.go_type)
        for written, part in value if isinstance(value, Pairs) else value.items():
            name = written if written in struct.fields else written.lower()
            if name not in struct.fields:
                if self.is_strict:
                    raise InvalidJson(f"json: unknown field {quote(text_of(written))}")
                continue
            go_type = struct.fields[name]
            reader = struct.readers.get(go_type)
            if reader is not None:
                fields[name] = reader(part)
            elif part is not None:
                fields[name] = self._field(part, go_type, struct, f"{path}.{written}")
        return fields

    def _field(self, value: Any, go_type: str, struct: Struct, path: str) -> Any:
        place = f"Go struct field {path}"
        if go_type in INTEGERS:
            if kind_of(value) != "number":
                raise _mismatch(value, place, go_type)
            number = _integer(str(value), go_type)
            if number is None:
                raise InvalidJson(f"json: cannot unmarshal number {value} into {place} of type {go_type}")
            return number
        if go_type in struct.nested:
            inner = struct.nested[go_type]
            return inner.make(**self._fields(value, inner, path, place))
        if go_type == "string" and type(value) is str:
            return text_of(value)
        if go_type == "bool" and isinstance(value, bool):
            return value
        if go_type == "time.Time" and type(value) is str:
            return read_time(value)
        if go_type == "[]string" and type(value) is list:
            return tuple(_element(part, path, index) for index, part in enumerate(value))
        if go_type == "map[string]string" and isinstance(value, Pairs | dict):
            return _texts(value, path)
        if go_type.startswith("[]*") and go_type[3:] in struct.nested and type(value) is list:
            inner = struct.nested[go_type[3:]]
            return tuple(
                inner.make(**self._fields(part, inner, f"{path}.{index}", f"Go struct field {path}.{index}"))
                for index, part in enumerate(value)
            )
        if go_type.startswith("[]*server.") and type(value) is list:
            return tuple(plain(part) for part in value)
        if go_type.startswith("server.") and isinstance(value, Pairs | dict):
            return plain(value)
        raise _mismatch(value, place, go_type)


def _texts(value: Pairs | dict[str, Any], path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, part in value if isinstance(value, Pairs) else value.items():
        if part is None:
            found[text_of(key)] = ""
        elif type(part) is str:
            found[text_of(key)] = text_of(part)
        else:
            raise _mismatch(part, f"Go struct field {path}.{key}", "string")
    return found


def _element(value: Any, path: str, index: int) -> str:
    if value is None:
        return ""
    if type(value) is not str:
        raise InvalidJson(f"json: cannot unmarshal {kind_of(value)} into {path}.{index} of type string")
    return text_of(value)


def _mismatch(value: Any, place: str, go_type: str) -> InvalidJson:
    return InvalidJson(f"json: cannot unmarshal {kind_of(value)} into {place} of type {go_type}")


def _integer(value: str, go_type: str) -> int | None:
    low, stop = INTEGERS[go_type]
    return int(value) if _INTEGER.fullmatch(value) and low <= int(value) < stop else None


def read_time(text: str) -> int:
    """Unix nanoseconds; the zero time is 0. InvalidJson says what Go's parser would."""
    try:
        # Go takes either before the fraction, and an hour of one digit.
        return parse_time(_SHORT_HOUR.sub(r"\g<1>0\2", text.replace(",", ".", 1)))
    except ValueError:
        raise InvalidJson(_why_no_time(text)) from None


def _why_no_time(text: str) -> str:
    shown = quote(text)
    failed = f'parsing time {shown} as "2006-01-02T15:04:05Z07:00": cannot parse '
    at = 0
    for part in _LAYOUT:
        found = text[at : at + len(part)]
        if part == "15" and re.match(r"[0-9](?![0-9])", text[at:]):
            found = found[:1]  # an hour may have one digit
        elif not (re.fullmatch(f"[0-9]{{{len(part)}}}", found) if part.isdigit() else found == part):
            return f"{failed}{quote(text[at:])} as {quote(part)}"
        at += len(found)
    fraction = re.match(r"[.,][0-9]+", text[at:])
    at += fraction.end() if fraction else 0
    if not re.fullmatch(r"Z|[+-][0-9]{2}:[0-9]{2}", text[at:]):
        if text[at : at + 1] == "Z":
            return f"parsing time {shown}: extra text: {quote(text[at + 1 :])}"
        return f'{failed}{quote(text[at:])} as "Z07:00"'
    text = _SHORT_HOUR.sub(r"\g<1>0\2", text)
    month, day, hour, minute, second = (int(text[n : n + 2]) for n in (5, 8, 11, 14, 17))
    for name, is_out in (
        ("month", not 1 <= month <= 12),
        ("day", not 1 <= day <= 31),
        ("hour", hour > 23),
        ("minute", minute > 59),
        ("second", second > 59),
    ):
        if is_out:
            return f"parsing time {shown}: {name} out of range"
    if re.search(r"[+-](?:2[4-9]|[3-9].):..$", text):
        return f"parsing time {shown}: time zone offset hour out of range"
    if re.search(r"[+-]..:[6-9].$", text):
        return f"parsing time {shown}: time zone offset minute out of range"
    return f"parsing time {shown}: day out of range"


def kind_of(value: Any) -> str:
    """What Go calls a JSON value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Number | int | float):
        return "number"
    if isinstance(value, Pairs | dict):
        return "object"
    return "array" if isinstance(value, list) else "string"


def plain(value: Any) -> Any:
    """A value that was read as ordinary Python."""
    if isinstance(value, Number):
        return int(value) if _INTEGER.fullmatch(value) else float(value)
    if isinstance(value, Pairs):
        return {text_of(key): plain(part) for key, part in value}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return text_of(value) if isinstance(value, str) else value


def text_of(value: str) -> str:
    """Half of a surrogate pair is no character; Go's decoder puts U+FFFD in its place."""
    return value if value.isascii() else _HALF_PAIR.sub("\ufffd", value)
