"""Subjects and filters in plain Python: the rules that base/subject.pyx follows.

A subject is one or more tokens separated by dots. A token is not empty and holds no byte up to 0x20 and no 0x7f. A
filter may also have `*` as a token, which stands for any one token, and `>` as its last token, which stands for one or
more. In a longer token both characters are ordinary: `a*` is a literal. A server stores what clients publish, and those
may publish to `a.*`: as the name of a stored subject both are ordinary tokens, that a filter matches like others.
"""

from __future__ import annotations

from collections.abc import Iterable

SUBJECT_SIZE_MAX = 65535


def _as_bytes(text: bytes | str) -> bytes:
    if isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode()
    raise TypeError(f"a subject is str or bytes, not {type(text).__name__}")


def _explain(text: bytes, has_wildcards: bool | None) -> str | None:
    """None: a token that is a wildcard is a token like others."""
    if not text:
        return "it is empty"
    if len(text) > SUBJECT_SIZE_MAX:
        return "it is longer than 65535 bytes"
    tokens = text.split(b".")
    for index, token in enumerate(tokens):
        if any(byte <= 0x20 or byte == 0x7F for byte in token):
            return "it has a blank or a control character"
        if not token:
            return "it has an empty token"
        if has_wildcards is not None and token in (b"*", b">"):
            if not has_wildcards:
                return "it has a wildcard token"
            if token == b">" and index < len(tokens) - 1:
                return "it has a '>' that is not the last token"
    return None


def explain_subject(subject: bytes | str) -> str | None:
    """Why `subject` cannot be published to, or None where it can."""
    return _explain(_as_bytes(subject), has_wildcards=False)


def explain_filter(filter: bytes | str) -> str | None:
    """Why `filter` is not well formed, or None where it is."""
    return _explain(_as_bytes(filter), has_wildcards=True)


def is_valid_subject(subject: bytes | str) -> bool:
    """Whether `subject` can be published to; text that has no UTF-8 form cannot."""
    try:
        return explain_subject(subject) is None
    except UnicodeEncodeError:
        return False


def is_valid_filter(filter: bytes | str) -> bool:
    """Whether `filter` is well formed; text that has no UTF-8 form is not."""
    try:
        return explain_filter(filter) is None
    except UnicodeEncodeError:
        return False


def is_valid_name(name: bytes | str) -> bool:
    """Whether a stored subject may have this name."""
    try:
        return _explain(_as_bytes(name), has_wildcards=None) is None
    except UnicodeEncodeError:
        return False


def is_literal_filter(filter: bytes | str) -> bool:
    """Whether `filter` has no wildcard token."""
    tokens = _as_bytes(filter).split(b".")
    return b"*" not in tokens and tokens[-1] != b">"


def matches(subject: bytes | str, filter: bytes | str) -> bool:
    """Whether `filter` matches `subject`."""
    names, tokens = _as_bytes(subject).split(b"."), _as_bytes(filter).split(b".")
    if tokens[-1] == b">":
        tokens.pop()
        if len(names) <= len(tokens):
            return False
        del names[len(tokens) :]
    return len(names) == len(tokens) and all(token in (b"*", name) for name, token in zip(names, tokens, strict=True))


def covers(a: bytes | str, b: bytes | str) -> bool:
    """Whether filter `a` matches every subject that filter `b` matches."""
    wide, narrow = _as_bytes(a).split(b"."), _as_bytes(b).split(b".")
    if wide[-1] == b">":
        wide.pop()
        if len(narrow) <= len(wide):
            return False
        del narrow[len(wide) :]
        is_last = False
    else:
        is_last = True
    if len(wide) != len(narrow) or (is_last and narrow[-1] == b">"):
        return False
    return all(x == b"*" or (x == y and y != b"*") for x, y in zip(wide, narrow, strict=True))


def overlap(a: bytes | str, b: bytes | str) -> bool:
    """Whether some subject is matched by both filters."""
    one, other = _as_bytes(a).split(b"."), _as_bytes(b).split(b".")
    for index, (x, y) in enumerate(zip(one, other, strict=False)):
        if (x == b">" and index == len(one) - 1) or (y == b">" and index == len(other) - 1):
            return True
        if x != y and b"*" not in (x, y):
            return False
    return len(one) == len(other)


class Filters:
    """An immutable list of well-formed filters; empty, or with `>` in it, it means everything."""

    def __init__(self, filters: Iterable[bytes | str] = (), exact: bool = False) -> None:
        if isinstance(filters, (str, bytes)):
            raise TypeError("Filters takes a list of filters, not a single one")
        self._filters = [_as_bytes(text) for text in filters]
        for index, text in enumerate(self._filters):
            reason = _explain(text, None if exact else True)
            if reason is not None:
                shown = text if len(text) <= 100 else text[:100] + b"..."
                raise ValueError(f"filter {index}, {shown!r}: {reason}")
        self.count = len(self._filters)
        self.is_exact = exact
        self.is_all = not self._filters or (b">" in self._filters and not exact)
        self.is_literal = self.count == 1 and (exact or is_literal_filter(self._filters[0]))

    def match(self, subject: bytes | str) -> bool:
        """Whether any of the filters matches `subject`."""
        if self.is_exact and self._filters:
            return _as_bytes(subject) in self._filters
        return self.is_all or any(matches(subject, text) for text in self._filters)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"Filters({self._filters!r})"
