"""The header block of a message: `NATS/1.0` CRLF, then `Key: Value` CRLF for each header, then CRLF.

Rules: the NATS protocol. Keys keep their case and are compared with it; keys may repeat; leading
blanks of a value are skipped. What we write is strict; what we read may be anything, and never raises. Bytes that are
not UTF-8 survive as surrogates (`surrogateescape`).
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping

from penstock.errors import BadHeader

VERSION = b"NATS/1.0"
EMPTY_BLOCK = VERSION + b"\r\n\r\n"

HeaderValue = str | bytes
HeaderValues = HeaderValue | Iterable[HeaderValue]

_BAD_IN_KEY = re.compile(rb"[\x00-\x20:\x7f]")


class Headers:
    """The headers of one message, in order, as they were sent.

    Always true: nothing changes after it is made; `raw` is the block it was decoded from. `headers["K"]` gives all
    values of a key and raises KeyError without one; `get` gives the first value, or None.
    """

    __slots__ = ("_values", "is_valid", "raw")

    raw: bytes
    is_valid: bool
    """False where some line was not `Key: Value`; such lines are left out."""

    def __init__(self, raw: bytes, values: dict[str, list[str]], is_valid: bool) -> None:
        object.__setattr__(self, "raw", raw)
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "is_valid", is_valid)

    _values: dict[str, list[str]]

    def get(self, key: str) -> str | None:
        """The first value of `key`, or None."""
        values = self._values.get(key)
        return values[0] if values else None

    def get_all(self, key: str) -> list[str]:
        """Every value of `key`, in order."""
        return list(self._values.get(key, ()))

    def to_dict(self) -> dict[str, list[str]]:
        """A copy that may be changed."""
        return {key: list(values) for key, values in self._values.items()}

    def keys(self) -> KeysView[str]:
        return self._values.keys()

    def items(self) -> ItemsView[str, list[str]]:
        return self.to_dict().items()

    def __getitem__(self, key: str) -> list[str]:
        return list(self._values[key])

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        """The same keys with the same values; a plain dict compares too."""
        if isinstance(other, Headers):
            return self._values == other._values
        if isinstance(other, Mapping):
            return self._values == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple((key, *values) for key, values in sorted(self._values.items())))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("headers cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return decode, (self.raw,)

    def __repr__(self) -> str:
        return f"Headers({self._values!r})"


def encode(headers: Headers | Mapping[str, HeaderValues] | None) -> bytes:
    """The header block of `headers`, or b"" where there are none.

    A value is text or bytes, or a list of them for a key that repeats. Leading blanks of a value will not survive a
    decode: the format skips them.
    """
    if isinstance(headers, Headers):
        return headers.raw
    if not headers:
        return b""
    lines = [VERSION]
    for name, values in headers.items():
        key = _encode_key(name)
        for value in (values,) if isinstance(values, str | bytes) else values:
            lines.append(key + b": " + _encode_value(name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n" if len(lines) > 1 else b""


def decode(raw: bytes) -> Headers:
    """The headers of a block. Any bytes will do: what is not `Key: Value` is left out and `is_valid` is false."""
    if not raw:
        return Headers(raw, {}, True)
    first, _, rest = raw.partition(b"\r\n")
    body, end, after = (b"\r\n" + rest).partition(b"\r\n\r\n")
    is_valid = _is_version_line(first) and bool(end) and not after
    values: dict[str, list[str]] = {}
    for line in body[2:].split(b"\r\n") if len(body) > 2 else ():
        key, colon, value = line.partition(b":")
        if not colon or not key or _BAD_IN_KEY.search(key):
            is_valid = False
            continue
        name = key.decode("utf-8", "surrogateescape")
        values.setdefault(name, []).append(value.lstrip(b" ").decode("utf-8", "surrogateescape"))
    return Headers(raw, values, is_valid)


def find(raw: bytes, key: bytes) -> bytes | None:
    """The first value of `key` without decoding the rest; None where no line begins with `key` and a colon.

    Like the reference it looks at every line, also past a blank one.
    """
    start = raw.find(b"\r\n" + key + b":")
    if start < 0:
        return None
    start += len(key) + 3
    end = raw.find(b"\r\n", start)
    return raw[start : end if end >= 0 else len(raw)].lstrip(b" ")


def remove(raw: bytes, key: bytes) -> bytes:
    """The block without any line of `key`; b"" once no header is left."""
    while (start := raw.find(b"\r\n" + key + b":")) >= 0:
        end = raw.find(b"\r\n", start + 2)
        if end < 0:
            return raw
        raw = raw[: start + 2] + raw[end + 2 :]
        if len(raw) <= len(EMPTY_BLOCK):
            return b""
    return raw


def append(raw: bytes, key: bytes, value: bytes) -> bytes:
    """The block with one more line at its end; a new block where there is none."""
    return (raw[:-2] if raw else VERSION + b"\r\n") + key + b": " + value + b"\r\n\r\n"


def strip_status(raw: bytes) -> bytes:
    """The block without a status (`NATS/1.0 503 Text`), which a stream does not keep; b"" where that was all."""
    end = raw.find(b"\r")
    if end <= len(VERSION) or not raw.startswith(VERSION):
        return raw
    stripped = VERSION + raw[end:]
    return b"" if len(stripped) == len(EMPTY_BLOCK) else stripped


def _is_version_line(line: bytes) -> bool:
    return line == VERSION or line.startswith(VERSION + b" ")


def _encode_key(name: str) -> bytes:
    if not isinstance(name, str):
        raise BadHeader(f"a header key is text, not {type(name).__name__}")
    key = name.encode("utf-8", "surrogateescape")
    if not key:
        raise BadHeader("a header key is empty")
    if _BAD_IN_KEY.search(key):
        raise BadHeader(f"header key {name!r} has a colon, a blank or a control character")
    return key


def _encode_value(name: str, value: HeaderValue) -> bytes:
    if not isinstance(value, str | bytes):
        raise BadHeader(f"header {name!r}: a value is text or bytes, not {type(value).__name__}")
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if b"\r" in raw or b"\n" in raw:
        raise BadHeader(f"header {name!r}: a value cannot have line breaks")
    return raw
