"""SubjectTransform: makes one subject from another, by JetStream's rules for `subject_transform` and `republish`.

A destination's tokens are text, `$n` or `{{function(…)}}`; functions count the `*` of the source from 1. The refusals
and their texts were observed on nats-server 2.15.1.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from penstock.base.subject import is_valid_subject, matches

CACHED_MAX = 4096  # subjects whose result is remembered
INT32_MAX = 2**31 - 1

Tokens = Sequence[bytes]
Maker = Callable[[Tokens], bytes]
"""Makes one token of the destination; the result may be several tokens, or none."""


class BadTransform(ValueError):
    """An invalid pair of source and destination; the text is nats-server's."""


_UNKNOWN = "invalid mapping destination: unknown function"
_OUT_OF_RANGE = "invalid mapping destination: wildcard index out of range"
_TOO_FEW = "invalid mapping destination: not enough arguments passed to the function"
_BAD_ARGUMENT = "invalid mapping destination: function argument is invalid or in the wrong format"
_TOO_MANY = "invalid mapping destination: too many arguments passed to the function"
_BAD_DESTINATION = "invalid mapping destination: invalid transform"
_BAD_SUBJECT = "invalid subject"

_BLANKS = r"[\t\n\f\r ]*"
_NEVER = re.compile("[\x00-\x20\x7f]")  # as base/subject.pyx has it


def _pattern(name: str) -> re.Pattern[str]:
    """The pattern of a call to this function; each word of its name may begin with a capital."""
    call = f"[{name[0]}{name[0].upper()}]" + re.sub("[A-Z]", lambda found: f"[{found[0].lower()}{found[0]}]", name[1:])
    return re.compile(rf"{{{{{_BLANKS}{call}{_BLANKS}\((.*)\){_BLANKS}}}}}")


class SubjectTransform:
    """Makes `dest` from the subjects that match `src` ("" matches all of them). Raises BadTransform."""

    __slots__ = ("_cache", "_is_random", "_makers", "_rest_from", "dest", "src")

    def __init__(self, src: str, dest: str) -> None:
        self.src, self.dest = src or ">", dest
        self._cache: dict[bytes, bytes] = {}
        self._is_random = False
        source, target = _split(self.src), _split(dest)
        if source is None or target is None or "*" in target or (source[-1] == ">") != (target[-1] == ">"):
            raise BadTransform(_BAD_SUBJECT)
        self._rest_from = len(source) - 1 if target[-1] == ">" else -1
        wildcards = [at for at, token in enumerate(source) if token == "*"]
        has_wildcards = bool(wildcards) or source[-1] == ">"
        self._makers: list[Maker] = []
        for token in target[:-1] if target[-1] == ">" else target:
            self._makers.append(self._maker(token, wildcards, has_wildcards))

    def apply(self, subject: bytes) -> bytes | None:
        """The result for `subject`; None if the source does not match it."""
        found = self._cache.get(subject)
        if found is None:
            if not is_valid_subject(subject) or not matches(subject, self.src):
                return None
            if self.src == self.dest == ">":
                return subject
            tokens = subject.split(b".")
            made = [make(tokens) for make in self._makers]
            if self._rest_from >= 0:
                made += tokens[self._rest_from :]
            found = b".".join(made)
            if not self._is_random:
                if len(self._cache) >= CACHED_MAX:
                    self._cache.clear()
                self._cache[subject] = found
        return found

    def _maker(self, token: str, wildcards: list[int], has_wildcards: bool) -> Maker:
        """The maker of this token of the destination."""
        name, indexes, number, text = read_token(token)
        if name == "":
            return _constant(token.encode())
        if name == "random":
            self._is_random = True
            return _random(number)
        if not has_wildcards:
            if name != "partition":
                raise BadTransform(f"{_OUT_OF_RANGE} in {token}")
            return _partition((), number)
        for index in indexes:
            if index > len(wildcards):
                raise BadTransform(f"{_OUT_OF_RANGE} in {token}: [{index}]")
        places = tuple(wildcards[index - 1] if index > 0 else 0 for index in indexes)
        if name == "partition":
            return _partition(places, number)
        if name == "split":
            return _split_at(places[0], text.encode())
        return _PIECES[name](places[0], number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubjectTransform) and (self.src, self.dest) == (other.src, other.dest)

    def __hash__(self) -> int:
        return hash((self.src, self.dest))

    def __repr__(self) -> str:
        return f"SubjectTransform({self.src!r}, {self.dest!r})"


def check_destination(src: str, dest: str) -> None:
    """Check the destination of a stream's `subject_transform`, whose text must meet stricter rules than a
    transform's."""
    has_rest = False
    for token in dest.split("."):
        if not token or has_rest:
            raise BadTransform(_BAD_DESTINATION + (f" in {token}" if token else ""))
        if _is_call(token):
            if not any(pattern.search(token) for pattern in _FUNCTIONS.values()):
                raise BadTransform(f"{_UNKNOWN} in {token}")
        elif token == ">":
            has_rest = True
    check_text(dest)
    SubjectTransform(src, dest)


def check_text(dest: str) -> None:
    """Refuse a destination with a character that no subject has: nothing could be stored or sent there."""
    if any(_NEVER.search(token) for token in dest.split(".") if not _is_call(token)):
        raise BadTransform(_BAD_DESTINATION)


def read_token(token: str) -> tuple[str, tuple[int, ...], int, str]:
    """Parse a token of a destination: the function ("": none), the wildcards that it reads, its number and its text."""
    if len(token) > 1 and token[0] == "$":
        index = _integer(token[1:])
        return ("", (), 0, "") if index is None else ("wildcard", (index,), 0, "")
    if not _is_call(token):
        return "", (), 0, ""
    for name, pattern in _FUNCTIONS.items():
        found = pattern.search(token)
        if found is not None:
            indexes, number, text = _arguments(name, re.split(rf",{_BLANKS}", found[1]), token)
            return name, indexes, number, text
    raise BadTransform(f"{_UNKNOWN} in {token}")


def _arguments(name: str, arguments: list[str], token: str) -> tuple[tuple[int, ...], int, str]:
    def number(text: str, most: int) -> int:
        found = _integer(text.strip(" "))
        if found is None or found > most:
            raise BadTransform(f"{_BAD_ARGUMENT} in {token}")
        return found

    if name == "wildcard":
        if arguments == [""]:
            raise BadTransform(f"{_TOO_FEW} in {token}")
        if len(arguments) > 1:
            raise BadTransform(f"{_TOO_MANY} in {token}")
        return (number(arguments[0], 2**63 - 1),), 0, ""
    if name == "random":
        if len(arguments) != 1:
            raise BadTransform(f"{_TOO_FEW} in {token}")
        return (), number(arguments[0], INT32_MAX), ""
    if name == "partition":
        count = number(arguments[0], INT32_MAX)
        return tuple(number(one, 2**63 - 1) for one in arguments[1:]), count, ""
    if len(arguments) < 2:
        raise BadTransform(f"{_TOO_FEW} in {token}")
    if len(arguments) > 2:
        raise BadTransform(f"{_TOO_MANY} in {token}")
    index = number(arguments[0], 2**63 - 1)
    if name == "split":
        if " " in arguments[1]:
            raise BadTransform(f"{_BAD_ARGUMENT} in {token}")
        return (index,), 0, arguments[1]
    size = number(arguments[1], INT32_MAX)
    if size < -(2**31):
        raise BadTransform(f"{_BAD_ARGUMENT} in {token}")
    return (index,), size, ""


def _split(subject: str) -> list[str] | None:
    """The tokens of a source or destination; None if it is invalid."""
    if not subject:
        return None
    tokens = subject.split(".")
    if "" in tokens or ">" in tokens[:-1]:
        return None
    return tokens


def _is_call(token: str) -> bool:
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def _integer(text: str) -> int | None:
    """Parse an integer as Go's Atoi does."""
    if re.fullmatch("[+-]?[0-9]{1,19}", text) is None:
        return None
    found = int(text)
    return found if -(2**63) <= found < 2**63 else None


# ------------------------------------------------------------------------------------------------ the makers of tokens


def _constant(token: bytes) -> Maker:
    return lambda tokens: token


def _random(count: int) -> Maker:
    return lambda tokens: b"%d" % (random.getrandbits(31) % abs(count) if count else 0)


def _partition(places: tuple[int, ...], count: int) -> Maker:
    """The partition by FNV-1a over the tokens, or over the whole subject."""
    count &= 0xFFFFFFFF

    def make(tokens: Tokens) -> bytes:
        if not count:
            return b"0"
        found = 0x811C9DC5
        for byte in b"".join(tokens[place] for place in places) if places else b".".join(tokens):
            found = ((found ^ byte) * 0x01000193) & 0xFFFFFFFF
        return b"%d" % (found % count)

    return make


def _split_at(place: int, separator: bytes) -> Maker:
    def make(tokens: Tokens) -> bytes:
        token = tokens[place]
        pieces = token.split(separator) if separator else _characters(token)
        # Separators that are adjacent, or at either end, make no empty tokens.
        made = b""
        for at, piece in enumerate(pieces):
            made += piece
            if at < len(pieces) - 1 and pieces[at + 1] and not (at == 0 and not piece):
                made += b"."
        return made

    return make


def _characters(token: bytes) -> list[bytes]:
    return [char.encode("utf-8", "surrogateescape") for char in token.decode("utf-8", "surrogateescape")]


def _whole(place: int, _number: int) -> Maker:
    return lambda tokens: tokens[place]


def _piecewise(cut: Callable[[bytes, int], bytes]) -> Callable[[int, int], Maker]:
    """Makes a function that cuts a token, and leaves a token that is too short as it is."""

    def of(place: int, number: int) -> Maker:
        if number <= 0:
            return _whole(place, number)
        return lambda tokens: cut(tokens[place], number) if number < len(tokens[place]) else tokens[place]

    return of


def _slices(token: bytes, first: int, size: int) -> bytes:
    cuts = [0, *range(first, len(token), size)] if first else list(range(0, len(token), size))
    return b".".join(token[start:stop] for start, stop in zip(cuts, [*cuts[1:], len(token)], strict=True))


_PIECES: dict[str, Callable[[int, int], Maker]] = {
    "wildcard": _whole,
    "splitFromLeft": _piecewise(lambda token, at: token[:at] + b"." + token[at:]),
    "splitFromRight": _piecewise(lambda token, at: token[:-at] + b"." + token[-at:]),
    "sliceFromLeft": _piecewise(lambda token, size: _slices(token, 0, size)),
    "sliceFromRight": _piecewise(lambda token, size: _slices(token, len(token) % size, size)),
    "left": _piecewise(lambda token, size: token[:size]),
    "right": _piecewise(lambda token, size: token[-size:]),
}
_FUNCTIONS = {
    name: _pattern(name)
    for name in (
        "wildcard", "partition", "splitFromLeft", "splitFromRight", "sliceFromLeft", "sliceFromRight", "right", "left",
        "split", "random",
    )
}  # fmt: skip
