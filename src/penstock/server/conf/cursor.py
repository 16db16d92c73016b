"""Cursor: a position in a configuration text, with the errors that name it.

The text is held as Latin-1, one character for each byte: places count bytes, as nats-server's do.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from penstock.server.conf.tree import ConfError

_COMMENT = re.compile(r"[^\r\n\0]*")


class Cursor:
    """A text and the offset `at` of the next character."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.at = 0
        self.lines = [match.start() for match in re.finditer("\n", text)]

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_left(self.lines, offset)
        return line + 1, offset - (self.lines[line - 1] if line else 0)

    def _wrong(self, text: str, offset: int | None = None) -> ConfError:
        line, column = self._place(self.at if offset is None else offset)
        return ConfError(f"Parse error on line {line}: '{text_of(text)}' ({self.file}:{line}:{column})")

    def _bad_value(self, text: str, offset: int) -> ConfError:
        line, column = self._place(offset)
        return ConfError(f"{text_of(text)} ({self.file}:{line}:{column})")

    def _shown(self, char: str) -> str:
        """The character just read, as an error shows it: all of its bytes."""
        count = 1 + (char >= "\xc0") + (char >= "\xe0") + (char >= "\xf0")
        return "\\n" if char == "\n" else char + self.text[self.at : self.at + count - 1]

    def _got(self, char: str) -> str:
        return f"but got '{self._shown(char)}' instead."

    def _look(self) -> str:
        """The next character; NUL at the end. A NUL in the text ends the text, too."""
        return self.text[self.at] if self.at < len(self.text) else "\0"

    def _next(self) -> str:
        char = self._look()
        self.at = min(self.at + 1, len(self.text))
        return char

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match is not None, "every pattern also matches the empty text"
        self.at = match.end()
        return match.group()

    def _is_comment(self) -> bool:
        """Skip a comment if one begins here; a lone slash is left to the state."""
        if self._look() == "#" or self.text.startswith("//", self.at):
            self._take(_COMMENT)
            return True
        return False


def text_of(raw: str) -> str:
    """The text of bytes that were held as Latin-1."""
    return raw.encode("latin-1").decode("utf-8", "replace") if not raw.isascii() else raw


def bytes_of(text: str) -> str:
    """The reverse of `text_of`, for a text that is inserted into one being read."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
