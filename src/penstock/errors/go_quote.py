"""Text in quotes as Go prints it: the descriptions of nats-server quote names with %q."""

from __future__ import annotations

__all__ = [
    "quote",
]

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {'"': '\\"', "\\": "\\\\"}


def quote(text: str) -> str:
    """`text` in double quotes as Go's %q prints it."""
    return '"' + "".join(map(_quote_one, text)) + '"'


def _quote_one(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    point = ord(char)
    if 0xDC80 <= point <= 0xDCFF:  # a byte that is not UTF-8, as surrogateescape keeps it
        return f"\\x{point - 0xDC00:02x}"
    if point < 0x80:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
