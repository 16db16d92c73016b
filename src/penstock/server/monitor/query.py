"""Query: the parameters of a monitoring request, parsed as Go's libraries do, with their error texts."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

from penstock.errors import quote
from penstock.server.monitor.page import RequestError

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class Query:
    """The text after the `?`. The first of repeated parameters counts; one with a bad escape or a `;` is left out."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, str] = {}
        for pair in text.split("&"):
            if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
                continue
            name, _, value = pair.partition("=")
            self._values.setdefault(unquote_plus(name), unquote_plus(value))

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def boolean(self, name: str) -> bool:
        text = self.text(name)
        if not text or text in _FALSE:
            return False
        if text in _TRUE:
            return True
        raise RequestError(_refusal("boolean", name, "ParseBool", text, "invalid syntax"))

    def integer(self, name: str) -> int:
        text = self.text(name)
        if not text:
            return 0
        if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
            raise RequestError(_refusal("int", name, "Atoi", text, "invalid syntax"))
        if len(text) > 40 or not -(2**63) <= int(text) < 2**63:
            raise RequestError(_refusal("int", name, "Atoi", text, "value out of range"))
        return int(text)

    def unsigned(self, name: str) -> int:
        text = self.text(name)
        if not text:
            return 0
        if not re.fullmatch(r"[0-9]+", text, re.ASCII):
            raise RequestError(_refusal("uint64", name, "ParseUint", text, "invalid syntax"))
        if len(text) > 40 or int(text) >= 2**64:
            raise RequestError(_refusal("uint64", name, "ParseUint", text, "value out of range"))
        return int(text)

    def subscriptions(self) -> tuple[bool, bool]:
        """Whether subscriptions are requested: only their subjects, or their details."""
        if self.text("subs").lower() == "detail":
            return False, True
        return self.boolean("subs"), False


def _refusal(kind: str, name: str, parser: str, text: str, why: str) -> str:
    return f"Error decoding {kind} for '{name}': strconv.{parser}: parsing {quote(text)}: {why}"
