"""Why a text is not JSON, in the words of Go's scanner, which API replies quote; only for texts that did not parse."""

from __future__ import annotations

import re

from penstock.errors import quote

DEPTH_MAX = 10_000
TOO_DEEP = "exceeded max depth"
_BLANK = b" \t\r\n"
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(rb'\\(?:[bfnrt\\/"]|u[0-9a-fA-F]{4})')
_ESCAPE_BEGUN = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?")  # the text ends within it
_DIGITS = frozenset(b"0123456789")
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}

_BEGIN = "looking for beginning of value"
_KEY = "looking for beginning of object key string"


class SyntaxFault(Exception):
    """The first byte that cannot stand where it stands; `index` is its place, or the size of a text that ends early."""

    def __init__(self, index: int, why: str = "") -> None:
        self.index, self.why = index, why
        super().__init__(why)


def find_fault(text: bytes, start: int = 0, *, is_alone: bool = False) -> SyntaxFault | None:
    """What is wrong with the value at `start`; None when it is one. `is_alone`: nothing may follow it."""
    try:
        at = _skip(text, _value(text, start))
        if is_alone and at < len(text):
            return _wrong(text, at, "after top-level value")
    except SyntaxFault as fault:
        return SyntaxFault(fault.index, fault.why)  # without the frames that it came through, which would hold it
    return None


def _value(text: bytes, at: int) -> int:
    """The end of the value at `at`. A loop and a stack: the text may be nested as deep as it is long."""
    stack: list[int] = []
    at = _first(text, at, stack)
    while stack:
        at = _skip(text, at)
        char = _char(text, at)
        if stack[-1] == ord("["):
            if char == ord("]"):
                stack.pop()
                at += 1
            elif char == ord(","):
                at = _first(text, at + 1, stack)
            else:
                raise _wrong(text, at, "after array element")
        elif char == ord("}"):
            stack.pop()
            at += 1
        elif char == ord(","):
            at = _member(text, _skip(text, at + 1), stack)
        else:
            raise _wrong(text, at, "after object key:value pair")
    return at


def _first(text: bytes, at: int, stack: list[int]) -> int:
    """Past the first scalar of the value at `at`, or past it all when it holds none; open brackets go on the stack."""
    while True:
        at = _skip(text, at)
        char = _char(text, at)
        if char == ord("["):
            inner = _skip(text, at + 1)
            if _char(text, inner) == ord("]"):
                return inner + 1
            _nest(stack, char, at)
            at = inner
        elif char == ord("{"):
            inner = _skip(text, at + 1)
            if _char(text, inner) == ord("}"):
                return inner + 1
            _nest(stack, char, at)
            at = _key(text, inner)
        else:
            return _scalar(text, at, char)


def _nest(stack: list[int], char: int, at: int) -> None:
    if len(stack) == DEPTH_MAX:
        raise SyntaxFault(at, TOO_DEEP)
    stack.append(char)


def _member(text: bytes, at: int, stack: list[int]) -> int:
    return _first(text, _key(text, at), stack)


def _key(text: bytes, at: int) -> int:
    """Past the key at `at` and its colon."""
    if _char(text, at) != ord('"'):
        raise _wrong(text, at, _KEY)
    at = _skip(text, _string(text, at + 1))
    if _char(text, at) != ord(":"):
        raise _wrong(text, at, "after object key")
    return at + 1


def _scalar(text: bytes, at: int, char: int) -> int:
    if char == ord('"'):
        return _string(text, at + 1)
    if char in _LITERALS:
        word = _LITERALS[char]
        for n, wanted in enumerate(word):
            if _char(text, at + n) != wanted:
                raise _wrong(text, at + n, f"in literal {word.decode()} (expecting {_quoted(chr(wanted))})")
        return at + len(word)
    if char == ord("-") or char in _DIGITS:
        return _number(text, at)
    raise _wrong(text, at, _BEGIN)


def _string(text: bytes, at: int) -> int:
    """Past the string whose first character is at `at`."""
    while True:
        at = _PLAIN.match(text, at).end()  # type: ignore[union-attr]
        char = _char(text, at)
        if char == ord('"'):
            return at + 1
        if char != ord("\\"):
            raise _wrong(text, at, "in string")
        escape = text[at : at + 6] if text[at + 1 : at + 2] == b"u" else text[at : at + 2]
        if not _ESCAPE.fullmatch(escape):
            if _ESCAPE_BEGUN.fullmatch(escape):
                raise SyntaxFault(len(text))
            shown = escape.decode("latin-1")
            raise SyntaxFault(at + len(escape) - 1, f"invalid escape sequence `{shown}` in string")
        at += len(escape)


def _number(text: bytes, at: int) -> int:
    if text[at] == ord("-"):
        at += 1
        if _char(text, at) not in _DIGITS:
            raise _wrong(text, at, "in numeric literal")
    at = at + 1 if text[at] == ord("0") else _digits(text, at)
    if text[at : at + 1] == b".":
        at += 1
        if _char(text, at) not in _DIGITS:
            raise _wrong(text, at, "in numeric literal")
        at = _digits(text, at)
    if text[at : at + 1] in (b"e", b"E"):
        at += 1
        if text[at : at + 1] in (b"+", b"-"):
            at += 1
        if _char(text, at) not in _DIGITS:
            raise _wrong(text, at, "in numeric literal")
        at = _digits(text, at)
    return at


def _digits(text: bytes, at: int) -> int:
    while at < len(text) and text[at] in _DIGITS:
        at += 1
    return at


def _skip(text: bytes, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _char(text: bytes, at: int) -> int:
    if at >= len(text):
        raise SyntaxFault(len(text))
    return text[at]


def _wrong(text: bytes, at: int, where: str) -> SyntaxFault:
    """The character at `at` is wrong; it may be longer than a byte, and is told as one that ends there."""
    char = text[at : at + 4].decode("utf-8", "surrogateescape")[:1]
    last = at + len(char.encode("utf-8", "surrogateescape")) - 1
    return SyntaxFault(last, f"invalid character {_quoted(char)} {where}")


def _quoted(char: str) -> str:
    if char == "'":
        return r"'\''"
    return "'\"'" if char == '"' else f"'{quote(char)[1:-1]}'"
